"""What may come in: sizes and characters, checked once at the edge so that nothing inside has to.

A payload must be something that Postgres can store as jsonb and that every JSON reader takes: UTF-8, no NUL, no lone
surrogates, no NaN, no number that overflows, not nested without end. Payloads are checked on the hot path, so the
common case is one pass of msgspec that builds nothing and three searches; only what looks suspicious is looked at.
"""

import json
import re
from typing import Any

import msgspec

from holdfast.core.errors import Refused

payload_bytes_warn = 256 * 1024
payload_bytes_max = 1024 * 1024
name_bytes_max = 255
definition_bytes_max = 256 * 1024
definition_tasks_max = 500

_walk = msgspec.json.Decoder(msgspec.Raw).decode
_BACKSLASH = 0x5C
# All digits become 0, E becomes e and signs vanish, so one search finds every exponent of four digits or more.
_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000").search
_NUMBER_DIGITS_MAX = 1_000
# Whoever reads a payload later is deeper in the stack than the edge is; this many levels are kept for them.
_DEPTH_RESERVE = 500
_DEPTH_SUSPICIOUS = 100


def check_payload(payload: bytes, what: str, *, bytes_max: int = payload_bytes_max) -> bool:
    """Raises Refused (`payload_too_large`, `payload_invalid`); True when it is large enough for a warning."""
    size = len(payload)
    if size > bytes_max:
        raise Refused("payload_too_large", f"{what} has {size} bytes, at most {bytes_max} are allowed")
    try:
        _walk(payload)
        if not payload.isascii():
            payload.decode()
        if size > _DEPTH_SUSPICIOUS and payload.count(b"[") + payload.count(b"{") > _DEPTH_SUSPICIOUS:
            _walk(b"[" * _DEPTH_RESERVE + payload + b"]" * _DEPTH_RESERVE)
    except RecursionError:
        raise Refused("payload_invalid", f"{what} is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise Refused("payload_invalid", f"{what} is not JSON in UTF-8: {error}"[:300]) from None
    if _BACKSLASH in payload and _NUL_ESCAPE(payload):
        raise Refused("payload_invalid", f"{what} contains the character NUL (\\u0000), which cannot be stored")
    if b"e0000" in payload.translate(_DIGITS, b"+-") or size > _NUMBER_DIGITS_MAX:
        _check_numbers(payload, what)
    return size > payload_bytes_warn


_LONG_NUMBER = re.compile(rb"[0-9]{1000}|[0-9.][eE][+-]?[0-9]{4}").search


def _check_numbers(payload: bytes, what: str) -> None:
    """Numbers that no double and no numeric column holds. Only looked for where the text could contain one."""
    if not _LONG_NUMBER(payload):
        return

    def check(text: str) -> float:
        mantissa, _, exponent = text.lower().partition("e")
        if len(mantissa) > _NUMBER_DIGITS_MAX or len(exponent.lstrip("+-")) > 3:
            raise Refused("payload_invalid", f"{what} contains a number that is out of range: {text[:40]}")
        return 0.0

    json.loads(payload, parse_float=check, parse_int=check)


_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]").search
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*").fullmatch
_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*").fullmatch
_TASK_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


def check_text(value: str, what: str, *, bytes_max: int = name_bytes_max) -> str:
    """An id that others choose (run id, source, holder): any printable text of limited length."""
    if not value:
        raise Refused("name_invalid", f"{what} is empty")
    if _FORBIDDEN(value):
        raise Refused("name_invalid", f"{what} contains a control character or a lone surrogate: {value[:80]!r}")
    if len(value) * 4 > bytes_max and len(value.encode()) > bytes_max:
        raise Refused("name_invalid", f"{what} has {len(value.encode())} bytes, at most {bytes_max} are allowed")
    return value


def check_name(value: str, what: str) -> str:
    """A name that we use in paths and topics (namespace, workflow, activity): letters, digits, `.`, `_`, `-`."""
    check_text(value, what)
    if not _PLAIN_NAME(value):
        raise Refused("name_invalid", f"{what} may have letters, digits, '.', '_' and '-' only: {value[:80]!r}")
    return value


def check_task_id(value: str, what: str) -> str:
    """A task's id is also a word in expressions (`tasks.<id>.output`)."""
    check_text(value, what)
    if not _TASK_ID(value):
        raise Refused("name_invalid", f"{what} may have letters, digits and '_' only, no digit first: {value[:80]!r}")
    return value


def check_instance_key(key: str) -> tuple[str, str, str]:
    """Namespace, workflow and run id of a well-formed instance key; Refused (`instance_key_invalid`) otherwise."""
    parts = key.split("/", 2)
    if len(parts) != 3:
        raise Refused("instance_key_invalid", f"not namespace/workflow/run_id: {key[:80]!r}")
    try:
        check_name(parts[0], "namespace")
        check_name(parts[1], "workflow")
        check_text(parts[2], "run id")
    except Refused as refused:
        raise Refused("instance_key_invalid", refused.detail) from None
    return parts[0], parts[1], parts[2]


def storable_text(text: Any, *, chars_max: int = 10_000) -> str:
    """Text that may hold anything (an exception's message), made such that Postgres and Avro take it."""
    cut = str(text)[:chars_max]
    return cut.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
