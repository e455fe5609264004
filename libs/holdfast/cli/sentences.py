"""One line for each event, as `holdfast events`, `watch` and the demo show it."""

from collections.abc import Callable
from typing import Any

from holdfast.core import events as e
from holdfast.core.ids import Payload

_PAYLOAD_CHARS_MAX = 100


def sentence(event: e.Event) -> str:
    """What happened, without its type: `charge attempt 2, fence 5, to payment`."""
    return _SENTENCES.get(type(event), _bare)(event)


def type_name(event: e.Event) -> str:
    return e.EVENT_TYPES[type(event)][0]


def short(payload: Payload | None) -> str:
    text = "" if payload is None else payload.decode(errors="replace")
    return text if len(text) <= _PAYLOAD_CHARS_MAX else f"{text[: _PAYLOAD_CHARS_MAX - 1]}…"


def _bare(event: Any) -> str:
    return ""


def _attempt(event: Any) -> str:
    return f"{event.path} attempt {event.attempt}, fence {event.fence}"


def _failed(event: Any) -> str:
    end = ", for good" if event.final else ", will be tried again"
    unknown = ", outcome unknown" if event.outcome is e.Outcome.UNKNOWN else ""
    return f"{_attempt(event)}: {event.error.code}: {event.error.message}{unknown}{end}"


_SENTENCES: dict[type[Any], Callable[[Any], str]] = {
    e.WorkflowCreated: lambda x: f"version {x.version}, input {short(x.input)}",
    e.WorkflowCompleting: lambda x: f"output {short(x.output)}",
    e.WorkflowFailing: lambda x: f"{x.path or x.actor or x.cause}: {x.error.code}: {x.error.message}",
    e.WorkflowFailed: lambda x: f"{x.error.code}: {x.error.message}",
    e.WorkflowCancelled: lambda x: x.reason,
    e.DeadlineExceeded: lambda x: f"it was {x.deadline_at.isoformat()}",
    e.TaskScheduled: lambda x: f"{_attempt(x)}, {x.activity} on queue {x.queue}",
    e.TaskStarted: lambda x: f"{_attempt(x)}, by {x.holder} at {x.address}" if x.holder else f"{x.path}",
    e.TaskCompleted: lambda x: f"{_attempt(x)}, output {short(x.output)}",
    e.TaskFailed: _failed,
    e.TaskTimedOut: _failed,
    e.TaskHandedBack: lambda x: f"{_attempt(x)}: {x.reason}",
    e.TaskDispatchLost: _attempt,
    e.TaskStopRequested: lambda x: f"{_attempt(x)}: {x.reason}",
    e.TaskCancelled: lambda x: f"{_attempt(x)}, outcome {x.outcome}: {x.reason}",
    e.TaskSkipped: lambda x: f"{x.path}: {x.reason}",
    e.LeaseLapsed: lambda x: f"{_attempt(x)}: {x.kind} of {x.holder} after {x.renewals} renewals",
    e.ReportRejected: lambda x: f"{x.path}: `{x.report}` of {x.holder} with fence {x.fence}: {x.reason}",
    e.TimerScheduled: lambda x: f"{x.key} due {x.due_at.isoformat()}",
    e.TimerFired: lambda x: x.key,
    e.TimerCancelled: lambda x: x.key,
    e.CompensationTriggered: lambda x: f"by {x.cause}; undoes {', '.join(x.plan)}",
    e.CompensationFailed: lambda x: f"{x.path}: {x.error.code}: {x.error.message}; left: {', '.join(x.left)}",
    e.CompensationResumed: lambda x: x.reason,
}
