"""Tasks, ticks and cancellations: the records of the inside, as core types. Reports have a module of their own.

Everything decoded here is checked once: whole records, known kinds, texts that Postgres can store, payloads that are
JSON. What fails is Corrupt. Trace ids travel inside the record, because headers cost more than the record does.
"""

from typing import Any
from uuid import UUID

from holdfast.contracts.avro import CANCELLATION, TASK, TICK
from holdfast.contracts.limits import check_text
from holdfast.contracts.reports import check_key, decode_report, encode_report
from holdfast.contracts.tracing import format_traceparent, parse_traceparent
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.errors import Corrupt, Refused
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath
from holdfast.core.inputs import ActorType, DispatchLost, LapseKind, LeaseExpired, Origin, Tick, TimerDue

__all__ = [
    "decode_cancellation",
    "decode_report",
    "decode_task",
    "decode_tick",
    "encode_cancellation",
    "encode_report",
    "encode_task",
    "encode_tick",
]


def encode_task(dispatch: Dispatch) -> bytes:
    return TASK.encode(
        {
            "instance": dispatch.instance,
            "instance_id": dispatch.instance_id.bytes,
            "execution": dispatch.execution,
            "path": dispatch.path,
            "attempt": dispatch.attempt,
            "fence": dispatch.fence,
            "activity": dispatch.activity,
            "queue": dispatch.queue,
            "input": dispatch.input,
            "lease_s": dispatch.lease_s,
            "timeout_s": dispatch.timeout_s,
            "traceparent": format_traceparent(dispatch.trace_id, dispatch.span_id),
        }
    )


def decode_task(value: bytes) -> Dispatch:
    """For workers. The input was checked when it came in and is not checked again."""
    record = TASK.decode(value)
    trace_id, span_id = parse_traceparent(record["traceparent"])
    return Dispatch(
        InstanceKey(record["instance"]),
        InstanceId(UUID(bytes=record["instance_id"])),
        record["execution"],
        TaskPath(record["path"]),
        record["attempt"],
        record["fence"],
        record["activity"],
        record["queue"],
        Payload(record["input"]),
        record["lease_s"],
        record["timeout_s"],
        trace_id,
        span_id,
    )


def encode_tick(tick: Tick) -> bytes:
    record: dict[str, Any] = {"instance": tick.instance, "sender": tick.origin.actor_id}
    match tick:
        case TimerDue():
            record |= {"kind": "timer_due", "timer": tick.key, "token": tick.token, "due_at": tick.due_at}
        case LeaseExpired():
            record |= {"kind": "lease_expired", "path": tick.path, "fence": tick.fence}
            record |= {"renewals": tick.renewals, "lapse": tick.kind.value}
        case DispatchLost():
            record |= {"kind": "dispatch_lost", "path": tick.path, "fence": tick.fence}
    return TICK.encode(record)


def decode_tick(value: bytes, cause: str) -> Tick:
    """`cause` is what the tick is called from now on: `topic/partition/offset`."""
    record = TICK.decode(value)
    kind = record["kind"]
    if kind not in ("timer_due", "lease_expired", "dispatch_lost"):
        raise Corrupt(f"tick: unknown kind {kind[:80]!r}: a newer service wrote it")
    instance = InstanceKey(record["instance"])
    try:
        check_key(instance, "tick")
        origin = Origin(ActorType.RECOVERY, check_text(record["sender"], "sender"), cause)
        if kind == "timer_due":
            timer = check_text(record["timer"] or "", "timer", bytes_max=1_000)
            return TimerDue(instance, origin, timer, record["token"], record["due_at"])
        path = TaskPath(check_text(record["path"] or "", "path", bytes_max=1_000))
        if kind == "lease_expired":
            lapse = LapseKind(record["lapse"] or LapseKind.LEASE)
            return LeaseExpired(instance, origin, path, record["fence"], record["renewals"], lapse)
        return DispatchLost(instance, origin, path, record["fence"])
    except (Refused, ValueError) as error:
        raise Corrupt(f"tick: {error}"[:300]) from error


def encode_cancellation(cancellation: Cancellation) -> bytes:
    return CANCELLATION.encode(
        {
            "instance": cancellation.instance,
            "execution": cancellation.execution,
            "path": cancellation.path,
            "fence": cancellation.fence,
            "holder": cancellation.holder,
            "reason": cancellation.reason,
        }
    )


def decode_cancellation(value: bytes) -> Cancellation:
    record = CANCELLATION.decode(value)
    return Cancellation(
        InstanceKey(record["instance"]),
        record["execution"],
        TaskPath(record["path"]),
        record["fence"],
        record["holder"],
        record["reason"],
    )
