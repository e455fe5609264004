"""What we publish is read here by the `cloudevents` package, as a user's service would."""

from datetime import UTC, datetime
from uuid import UUID

import orjson
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from hypothesis import given

from holdfast.contracts.cloudevents_out import OUTCOMES, encode_event_message, encode_outcome_message, event_type
from holdfast.contracts.event_codec import encode_event
from holdfast.core.events import EVENT_TYPES, Event, Recorded, WorkflowStarted
from holdfast.core.ids import InstanceKey, instance_id
from holdfast.core.inputs import ActorType, Origin
from tests.unit.contracts import shapes

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
_ORIGIN = Origin(ActorType.CLIENT, "/shop", "/shop#c-1", "a" * 32, "b" * 16)


@given(shapes.keys, shapes.events, shapes.numbers)
def test_the_cloudevents_package_reads_every_event(key: InstanceKey, event: Event, sequence: int) -> None:
    payload = encode_event(event)
    recorded = Recorded(sequence, 1, event, _NOW, _ORIGIN)
    headers, value = encode_event_message(key, instance_id(key), recorded, payload)
    assert value is payload
    read = from_kafka_event(KafkaMessage(dict(headers), key.encode(), value))
    assert read.get_id() == f"{instance_id(key)}/{sequence}"
    assert read.get_type() == event_type(*EVENT_TYPES[type(event)])
    assert read.get_source() == "/holdfast/orders/fulfil"
    assert read.get_subject() == key
    assert read.get_time() == _NOW
    assert read.get_datacontenttype() == "application/json"
    assert int(read.get_extension("sequence")) == sequence
    assert read.get_extension("traceparent") == f"00-{'a' * 32}-{'b' * 16}-01"
    assert read.get_extension("partitionkey") == key
    assert read.get_data() == orjson.loads(payload)


def test_every_type_has_a_name_of_its_own() -> None:
    names = {event_type(*named) for named in EVENT_TYPES.values()}
    assert len(names) == len(EVENT_TYPES)
    assert {"io.holdfast.workflow.created.v1", "io.holdfast.task.timed-out.v1", "io.holdfast.lease.expired.v1"} <= names
    assert event_type("HUMAN_TASK_CLAIMED", 2) == "io.holdfast.human-task.claimed.v2"


def test_sequences_sort_as_text_in_the_order_of_the_numbers() -> None:
    key = InstanceKey("orders/fulfil/1")

    def sequence(number: int) -> bytes:
        recorded = Recorded(number, 1, WorkflowStarted(), _NOW, _ORIGIN)
        return dict(encode_event_message(key, instance_id(key), recorded, b"{}")[0])["ce_sequence"]

    assert sequence(9) < sequence(10) < sequence(99_999)


def test_an_event_without_a_trace_has_no_traceparent() -> None:
    key = InstanceKey("orders/fulfil/1")
    recorded = Recorded(1, 1, WorkflowStarted(), _NOW, Origin(ActorType.SYSTEM, "", ""))
    headers, _ = encode_event_message(key, instance_id(key), recorded, b"{}")
    assert not [name for name, _ in headers if "traceparent" in name]


def test_the_moment_is_not_taken_from_the_event_before() -> None:
    key, later = InstanceKey("orders/fulfil/1"), datetime(2027, 1, 1, tzinfo=UTC)
    times = [
        dict(encode_event_message(key, instance_id(key), Recorded(1, 1, WorkflowStarted(), at, _ORIGIN), b"{}")[0])
        for at in (_NOW, later, _NOW)
    ]
    assert [told["ce_time"] for told in times] == [
        b"2026-01-02T03:04:05.000678Z",
        b"2027-01-01T00:00:00Z",
        b"2026-01-02T03:04:05.000678Z",
    ]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_cloudevents_package_reads_every_outcome(outcome: str) -> None:
    key = InstanceKey("orders/fulfil/1")
    headers, value = encode_outcome_message(
        key,
        outcome=outcome,
        reason="finished",
        detail="it has ended",
        command_type="io.holdfast.command.cancel.v1",
        command_source="/shop",
        command_id="c-1",
        delivery="holdfast.commands/0/7",
        at=_NOW,
        trace_id="a" * 32,
        span_id="b" * 16,
    )
    read = from_kafka_event(KafkaMessage(dict(headers), key.encode(), value))
    assert read.get_type() == f"io.holdfast.command.{outcome}.v1"
    assert read.get_id() == f"{instance_id(key)}/command/holdfast.commands/0/7"
    assert read.get_extension("sequence") is None
    assert read.get_data() == {
        "outcome": outcome,
        "reason": "finished",
        "detail": "it has ended",
        "command": {"source": "/shop", "id": "c-1", "type": "io.holdfast.command.cancel.v1"},
    }


def test_an_outcome_that_does_not_exist_is_a_bug() -> None:
    with pytest.raises(ValueError, match="unknown outcome"):
        encode_outcome_message(
            InstanceKey("a/b/c"),
            outcome="eaten",
            reason="",
            command_type="",
            command_source="",
            command_id="",
            delivery="",
            at=_NOW,
        )


def test_the_instance_id_is_the_one_given() -> None:
    key = InstanceKey("orders/fulfil/another")
    recorded = Recorded(3, 1, WorkflowStarted(), _NOW, _ORIGIN)
    headers, _ = encode_event_message(key, instance_id(key), recorded, b"{}")
    assert UUID(dict(headers)["ce_id"].decode().split("/")[0]) == instance_id(key)
