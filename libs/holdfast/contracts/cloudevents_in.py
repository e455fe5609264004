"""Commands: CloudEvents on `holdfast.commands`, in binary or structured mode, from any Kafka client.

Three outcomes. What is not a CloudEvent, or does not say which instance it is for, is `Corrupt` and goes to the DLQ:
there is nobody to answer. What is one but asks for something impossible is `RefusedCommand`: it knows source, id and
instance, so the refusal is recorded and published. Everything else is a `CommandEnvelope`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

import msgspec
import orjson

from holdfast.contracts.limits import check_instance_key, check_payload, check_text
from holdfast.contracts.tracing import parse_traceparent
from holdfast.core.errors import Corrupt, Refused
from holdfast.core.ids import NULL, InstanceKey, Payload
from holdfast.core.inputs import ActorType, CancelWorkflow, Command, Origin, ResumeWorkflow, StartWorkflow

_PREFIX = "io.holdfast.command."
START, CANCEL, RESUME = (f"{_PREFIX}{verb}.v1" for verb in ("start", "cancel", "resume"))
KNOWN_TYPES = (START, CANCEL, RESUME)
_OURS = ("ce_", "content-type", "traceparent")
reason_chars_max = 1_000


@dataclass(frozen=True, slots=True)
class CommandHeader:
    """What is known of a command as soon as it is known to be one."""

    instance: InstanceKey
    source: str
    id: str
    type: str
    digest: bytes  # of type, subject and data: the same id with another digest is `id_reused`
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class CommandEnvelope(CommandHeader):
    command: Command


class RefusedCommand(Refused):
    """Decodable, but wrong. Carries what is needed to record and publish the refusal."""

    def __init__(self, reason: str, detail: str, header: CommandHeader) -> None:
        super().__init__(reason, detail)
        self.header = header

    def __reduce__(self) -> Any:
        return type(self), (self.reason, self.detail, self.header)


class _Attributes(NamedTuple):
    specversion: Any
    id: Any
    source: Any
    type: Any
    subject: Any
    content_type: str
    traceparent: str | None
    data: bytes


def decode_command(
    headers: Sequence[tuple[str, bytes | None]], key: bytes | None, value: bytes | None
) -> CommandEnvelope:
    """Raises Corrupt or RefusedCommand and nothing else. The key only chose the partition; the subject counts."""
    attributes = _attributes(headers, value)
    header = _header(attributes)
    try:
        command = _command(header, attributes)
    except Refused as refused:
        raise RefusedCommand(refused.reason, refused.detail, header) from None
    return CommandEnvelope(
        header.instance, header.source, header.id, header.type, header.digest, header.traceparent, command
    )


# --- which mode, and what it says


def _attributes(headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> _Attributes:
    try:
        told = {name.lower(): (content or b"").decode() for name, content in headers if name.lower().startswith(_OURS)}
    except UnicodeDecodeError as error:
        raise Corrupt(f"command: a header is not UTF-8: {error}"[:300]) from None
    content_type = told.get("content-type", "").split(";", 1)[0].strip().lower()
    if content_type == "application/cloudevents+json":
        return _structured(value, told)
    if content_type.startswith("application/cloudevents"):
        raise Corrupt(f"command: {content_type[:80]} is not supported; use application/cloudevents+json")
    if "ce_specversion" in told or "ce_type" in told:
        return _Attributes(
            told.get("ce_specversion"),
            told.get("ce_id"),
            told.get("ce_source"),
            told.get("ce_type"),
            told.get("ce_subject"),
            content_type,
            told.get("traceparent") or told.get("ce_traceparent"),
            value or b"",
        )
    return _structured(value, told)


class _Structured(msgspec.Struct):
    specversion: str
    id: str
    source: str
    type: str
    subject: str | None = None
    datacontenttype: str | None = None
    traceparent: str | None = None
    data: msgspec.Raw = msgspec.Raw()
    data_base64: str | None = None


_read_structured = msgspec.json.Decoder(_Structured).decode


def _structured(value: bytes | None, told: dict[str, str]) -> _Attributes:
    try:
        found = _read_structured(value or b"")
        data = bytes(found.data) if found.data_base64 is None else b64decode(found.data_base64, validate=True)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"command: neither `ce_` headers nor a CloudEvent in JSON: {error}"[:300]) from error
    return _Attributes(
        found.specversion,
        found.id,
        found.source,
        found.type,
        found.subject,
        (found.datacontenttype or "").split(";", 1)[0].strip().lower(),
        told.get("traceparent") or found.traceparent,
        data,
    )


def _header(attributes: _Attributes) -> CommandHeader:
    if attributes.specversion != "1.0":
        raise Corrupt(f"command: CloudEvents specversion {str(attributes.specversion)[:20]!r}, only '1.0' is known")
    try:
        source = check_text(attributes.source or "", "source")
        identity = check_text(attributes.id or "", "id")
        kind = check_text(attributes.type or "", "type")
        subject = attributes.subject or ""
        check_instance_key(subject)
    except Refused as refused:
        raise Corrupt(f"command: {refused.detail}; the subject must be namespace/workflow/run_id"[:300]) from None
    digest = _digest(kind, subject, attributes.data)
    return CommandHeader(InstanceKey(subject), source, identity, kind, digest, attributes.traceparent)


def _digest(kind: str, subject: str, data: bytes) -> bytes:
    """The same for the same content, however it was spaced and in whichever mode it came."""
    # Not JSON, or too deep to write again: then the bytes themselves are the content.
    with suppress(ValueError, TypeError):
        data = orjson.dumps(orjson.loads(data or b"null"), None, orjson.OPT_SORT_KEYS)
    told = b"\0".join((kind.encode(), subject.encode(), data))
    return blake2b(told, digest_size=16).digest()


# --- what is asked for


class _StartData(msgspec.Struct, forbid_unknown_fields=True):
    input: msgspec.Raw = msgspec.Raw(NULL)
    version: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    run_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _CancelData(msgspec.Struct, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=reason_chars_max)] = ""
    compensate: bool = False
    force: bool = False


class _ResumeData(msgspec.Struct, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=reason_chars_max)] = ""


_read_start = msgspec.json.Decoder(_StartData).decode
_read_cancel = msgspec.json.Decoder(_CancelData).decode
_read_resume = msgspec.json.Decoder(_ResumeData).decode


def _command(header: CommandHeader, attributes: _Attributes) -> Command:
    kind = header.type
    if kind not in KNOWN_TYPES:
        raise Refused("unknown_command_type", f"{kind!r}; known are {', '.join(KNOWN_TYPES)}")
    if attributes.content_type not in ("", "application/json", "text/json") and not attributes.content_type.endswith(
        "+json"
    ):
        raise Refused("data_unsupported", f"data is {attributes.content_type[:80]!r}; use application/json")
    data = attributes.data or b"{}"
    check_payload(data, "data", bytes_max=2 * 1024 * 1024)
    origin = Origin(
        ActorType.CLIENT, header.source, f"{header.source}#{header.id}", *parse_traceparent(header.traceparent)
    )
    try:
        if kind == START:
            start = _read_start(data)
            payload = Payload(bytes(start.input))
            check_payload(payload, "input")
            run_at = None if start.run_at is None else start.run_at.astimezone(UTC)
            return StartWorkflow(header.instance, origin, payload, start.version, run_at)
        if kind == CANCEL:
            cancel = _read_cancel(data)
            return CancelWorkflow(header.instance, origin, cancel.reason, cancel.compensate, cancel.force)
        return ResumeWorkflow(header.instance, origin, _read_resume(data).reason)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("data_invalid", f"data of {kind}: {error}"[:500]) from error
