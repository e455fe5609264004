"""The body of an outbox row: all messages of one commit for one partition, as the relay reads them.

The relay never looks into a value: it needs topic, key and headers, and those are what a frame tells. The first byte is
the frame's version, so that rows written before an upgrade are still published after it.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from holdfast.core.errors import Corrupt

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
FramedMessage: TypeAlias = tuple[str, bytes | None, bytes | None, Headers]
"""(topic, key, value, headers): the first four of `holdfast.log.protocol.Message`."""

_VERSION = 1
_PREFIX = bytes([_VERSION])
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(
    list[tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
).decode


def encode_frame(messages: Sequence[FramedMessage]) -> bytes:
    return _PREFIX + _encode(messages)


def decode_frame(body: bytes) -> list[FramedMessage]:
    if body[:1] != _PREFIX:
        known = f"version {_VERSION} is known"
        raise Corrupt(f"outbox frame of version {body[0]}; {known}" if body else f"outbox frame is empty; {known}")
    try:
        return list(_decode(memoryview(body)[1:]))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"outbox frame does not decode: {error}"[:300]) from error
