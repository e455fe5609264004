"""Hypothesis strategies for the core's types, made from their own type hints: a new field is tested without a word."""

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import orjson
from hypothesis import strategies as st

from holdfast.core.errors import Corrupt, Refused
from holdfast.core.events import EVENT_TYPES
from holdfast.core.ids import InstanceKey, Payload, TaskPath
from holdfast.core.inputs import Error, Origin

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('abcdeE019.-+\\"é😀', max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)
payloads = _json.map(lambda value: Payload(orjson.dumps(value)))
moments = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
keys = st.builds(lambda run: InstanceKey(f"orders/fulfil/{run}"), texts)
numbers = st.integers(0, 2**31 - 1)
traces = st.sampled_from([(None, None), ("a" * 31 + "1", "b" * 16)])

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    Payload: payloads,
    TaskPath: texts,
    InstanceKey: keys,
    str: texts,
    int: numbers,
    bool: st.booleans(),
    float: st.floats(0, 86_400),
    datetime: moments,
    UUID: st.uuids(),
    bytes: payloads,
}


def of(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for a type hint of the core."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) in (UnionType, Union):
        return st.one_of(*(of(kind) for kind in get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(of(get_args(hint)[0]), max_size=3).map(tuple)
    if hint is type(None):
        return st.none()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if hasattr(hint, "__supertype__"):
        return of(hint.__supertype__)
    return instances(hint)


def instances(kind: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances of a dataclass with every field drawn, defaults too."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.init]
    return st.builds(kind, **{name: given[name] if name in given else of(hints[name]) for name in names})


def origins(actor: Any, actor_ids: st.SearchStrategy[str] = texts) -> st.SearchStrategy[Origin]:
    return st.builds(lambda who, trace: Origin(actor, who, "t/0/1", *trace), actor_ids, traces)


def complaint(call: Callable[[], object]) -> str:
    """What a decoder says to bytes that nobody made on purpose: Corrupt or Refused, or nothing; all else is raised."""
    try:
        call()
    except (Corrupt, Refused) as error:
        return str(error)
    return ""


events = st.one_of(*(instances(kind) for kind in EVENT_TYPES))
errors = instances(Error)
