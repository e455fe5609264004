"""Every event has a line."""

from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from holdfast.cli.sentences import sentence, short, type_name
from holdfast.core import events as e
from holdfast.core.ids import Payload
from holdfast.core.inputs import Error

_VALUES: dict[Any, Any] = {
    str: "text",
    int: 3,
    bool: True,
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    Error: Error("code", "message"),
    Payload: Payload(b'{"a": 1}'),
    e.TaskPath: e.TaskPath("charge"),
}


def value_of(hint: Any) -> Any:
    if hint in _VALUES:
        return _VALUES[hint]
    if get_origin(hint) is tuple:
        return (value_of(get_args(hint)[0]),)
    return next(iter(hint)) if isinstance(hint, type) else value_of(get_args(hint)[0])


def made(kind: type[Any]) -> Any:
    hints = get_type_hints(kind)
    given = {}
    for field in fields(kind):
        if field.default is MISSING:
            hint = hints[field.name]
            given[field.name] = value_of(hint)
    return kind(**given)


@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=lambda kind: e.EVENT_TYPES[kind][0])
def test_every_event_can_be_shown(kind: type[Any]) -> None:
    event = made(kind)
    assert isinstance(sentence(event), str)
    assert type_name(event) == e.EVENT_TYPES[kind][0]


def test_a_failure_says_why_and_what_comes_next() -> None:
    told = sentence(e.TaskFailed(e.TaskPath("ship"), 2, 7, Error("no_carrier", "nobody ships it"), final=True))
    assert told == "ship attempt 2, fence 7: no_carrier: nobody ships it, for good"


def test_long_payloads_are_cut() -> None:
    assert len(short(Payload(b"x" * 1000))) == 100
