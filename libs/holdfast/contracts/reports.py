"""What workers say, to and from Avro. Reading a completion is the hottest decode of the coordinator.

So a completion carries nothing but what it needs (`detail` is null), the texts are checked with two searches instead of
one by one, and only records that look unusual are examined closely.
"""

from typing import Any

from holdfast.contracts.avro import REPORT
from holdfast.contracts.limits import check_payload, check_text, storable_text
from holdfast.contracts.tracing import format_traceparent, parse_traceparent
from holdfast.core.errors import Corrupt, Refused
from holdfast.core.ids import InstanceKey, Payload, TaskPath
from holdfast.core.inputs import (
    ActorType,
    Error,
    HandBackReason,
    Origin,
    Report,
    TaskHandBack,
    TaskHeartbeat,
    TaskReportedCancelled,
    TaskReportedCompleted,
    TaskReportedFailed,
    TaskReportedStarted,
)

_key_bytes_max = 767  # namespace, workflow and run id of 255 bytes each, and two slashes
_message_chars_max = 10_000


def encode_report(report: Report) -> bytes:
    """An error's texts may hold anything: what cannot be stored is replaced, for it is no reason to lose a report."""
    origin = report.origin
    record: dict[str, Any] = {
        "instance": report.instance,
        "execution": report.execution,
        "path": report.path,
        "fence": report.fence,
        "holder": report.holder,
        "payload": None,
        "traceparent": format_traceparent(origin.trace_id, origin.span_id),
        "detail": None,
    }
    match report:
        case TaskReportedCompleted():
            record["kind"] = "completed"
            record["payload"] = report.output
        case TaskReportedStarted():
            record["kind"] = "started"
            record["detail"] = _detail(address=report.address)
        case TaskHeartbeat():
            record["kind"] = "heartbeat"
            record["payload"] = report.details
            record["detail"] = _detail(address=report.address)
        case TaskReportedFailed():
            record["kind"] = "failed"
            record["payload"] = report.error.details
            record["detail"] = _detail(
                code=storable_text(report.error.code, chars_max=100),
                message=storable_text(report.error.message, chars_max=_message_chars_max),
                retryable=report.retryable,
                delay_s=report.retry_in_s,
            )
        case TaskReportedCancelled():
            record["kind"] = "cancelled"
            record["detail"] = _detail(ran=report.ran)
        case TaskHandBack():
            record["kind"] = "handed_back"
            record["detail"] = _detail(code=report.reason.value, delay_s=report.delay_s)
    return REPORT.encode(record)


_NO_DETAIL: dict[str, Any] = {
    "address": "",
    "code": "",
    "message": "",
    "retryable": True,
    "ran": True,
    "delay_s": None,
}


def _detail(**given: Any) -> dict[str, Any]:
    return _NO_DETAIL | given


def decode_report(value: bytes, cause: str) -> Report:
    """`cause` is what the report is called from now on: `topic/partition/offset`. Raises Corrupt and nothing else."""
    record = REPORT.decode(value)
    payload = record["payload"]
    holder = record["holder"]
    instance = record["instance"]
    path = record["path"]
    try:
        if not (f"{path}{holder}{instance}".isprintable() and holder and path and len(path) < 60 and len(holder) < 60):
            _check_texts(path, holder, instance)
        if instance.count("/") < 2 or len(instance) > 190:
            check_key(instance, "report")
        if payload is not None:
            check_payload(payload, "payload")
        if record["traceparent"] is None:
            origin = Origin(ActorType.WORKER, holder, cause)
        else:
            origin = Origin(ActorType.WORKER, holder, cause, *parse_traceparent(record["traceparent"]))
        if record["kind"] == "completed":
            if payload is None:
                raise Corrupt("report: a completion without a payload")
            return TaskReportedCompleted(instance, origin, path, record["execution"], record["fence"], holder, payload)
        return _less_common(record, origin)
    except (Refused, ValueError) as error:
        raise Corrupt(f"report: {error}"[:300]) from error


def _check_texts(path: str, holder: str, instance: str) -> None:
    """Printable text of usual length was let through; this is for the rest (long names, spaces of all kinds, NUL)."""
    check_text(path, "path", bytes_max=1_000)
    check_text(holder, "holder")
    check_key(instance, "report")


def check_key(instance: str, what: str) -> None:
    """Raises Corrupt or Refused where this cannot be the key of an instance; not as strict as at the edge."""
    check_text(instance, "instance", bytes_max=_key_bytes_max)
    if instance.count("/") < 2:
        raise Corrupt(f"{what}: instance {instance[:80]!r} is not namespace/workflow/run_id")


def _less_common(record: dict[str, Any], origin: Origin) -> Report:
    detail = record["detail"] or _NO_DETAIL
    instance, path = InstanceKey(record["instance"]), TaskPath(record["path"])
    execution, fence, holder = record["execution"], record["fence"], record["holder"]
    payload = None if record["payload"] is None else Payload(record["payload"])
    match record["kind"]:
        case "started":
            return TaskReportedStarted(instance, origin, path, execution, fence, holder, _address(detail))
        case "heartbeat":
            return TaskHeartbeat(instance, origin, path, execution, fence, holder, _address(detail), payload)
        case "failed":
            error = _error(detail, payload)
            return TaskReportedFailed(
                instance, origin, path, execution, fence, holder, error, detail["retryable"], _delay(detail)
            )
        case "cancelled":
            return TaskReportedCancelled(instance, origin, path, execution, fence, holder, detail["ran"])
        case "handed_back":
            reason = HandBackReason(detail["code"])
            return TaskHandBack(instance, origin, path, execution, fence, holder, reason, _delay(detail))
        case kind:
            raise Corrupt(f"report: unknown kind {kind[:80]!r}: a newer worker wrote it")


def _address(detail: dict[str, Any]) -> str:
    address: str = detail["address"]
    return check_text(address, "address") if address else ""


def _error(detail: dict[str, Any], payload: Payload | None) -> Error:
    code, message = detail["code"] or "error", detail["message"]
    check_text(code, "error code", bytes_max=400)
    if len(message) > _message_chars_max or "\0" in message:
        raise Corrupt(f"report: the error message has {len(message)} characters or contains NUL")
    return Error(code, message, payload)


def _delay(detail: dict[str, Any]) -> float | None:
    delay_s: float | None = detail["delay_s"]
    if delay_s is not None and not 0 <= delay_s <= 365 * 86_400:
        raise Corrupt(f"report: a delay of {delay_s} seconds")
    return delay_s
