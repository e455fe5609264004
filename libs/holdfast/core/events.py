"""Events tell: immutable facts, the only thing that `decide` returns.

The class is the event; its wire name (`TASK_SCHEDULED`) and schema version are in `EVENT_TYPES`. Old events are read
forever: a change of shape is a new version here and an upcaster in `holdfast.contracts.upcasters`, never an edit.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from holdfast.core.ids import Payload, TaskPath
from holdfast.core.inputs import Error, HandBackReason, LapseKind, Origin


class Outcome(StrEnum):
    """What is known of the effect of an attempt that did not complete."""

    NOT_RUN = "not_run"
    FAILED = "failed"
    UNKNOWN = "unknown"


class FailureCause(StrEnum):
    TASK = "task"
    DEADLINE = "deadline"
    OUTPUT = "output"  # the workflow's output expression
    CANCELLED = "cancelled"
    LIMIT = "limit"


# --- the workflow


@dataclass(frozen=True, slots=True)
class WorkflowCreated:
    namespace: str
    workflow: str
    version: int
    run_id: str
    input: Payload
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class WorkflowStarted:
    pass


@dataclass(frozen=True, slots=True)
class WorkflowCompleting:
    output: Payload


@dataclass(frozen=True, slots=True)
class WorkflowCompleted:
    pass


@dataclass(frozen=True, slots=True)
class WorkflowFailing:
    cause: FailureCause
    error: Error
    path: TaskPath | None = None  # the task that caused it, if one did
    actor: str | None = None  # the person who asked for it, if one did


@dataclass(frozen=True, slots=True)
class WorkflowFailed:
    error: Error


@dataclass(frozen=True, slots=True)
class WorkflowCancelled:
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlineExceeded:
    deadline_at: datetime


# --- tasks


@dataclass(frozen=True, slots=True)
class TaskScheduled:
    path: TaskPath
    attempt: int
    fence: int
    activity: str
    queue: str
    input: Payload | None = None  # None: the workflow's input, so that it is not stored once per task


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A worker said so, and its lease begins; for a sleep the timer takes the place of both (fence 0, no holder)."""

    path: TaskPath
    attempt: int
    fence: int
    holder: str | None = None
    address: str = ""
    expires_at: datetime | None = None
    timeout_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TaskCompleted:
    path: TaskPath
    attempt: int
    fence: int
    output: Payload


@dataclass(frozen=True, slots=True)
class TaskFailed:
    path: TaskPath
    attempt: int
    fence: int
    error: Error
    final: bool  # no attempt is left, or the error is not to be retried
    outcome: Outcome = Outcome.FAILED


@dataclass(frozen=True, slots=True)
class TaskTimedOut:
    path: TaskPath
    attempt: int
    fence: int
    error: Error
    final: bool
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class TaskHandedBack:
    path: TaskPath
    attempt: int
    fence: int
    reason: HandBackReason
    since: datetime  # the first hand-back in a row for this reason
    count: int = 1  # how many in a row


@dataclass(frozen=True, slots=True)
class TaskDispatchLost:
    path: TaskPath
    attempt: int
    fence: int


@dataclass(frozen=True, slots=True)
class TaskStopRequested:
    """The task was told to stop; its result still counts."""

    path: TaskPath
    attempt: int
    fence: int
    holder: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class TaskCancelled:
    path: TaskPath
    attempt: int
    fence: int
    outcome: Outcome
    reason: str = ""
    tell: bool = False  # somebody may be running it, or about to: a cancellation goes out


@dataclass(frozen=True, slots=True)
class TaskSkipped:
    path: TaskPath
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLapsed:
    """LEASE_EXPIRED: the holder lost the task; it is told so by name."""

    path: TaskPath
    attempt: int
    fence: int
    holder: str | None
    renewals: int
    kind: LapseKind


@dataclass(frozen=True, slots=True)
class ReportRejected:
    path: TaskPath
    fence: int
    holder: str
    report: str
    reason: str
    tell: bool = False  # the sender believes that it holds the task: it is told by name to stop


# --- timers


@dataclass(frozen=True, slots=True)
class TimerScheduled:
    key: str  # `deadline`, `drain`, `start`, `sleep:<path>`, `retry:<path>`, `queue:<path>`
    token: int
    due_at: datetime


@dataclass(frozen=True, slots=True)
class TimerFired:
    key: str
    token: int


@dataclass(frozen=True, slots=True)
class TimerCancelled:
    key: str
    token: int


# --- compensation


@dataclass(frozen=True, slots=True)
class CompensationTriggered:
    cause: str  # the task or person that caused it
    plan: tuple[TaskPath, ...]  # the tasks to undo, in the order in which they are undone


@dataclass(frozen=True, slots=True)
class CompensationCompleted:
    pass


@dataclass(frozen=True, slots=True)
class CompensationFailed:
    path: TaskPath  # the compensation that failed for good
    error: Error
    left: tuple[TaskPath, ...]  # the tasks that are still to be undone


@dataclass(frozen=True, slots=True)
class CompensationResumed:
    reason: str


Event = (
    WorkflowCreated
    | WorkflowStarted
    | WorkflowCompleting
    | WorkflowCompleted
    | WorkflowFailing
    | WorkflowFailed
    | WorkflowCancelled
    | DeadlineExceeded
    | TaskScheduled
    | TaskStarted
    | TaskCompleted
    | TaskFailed
    | TaskTimedOut
    | TaskHandedBack
    | TaskDispatchLost
    | TaskStopRequested
    | TaskCancelled
    | TaskSkipped
    | LeaseLapsed
    | ReportRejected
    | TimerScheduled
    | TimerFired
    | TimerCancelled
    | CompensationTriggered
    | CompensationCompleted
    | CompensationFailed
    | CompensationResumed
)

EVENT_TYPES: dict[type[Event], tuple[str, int]] = {
    WorkflowCreated: ("WORKFLOW_CREATED", 1),
    WorkflowStarted: ("WORKFLOW_STARTED", 1),
    WorkflowCompleting: ("WORKFLOW_COMPLETING", 1),
    WorkflowCompleted: ("WORKFLOW_COMPLETED", 1),
    WorkflowFailing: ("WORKFLOW_FAILING", 1),
    WorkflowFailed: ("WORKFLOW_FAILED", 1),
    WorkflowCancelled: ("WORKFLOW_CANCELLED", 1),
    DeadlineExceeded: ("DEADLINE_EXCEEDED", 1),
    TaskScheduled: ("TASK_SCHEDULED", 1),
    TaskStarted: ("TASK_STARTED", 1),
    TaskCompleted: ("TASK_COMPLETED", 1),
    TaskFailed: ("TASK_FAILED", 1),
    TaskTimedOut: ("TASK_TIMED_OUT", 1),
    TaskHandedBack: ("TASK_HANDED_BACK", 1),
    TaskDispatchLost: ("TASK_DISPATCH_LOST", 1),
    TaskStopRequested: ("TASK_STOP_REQUESTED", 1),
    TaskCancelled: ("TASK_CANCELLED", 1),
    TaskSkipped: ("TASK_SKIPPED", 1),
    LeaseLapsed: ("LEASE_EXPIRED", 1),
    ReportRejected: ("REPORT_REJECTED", 1),
    TimerScheduled: ("TIMER_SCHEDULED", 1),
    TimerFired: ("TIMER_FIRED", 1),
    TimerCancelled: ("TIMER_CANCELLED", 1),
    CompensationTriggered: ("COMPENSATION_TRIGGERED", 1),
    CompensationCompleted: ("COMPENSATION_COMPLETED", 1),
    CompensationFailed: ("COMPENSATION_FAILED", 1),
    CompensationResumed: ("COMPENSATION_RESUMED", 1),
}


class Recorded(NamedTuple):
    """An event with its place in history. Its id is `<instance id>/<sequence>`, so no index has to keep it unique."""

    sequence: int
    execution: int
    event: Event
    occurred_at: datetime
    origin: Origin
