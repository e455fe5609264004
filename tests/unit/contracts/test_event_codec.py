from datetime import UTC, datetime
from uuid import UUID

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts.event_codec import decode_event, encode_event, event_id
from holdfast.contracts.upcasters import upcast
from holdfast.core.errors import Corrupt
from holdfast.core.events import EVENT_TYPES, Event, Outcome, TaskFailed, TaskScheduled, TimerScheduled
from holdfast.core.ids import NULL, InstanceId, Payload, TaskPath
from holdfast.core.inputs import Error
from tests.unit.contracts import shapes


@given(shapes.events)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    name, version = EVENT_TYPES[type(event)]
    encoded = encode_event(event)
    assert decode_event(name, version, encoded) == event
    assert decode_event(name, version, encoded.decode()) == event


@given(shapes.events)
def test_every_event_survives_what_jsonb_does_to_whitespace_and_order(event: Event) -> None:
    name, version = EVENT_TYPES[type(event)]
    spaced = orjson.dumps(orjson.loads(encode_event(event)), None, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
    assert orjson.loads(encode_event(decode_event(name, version, spaced))) == orjson.loads(encode_event(event))


@given(st.sampled_from([name for name, _ in EVENT_TYPES.values()]), st.integers(-1, 3), st.binary(max_size=60))
@example("TASK_STARTED", 1, b"[" * 100_000)
@example("TASK_COMPLETED", 0, b"[]")
@example("TASK_COMPLETED", 1, b'{"path":"a","attempt":1,"fence":1,"output":1,"more":2}')
@example("DEADLINE_EXCEEDED", 1, b'{"deadline_at":"2026-01-01T00:00:00"}')
@example("TASK_FAILED", 1, b'{"path":"a","attempt":1,"fence":1,"error":{"code":"x"},"final":true}')
def test_bytes_that_are_no_event_are_corrupt_and_nothing_else(name: str, version: int, payload: bytes) -> None:
    said = shapes.complaint(lambda: decode_event(name, version, payload))
    assert not said or name in said
    assert len(said) <= 500


def test_an_unknown_type_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="unknown event type 'TASK_EATEN'"):
        decode_event("TASK_EATEN", 1, b"{}")


def test_payloads_are_embedded_as_json_and_none_is_left_out() -> None:
    event = TaskScheduled(TaskPath("a"), 1, 2, "x.y", "x")
    assert encode_event(event) == b'{"path":"a","attempt":1,"fence":2,"activity":"x.y","queue":"x"}'
    with_input = TaskScheduled(TaskPath("a"), 1, 2, "x.y", "x", Payload(b'{"n":[1]}'))
    assert orjson.loads(encode_event(with_input))["input"] == {"n": [1]}


def test_a_payload_null_is_not_the_same_as_no_payload() -> None:
    event = TaskScheduled(TaskPath("a"), 1, 2, "x.y", "x", NULL)
    decoded = decode_event("TASK_SCHEDULED", 1, encode_event(event))
    assert isinstance(decoded, TaskScheduled)
    assert decoded.input == b"null"


def test_times_are_utc_and_enums_are_values() -> None:
    due = TimerScheduled("deadline", 1, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert orjson.loads(encode_event(due))["due_at"] == "2026-01-02T03:04:05Z"
    failed = TaskFailed(TaskPath("a"), 1, 2, Error("x", "y"), True, Outcome.UNKNOWN)
    assert orjson.loads(encode_event(failed))["outcome"] == "unknown"
    assert orjson.loads(encode_event(failed))["error"] == {"code": "x", "message": "y"}


def test_an_event_is_called_by_its_instance_and_sequence() -> None:
    assert event_id(InstanceId(UUID(int=1)), 7) == "00000000-0000-0000-0000-000000000001/7"


def test_an_upcaster_lifts_an_old_event_step_by_step() -> None:
    lifts = {
        ("TASK_SKIPPED", 1): lambda body: body | {"reason": "when"},
        ("TASK_SKIPPED", 2): lambda body: {"path": body["task"], "reason": body["reason"]},
    }
    assert upcast("TASK_SKIPPED", 1, 3, {"task": "a"}, lifts) == {"path": "a", "reason": "when"}
    assert upcast("TASK_SKIPPED", 3, 3, {"path": "a"}, lifts) == {"path": "a"}


def test_an_event_of_the_future_or_without_an_upcaster_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="a newer service wrote it"):
        upcast("TASK_SKIPPED", 4, 3, {})
    with pytest.raises(Corrupt, match="nothing lifts version 2"):
        upcast("TASK_SKIPPED", 2, 3, {})
    with pytest.raises(Corrupt, match="could not be lifted"):
        upcast("TASK_SKIPPED", 1, 2, {}, {("TASK_SKIPPED", 1): lambda body: body["gone"]})
