"""Events to JSON and back: the one encoding that Postgres keeps and that `holdfast.events` publishes.

Several events are encoded per step, so an encoder is generated for each class at import: one dict display and one call
into orjson. Payloads are JSON already and are embedded as they are (`orjson.Fragment`), never parsed; decoding slices
them out of the bytes again (`msgspec.Raw`). None is left out, so that a payload `null` stays different from no payload.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import orjson

from holdfast.contracts.upcasters import upcast
from holdfast.core.errors import Corrupt
from holdfast.core.events import EVENT_TYPES, Event
from holdfast.core.ids import InstanceId, Payload
from holdfast.core.inputs import Error

_OPTIONS = orjson.OPT_UTC_Z

_Aware = Annotated[datetime, msgspec.Meta(tz=True)]


def event_id(instance_id: InstanceId, sequence: int) -> str:
    """What an event is called everywhere: in `caused_by` and as the id of its CloudEvent."""
    return f"{instance_id}/{sequence}"


def encode_event(event: Event) -> bytes:
    return _ENCODERS[event.__class__](event)


def decode_event(type_name: str, schema_version: int, payload: bytes | str) -> Event:
    """Read an event as any version ever wrote it; raises Corrupt and nothing else."""
    found = _DECODERS.get(type_name)
    if found is None:
        raise Corrupt(f"unknown event type {type_name[:80]!r}: a newer service wrote it, or it is damaged")
    current, decode = found
    try:
        if schema_version == current:
            return decode(payload)
        body = orjson.loads(payload)
        if not isinstance(body, dict):
            raise Corrupt(f"event {type_name} version {schema_version} is not a JSON object")
        return decode(orjson.dumps(upcast(type_name, schema_version, current, body)))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise Corrupt(f"event {type_name} version {schema_version} does not decode: {error}"[:500]) from error


# --- one encoder and one decoder per class, made at import


def _alternatives(hint: Any) -> tuple[Any, bool]:
    """The type of a field without None, and whether None was among it."""
    if get_origin(hint) in (UnionType, Union):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return kinds[0], True
    return hint, False


def _error_dict(error: Error) -> dict[str, Any]:
    if error.details is None:
        return {"code": error.code, "message": error.message}
    return {"code": error.code, "message": error.message, "details": orjson.Fragment(error.details)}


def _encoder(kind: type[Event]) -> Callable[[Any], bytes]:
    hints = get_type_hints(kind)
    always, sometimes = [], []
    for name in (field.name for field in fields(kind)):
        bare, optional = _alternatives(hints[name])
        value = f"event.{name}"
        if bare is Payload:
            value = f"Fragment({value})"
        elif bare is Error:
            value = f"error_dict({value})"
        if optional:
            sometimes.append(f"    if event.{name} is not None:\n        body[{name!r}] = {value}")
        else:
            always.append(f"{name!r}: {value}")
    source = "\n".join(
        [
            "def encode(event):",
            f"    body = {{{', '.join(always)}}}",
            *sometimes,
            f"    return dumps(body, None, {_OPTIONS})",
        ]
    )
    scope: dict[str, Any] = {"Fragment": orjson.Fragment, "error_dict": _error_dict, "dumps": orjson.dumps}
    exec(compile(source, f"<encoder of {kind.__name__}>", "exec"), scope)
    return cast(Callable[[Any], bytes], scope["encode"])


class _ErrorShape(msgspec.Struct, forbid_unknown_fields=True):
    code: str
    message: str
    details: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _shape_of(field: Field[Any], hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    bare, optional = _alternatives(hint)
    shape = {Payload: msgspec.Raw, Error: _ErrorShape, datetime: _Aware}.get(bare, bare)
    if optional:
        return field.name, shape | msgspec.UnsetType, msgspec.UNSET
    if field.default is not MISSING:
        return field.name, shape, field.default
    return field.name, shape


def _decoder(kind: type[Event]) -> Callable[[bytes | str], Event]:
    hints = get_type_hints(kind)
    shape = msgspec.defstruct(
        f"{kind.__name__}Shape",
        [_shape_of(field, hints[field.name]) for field in fields(kind)],
        forbid_unknown_fields=True,
        kw_only=True,
    )
    arguments = []
    for name in (field.name for field in fields(kind)):
        bare, optional = _alternatives(hints[name])
        value = f"body.{name}"
        if bare is Payload:
            value = f"bytes({value})"
        elif bare is Error:
            value = f"error_of({value})"
        arguments.append(f"None if body.{name} is UNSET else {value}" if optional else value)
    source = f"def decode(payload):\n    body = read(payload)\n    return kind({', '.join(arguments)})\n"
    scope: dict[str, Any] = {
        "read": msgspec.json.Decoder(shape).decode,
        "kind": kind,
        "error_of": _error_of,
        "UNSET": msgspec.UNSET,
    }
    exec(compile(source, f"<decoder of {kind.__name__}>", "exec"), scope)
    return cast(Callable[[bytes | str], Event], scope["decode"])


def _error_of(shape: _ErrorShape) -> Error:
    details = None if shape.details is msgspec.UNSET else Payload(bytes(shape.details))
    return Error(shape.code, shape.message, details)


_ENCODERS: dict[type[Event], Callable[[Any], bytes]] = {kind: _encoder(kind) for kind in EVENT_TYPES}
_DECODERS: dict[str, tuple[int, Callable[[bytes | str], Event]]] = {
    name: (version, _decoder(kind)) for kind, (name, version) in EVENT_TYPES.items()
}
