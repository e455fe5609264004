"""Inputs ask: everything the coordinator consumes, decoded. A command, a report or a tick."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.core.ids import InstanceKey, Payload, TaskPath


class ActorType(StrEnum):
    CLIENT = "CLIENT"
    WORKER = "WORKER"
    SYSTEM = "SYSTEM"
    RECOVERY = "RECOVERY"
    USER = "USER"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sent an input and what it is called: copied into every event that it leads to."""

    actor_type: ActorType
    actor_id: str
    cause: str  # the CloudEvent's `source#id`, or `topic/partition/offset`
    trace_id: str | None = None
    span_id: str | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """Why something failed: a code for machines, a message for people, details for both."""

    code: str
    message: str
    details: Payload | None = None


class LapseKind(StrEnum):
    LEASE = "lease"  # no heartbeat for a whole lease
    TIMEOUT = "timeout"  # the attempt ran longer than its time-out


class HandBackReason(StrEnum):
    NO_HANDLER = "no_handler"
    DRAINING = "draining"
    RETRY_LATER = "retry_later"


@dataclass(frozen=True, slots=True)
class StartWorkflow:
    instance: InstanceKey
    origin: Origin
    input: Payload
    version: int | None = None  # None: the newest; the shell resolves it before deciding
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CancelWorkflow:
    instance: InstanceKey
    origin: Origin
    reason: str = ""
    compensate: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class ResumeWorkflow:
    """Goes on after COMPENSATION_FAILED: the compensation that failed gets fresh attempts."""

    instance: InstanceKey
    origin: Origin
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TaskReportedStarted:
    instance: InstanceKey
    origin: Origin
    path: TaskPath
    execution: int
    fence: int
    holder: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class TaskHeartbeat:
    instance: InstanceKey
    origin: Origin
    path: TaskPath
    execution: int
    fence: int
    holder: str
    address: str = ""
    details: Payload | None = None


@dataclass(frozen=True, slots=True)
class TaskReportedCompleted:
    instance: InstanceKey
    origin: Origin
    path: TaskPath
    execution: int
    fence: int
    holder: str
    output: Payload


@dataclass(frozen=True, slots=True)
class TaskReportedFailed:
    instance: InstanceKey
    origin: Origin
    path: TaskPath
    execution: int
    fence: int
    holder: str
    error: Error
    retryable: bool = True
    retry_in_s: float | None = None  # RetryLater(count=True): overrides the policy's delay


@dataclass(frozen=True, slots=True)
class TaskReportedCancelled:
    """The worker obeyed a cancellation. `ran` is False when the dispatch was dropped before it ran."""

    instance: InstanceKey
    origin: Origin
    path: TaskPath
    execution: int
    fence: int
    holder: str
    ran: bool = True


@dataclass(frozen=True, slots=True)
class TaskHandBack:
    """The worker returns the attempt unharmed: the same attempt goes to somebody else under a new fence."""

    instance: InstanceKey
    origin: Origin
    path: TaskPath
    execution: int
    fence: int
    holder: str
    reason: HandBackReason
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    instance: InstanceKey
    origin: Origin
    path: TaskPath
    fence: int
    renewals: int
    kind: LapseKind = LapseKind.LEASE


@dataclass(frozen=True, slots=True)
class DispatchLost:
    instance: InstanceKey
    origin: Origin
    path: TaskPath
    fence: int


@dataclass(frozen=True, slots=True)
class TimerDue:
    instance: InstanceKey
    origin: Origin
    key: str
    token: int
    due_at: datetime | None = None  # the database's clock had reached it, so nobody's clock may be behind it


Command = StartWorkflow | CancelWorkflow | ResumeWorkflow
Report = (
    TaskReportedStarted
    | TaskHeartbeat
    | TaskReportedCompleted
    | TaskReportedFailed
    | TaskReportedCancelled
    | TaskHandBack
)
Tick = LeaseExpired | DispatchLost | TimerDue
Input = Command | Report | Tick
