"""The state of an instance as bytes: a shortcut past its events, never their replacement.

The definition is not in it (it is stored once per version) and neither are lease renewals (they are in the lease row,
the one thing that events do not tell). The layout is positional and follows the fields of the core's classes, so
any change to them is a new `STATE_SHAPE`: a snapshot of another shape is thrown away and rebuilt.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import msgspec

from holdfast.core.definition import Definition
from holdfast.core.errors import Corrupt
from holdfast.core.state import State, TaskState, Timer

_NOT_IN_EVENTS = frozenset({"renewals", "expires_at"})


def _names(kind: Any, without: frozenset[str]) -> list[str]:
    return [field.name for field in fields(kind) if field.init and field.name not in without]


def _layout(kind: Any, without: frozenset[str], nested: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    parts = [(name, nested.get(name, hints[name])) for name in _names(kind, without)]
    return msgspec.defstruct(f"{kind.__name__}Layout", parts, array_like=True, forbid_unknown_fields=True)


def _packer(kind: Any, layout: Any, without: frozenset[str], nested: dict[str, str]) -> tuple[Any, Any]:
    """Functions from the core's class to its layout and back, written out once: a snapshot may have 10,000 tasks."""
    names = _names(kind, without)
    pack = ", ".join(f"pack_{nested[name]}(it.{name})" if name in nested else f"it.{name}" for name in names)
    unpack = ", ".join(
        f"{name}=unpack_{nested[name]}(it.{name})" if name in nested else f"{name}=it.{name}" for name in names
    )
    more = "".join(f", {name}={name}" for name in sorted(without & {"definition"}))
    arguments = "it" + "".join(f", {name}" for name in sorted(without & {"definition"}))
    scope: dict[str, Any] = {"layout": layout, "kind": kind} | _NESTED
    exec(f"def pack(it): return layout({pack})\ndef unpack({arguments}): return kind({unpack}{more})", scope)
    return scope["pack"], scope["unpack"]


_NESTED: dict[str, Any] = {}
_TaskLayout = _layout(TaskState, _NOT_IN_EVENTS, {})
_pack_task, _unpack_task = _packer(TaskState, _TaskLayout, _NOT_IN_EVENTS, {})
_TimerLayout = _layout(Timer, frozenset(), {})
_pack_timer, _unpack_timer = _packer(Timer, _TimerLayout, frozenset(), {})


def _each(function: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda values: {name: function(value) for name, value in values.items()}


_NESTED |= {
    "pack_tasks": _each(_pack_task),
    "unpack_tasks": _each(_unpack_task),
    "pack_timers": _each(_pack_timer),
    "unpack_timers": _each(_unpack_timer),
}
_WITHOUT_DEFINITION = frozenset({"definition"})
_NESTED_LAYOUTS: dict[str, Any] = {
    "tasks": dict.__class_getitem__((str, _TaskLayout)),
    "timers": dict.__class_getitem__((str, _TimerLayout)),
}
_StateLayout = _layout(State, _WITHOUT_DEFINITION, _NESTED_LAYOUTS)
_pack_state, _unpack_state = _packer(State, _StateLayout, _WITHOUT_DEFINITION, {"tasks": "tasks", "timers": "timers"})

_encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode
_decode = msgspec.msgpack.Decoder(_StateLayout).decode


def encode_state(state: State) -> bytes:
    return _encode(_pack_state(state))


def decode_state(body: bytes, definition: Definition) -> State:
    """Raises Corrupt where the bytes are not a state of the current shape. Renewals start at 0, with no expiry."""
    try:
        state: State = _unpack_state(_decode(body), definition)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"snapshot does not decode: {error}"[:500]) from error
    return state
