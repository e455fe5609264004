"""What goes into one commit of the coordinator and what comes back: plain data, no SQL."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.core.changes import Changes, LeaseRenewal, LeaseRow, TimerRow
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath
from holdfast.core.inputs import Error
from holdfast.core.transitions import WorkflowState


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition that is ours now: the epoch that fences everybody before us, and where to read on."""

    partition: int
    epoch: int
    commands_next: int
    reports_next: int
    ticks_next: int
    outbox_last: int
    publisher_epoch: int | None  # set when the publisher's lease was claimed too (hosted relay)
    outbox_done: int
    parked: frozenset[InstanceId]  # instances that take no other path than their parked inputs
    now: datetime


@dataclass(frozen=True, slots=True)
class Settled:
    """What a partition's row says after an unknown outcome: where to read on, if the epoch is still ours."""

    partition: int
    epoch: int
    commands_next: int
    reports_next: int
    ticks_next: int
    outbox_last: int


@dataclass(slots=True)
class PartitionAdvance:
    """Every commit advances the offsets of the partitions it read, also when it decided nothing."""

    partition: int
    epoch: int
    commands_from: int
    commands_next: int
    reports_from: int
    reports_next: int
    ticks_from: int
    ticks_next: int
    outbox_number: int | None = None  # the number of the row below; the one after `outbox_last`
    outbox_body: bytes | None = None
    publisher_epoch: int | None = None
    outbox_done: int | None = None  # hosted relay: everything up to here is in Kafka


@dataclass(frozen=True, slots=True)
class CommandKey:
    instance_id: InstanceId
    source: str
    id: str


@dataclass(frozen=True, slots=True)
class CommandRow:
    key: CommandKey
    instance: InstanceKey
    type: str
    digest: bytes  # of the content: the same id with another digest is `id_reused`
    outcome: str  # accepted, duplicate, ignored, refused
    reason: str  # a repeat (`duplicate`, or `id_reused`) of a key on record is counted there and changes nothing else
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Rejection:
    """Further rejected reports of one (task, fence), beyond the one REPORT_REJECTED event."""

    instance_id: InstanceId
    path: TaskPath
    fence: int
    count: int


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    instance_id: InstanceId
    sequence: int
    shape: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ParkedInput:
    """An input whose instance could not decide it, with everything that came for that instance afterwards."""

    number: int  # order within the instance; given by the store when it is parked
    partition: int
    instance_id: InstanceId
    instance: InstanceKey
    topic: str
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    error: str
    parked_at: datetime


@dataclass(frozen=True, slots=True)
class ParkedTry:
    """What became of one try at the first parked input of an instance."""

    instance_id: InstanceId
    tries: int
    next_try_at: datetime | None
    error: str
    quarantine: bool = False  # no tries are left: freeze it and keep its rows


@dataclass(slots=True)
class Commit:
    """One transaction, however many instances it touches."""

    partitions: list[PartitionAdvance]
    now: datetime
    service: str = ""  # who commits: recorded as the instance's last service
    changes: list[Changes] = field(default_factory=list)
    homes: dict[InstanceId, int] = field(default_factory=dict)  # the partition of every *new* instance in `changes`
    renewals: list[LeaseRenewal] = field(default_factory=list)
    commands: list[CommandRow] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    snapshots: list[SnapshotRow] = field(default_factory=list)
    parked: list[ParkedInput] = field(default_factory=list)
    unparked: list[tuple[InstanceId, int]] = field(default_factory=list)  # (instance, number) that were decided
    parked_tries: list[ParkedTry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Committed:
    now: datetime  # the database's clock
    relay_waiting: bool  # a separate relay sleeps: wake it (outside the transaction)
    publisher_lost: frozenset[int] = frozenset()  # partitions whose publisher's lease is no longer ours


@dataclass(slots=True)
class LoadedInstance:
    instance_id: InstanceId
    key: InstanceKey
    version: int
    sequence: int
    snapshot: bytes | None  # already checked: of the current shape, else None
    snapshot_sequence: int
    events: list[Recorded]  # after the snapshot, in order
    renewals: dict[TaskPath, tuple[int, int, datetime]]  # path -> (fence, renewals, expires_at)
    quarantined: bool


@dataclass(slots=True)
class Loaded:
    instances: dict[InstanceId, LoadedInstance]
    commands: dict[CommandKey, CommandRow]  # those that are on record already
    newest: dict[tuple[str, str], int]  # (namespace, workflow) -> newest version


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    namespace: str
    workflow: str
    version: int
    body: dict[str, Any]  # the definition as JSON, as the user wrote it
    defined_at: datetime


@dataclass(frozen=True, slots=True)
class OutboxRow:
    partition: int
    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Publisher:
    """The lease of the one publisher of a partition's outbox."""

    partition: int
    epoch: int
    done: int


@dataclass(frozen=True, slots=True)
class DueTimer:
    partition: int
    instance_id: UUID
    instance: InstanceKey
    key: str
    token: int
    due_at: datetime


@dataclass(frozen=True, slots=True)
class DueLease:
    partition: int
    instance_id: UUID
    instance: InstanceKey
    path: TaskPath
    fence: int
    renewals: int
    lease_s: float
    expires_at: datetime
    timeout_at: datetime


@dataclass(frozen=True, slots=True)
class QueuedTask:
    partition: int
    instance_id: UUID
    instance: InstanceKey
    path: TaskPath
    execution: int
    attempt: int
    fence: int
    queue: str
    queued_at: datetime


# --- what people and clients read


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance as it stands: its row, all of it."""

    instance_id: InstanceId
    key: InstanceKey
    partition: int
    version: int
    state: WorkflowState
    execution: int
    sequence: int
    fence: int
    awaiting: str | None
    error: Error | None
    last_service: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    quarantined_at: datetime | None
    quarantine_reason: str | None


@dataclass(frozen=True, slots=True)
class LeaseView:
    lease: LeaseRow
    renewals: int
    details: Payload | None
    frozen: bool  # its instance is quarantined


@dataclass(frozen=True, slots=True)
class TimerView:
    timer: TimerRow
    sent_at: datetime | None
    frozen: bool


@dataclass(frozen=True, slots=True)
class ParkedView:
    """An instance whose inputs wait in `parked_inputs`; quarantined when no tries are left."""

    instance_id: InstanceId
    instance: InstanceKey
    partition: int
    inputs: int
    tries: int
    next_try_at: datetime | None
    error: str
    parked_at: datetime
    quarantined_at: datetime | None


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is, and what is left to do."""

    instances: dict[WorkflowState, int]
    leases: int
    timers: int
    outbox: int  # rows that no publisher has done with
    outbox_parked: int
    parked_inputs: int
    quarantined: int
    rejections: int
