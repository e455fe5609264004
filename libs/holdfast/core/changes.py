"""What follows from events: rows and messages, as data. `project` makes them, store and relay carry them out."""

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath
from holdfast.core.inputs import Error
from holdfast.core.transitions import TaskStatus, WorkflowState


@dataclass(slots=True)
class InstanceRow:
    instance_id: InstanceId
    key: InstanceKey
    version: int
    state: WorkflowState
    execution: int
    sequence: int
    fence: int
    awaiting: str | None  # `tasks`, `timer`, or nothing
    error: Error | None
    created_at: datetime | None  # set by the first commit of an instance only
    updated_at: datetime
    finished_at: datetime | None


@dataclass(slots=True)
class TaskRow:
    """One attempt. The coordinator merges the changes of one commit, so each attempt appears once per commit."""

    path: TaskPath
    execution: int
    attempt: int
    status: TaskStatus
    fence: int
    queue: str
    activity: str
    holder: str | None = None
    queued_at: datetime | None = None  # set when the attempt is dispatched (again)
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: Error | None = None


@dataclass(slots=True)
class LeaseRow:
    path: TaskPath
    execution: int
    attempt: int
    fence: int
    holder: str
    address: str
    lease_s: float
    since: datetime
    expires_at: datetime
    timeout_at: datetime


@dataclass(slots=True)
class TimerRow:
    key: str
    token: int
    due_at: datetime


@dataclass(frozen=True, slots=True)
class LeaseRenewal:
    """Heartbeats write no events; the newest of a batch wins."""

    instance_id: InstanceId
    path: TaskPath
    fence: int
    renewals: int
    expires_at: datetime
    details: Payload | None = None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A task for `holdfast.tasks.<queue>`."""

    instance: InstanceKey
    instance_id: InstanceId
    execution: int
    path: TaskPath
    attempt: int
    fence: int
    activity: str
    queue: str
    input: Payload
    lease_s: float
    timeout_s: float
    trace_id: str | None = None
    span_id: str | None = None


@dataclass(frozen=True, slots=True)
class Cancellation:
    """For `holdfast.cancellations`. With a holder ("lease lost"), only that holder obeys."""

    instance: InstanceKey
    execution: int
    path: TaskPath
    fence: int
    holder: str | None
    reason: str


@dataclass(slots=True)
class Changes:
    """Everything that one instance's events of one batch lead to."""

    row: InstanceRow
    expected_sequence: int  # 0: the instance is new
    events: list[Recorded] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)  # the events as JSON, once whoever sends them has made it
    tasks: dict[tuple[int, TaskPath, int], TaskRow] = field(default_factory=dict)
    leases: dict[TaskPath, LeaseRow | None] = field(default_factory=dict)  # None: the lease ends
    timers: dict[str, TimerRow | None] = field(default_factory=dict)  # None: the timer is gone
    messages: list[Dispatch | Cancellation] = field(default_factory=list)
