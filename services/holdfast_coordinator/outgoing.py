"""What a commit sends: one frame per partition, made of CloudEvents, dispatches, cancellations and outcomes."""

from holdfast.contracts.cloudevents_out import encode_event_message, encode_outcome_message
from holdfast.contracts.frame import FramedMessage
from holdfast.contracts.messages import encode_cancellation, encode_task
from holdfast.contracts.topics import CANCELLATIONS, EVENTS, task_topic
from holdfast.contracts.tracing import parse_traceparent
from holdfast.core import events as e
from holdfast.core.changes import Changes, Dispatch
from holdfast.core.definition import Publish
from holdfast.core.ids import idempotency_key
from holdfast.store.pack import payloads_of
from holdfast.store.rows import CommandRow

_LIFECYCLE = (
    e.WorkflowCreated,
    e.WorkflowStarted,
    e.WorkflowCompleting,
    e.WorkflowCompleted,
    e.WorkflowFailing,
    e.WorkflowFailed,
    e.WorkflowCancelled,
    e.DeadlineExceeded,
    e.CompensationTriggered,
    e.CompensationCompleted,
    e.CompensationFailed,
    e.CompensationResumed,
)


def messages_of(changes: Changes, publish: Publish) -> list[FramedMessage]:
    row = changes.row
    key = row.key.encode()
    messages: list[FramedMessage] = []
    for recorded, payload in zip(changes.events, payloads_of(changes), strict=True):
        if publish is Publish.ALL or isinstance(recorded.event, _LIFECYCLE):
            headers, value = encode_event_message(row.key, row.instance_id, recorded, payload)
            messages.append((EVENTS, key, value, headers))
    for message in changes.messages:
        if isinstance(message, Dispatch):
            messages.append(_dispatch(message, key))
        else:
            messages.append((CANCELLATIONS, key, encode_cancellation(message), ()))
    return messages


def _dispatch(dispatch: Dispatch, key: bytes) -> FramedMessage:
    spread = idempotency_key(dispatch.instance_id, dispatch.execution, dispatch.path, dispatch.attempt)
    # Recovery tells a lost dispatch from a backlog by these two, without decoding anything.
    headers = [("hf_instance", key), ("hf_fence", b"%d" % dispatch.fence)]
    return task_topic(dispatch.queue), spread.encode(), encode_task(dispatch), headers


def outcome_message(row: CommandRow, reason: str, detail: str, delivery: str, traceparent: str | None) -> FramedMessage:
    trace_id, span_id = parse_traceparent(traceparent)
    headers, value = encode_outcome_message(
        row.instance,
        outcome=row.outcome,
        reason=reason,
        detail=detail,
        command_type=row.type,
        command_source=row.key.source,
        command_id=row.key.id,
        delivery=delivery,
        at=row.received_at,
        trace_id=trace_id,
        span_id=span_id,
    )
    return EVENTS, row.instance.encode(), value, headers
