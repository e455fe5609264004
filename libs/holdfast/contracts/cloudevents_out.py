"""What happened, as CloudEvents in Kafka's binary mode: attributes in headers, the event's JSON as the value.

Several of these are made per step, so whatever repeats is made once: per type, per instance, per moment. The value is
the very bytes that Postgres keeps.

`sequence` follows the CloudEvents extension of that name, which wants a string whose lexical order is the order of the
events (`sequencetype` is gone from it since 1.0.1). So the number is padded to ten digits: it sorts as text and `int()`
reads it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import orjson

from holdfast.contracts.tracing import format_traceparent
from holdfast.core.events import EVENT_TYPES, Event, Recorded
from holdfast.core.ids import InstanceId, InstanceKey, instance_id, split_key

Headers: TypeAlias = list[tuple[str, bytes]]

OUTCOMES = ("accepted", "duplicate", "ignored", "refused")

_SPECVERSION = ("ce_specversion", b"1.0")
_JSON = ("content-type", b"application/json")
_FAMILIES_OF_TWO_WORDS = ("HUMAN_TASK",)
_instances_cached_max = 20_000


def event_type(name: str, version: int) -> str:
    """`TASK_TIMED_OUT`, 1 -> `io.holdfast.task.timed-out.v1`."""
    family = next((known for known in _FAMILIES_OF_TWO_WORDS if name.startswith(known)), name.split("_", 1)[0])
    rest = name.removeprefix(family).strip("_")
    return f"io.holdfast.{family}.{rest}.v{version}".lower().replace("_", "-")


_TYPE_HEADERS: Mapping[type[Event], tuple[str, bytes]] = {
    kind: ("ce_type", event_type(*named).encode()) for kind, named in EVENT_TYPES.items()
}


class _PerInstance:
    """The headers that are the same for all events of an instance."""

    __slots__ = ("id_prefix", "partitionkey", "source", "subject")

    def __init__(self, key: InstanceKey, identity: InstanceId) -> None:
        namespace, workflow, _ = split_key(key)
        encoded = key.encode()
        self.id_prefix = f"{identity}/".encode()
        self.source = ("ce_source", f"/holdfast/{namespace}/{workflow}".encode())
        self.subject = ("ce_subject", encoded)
        self.partitionkey = ("ce_partitionkey", encoded)


_instances: dict[InstanceKey, _PerInstance] = {}


def _per_instance(key: InstanceKey, identity: InstanceId) -> _PerInstance:
    found = _instances.get(key)
    if found is None:
        if len(_instances) >= _instances_cached_max:
            _instances.clear()  # Cheap to fill again, and simpler than knowing which ones are still of use.
        found = _instances[key] = _PerInstance(key, identity)
    return found


class _LastTime:
    """All events of one batch happened at the same moment, which is formatted once."""

    __slots__ = ("header", "moment")

    def __init__(self) -> None:
        self.moment: datetime | None = None
        self.header = ("ce_time", b"")

    def of(self, moment: datetime) -> tuple[str, bytes]:
        if moment is not self.moment:
            text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
            self.moment, self.header = moment, ("ce_time", text.encode())
        return self.header


_last_time = _LastTime()


def encode_event_message(
    key: InstanceKey, identity: InstanceId, recorded: Recorded, encoded_payload: bytes
) -> tuple[Headers, bytes]:
    """(headers, value) of one event. `encoded_payload` is what `encode_event` made for Postgres."""
    sequence, _, event, occurred_at, origin = recorded
    instance = _instances.get(key) or _per_instance(key, identity)
    headers = [
        _SPECVERSION,
        ("ce_id", b"%b%d" % (instance.id_prefix, sequence)),
        instance.source,
        _TYPE_HEADERS[event.__class__],
        instance.subject,
        _last_time.of(occurred_at),
        ("ce_sequence", b"%010d" % sequence),
        instance.partitionkey,
        _JSON,
    ]
    if origin.trace_id is not None:
        _add_trace(headers, origin.trace_id, origin.span_id)
    return headers, encoded_payload


def _add_trace(headers: Headers, trace_id: str | None, span_id: str | None) -> None:
    traceparent = format_traceparent(trace_id, span_id)
    if traceparent is not None:
        encoded = traceparent.encode()
        headers += (("ce_traceparent", encoded), ("traceparent", encoded))


def encode_outcome_message(
    key: InstanceKey,
    *,
    outcome: str,
    reason: str,
    detail: str = "",
    command_type: str,
    command_source: str,
    command_id: str,
    delivery: str,
    at: datetime,
    trace_id: str | None = None,
    span_id: str | None = None,
) -> tuple[Headers, bytes]:
    """What became of one command. `delivery` (`topic/partition/offset`) makes its id: a command that is sent twice has
    two outcomes. It has no `sequence`, because it is no event of the instance."""
    if outcome not in OUTCOMES:
        raise ValueError(f"unknown outcome {outcome!r}")
    instance = _per_instance(key, instance_id(key))
    headers = [
        _SPECVERSION,
        ("ce_id", instance.id_prefix + b"command/" + delivery.encode()),
        instance.source,
        ("ce_type", f"io.holdfast.command.{outcome}.v1".encode()),
        instance.subject,
        _last_time.of(at),
        instance.partitionkey,
        _JSON,
    ]
    _add_trace(headers, trace_id, span_id)
    body = {
        "outcome": outcome,
        "reason": reason,
        "detail": detail,
        "command": {"source": command_source, "id": command_id, "type": command_type},
    }
    return headers, orjson.dumps(body)
