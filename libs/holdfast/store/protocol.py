"""The event store, as its users see it: one small protocol for each service.

Two implementations, Postgres and in-memory, pass the same contract suite (`tests/contract/store`). Errors are those of
`holdfast.core.errors` and of `holdfast.store.errors`: `Fenced` (somebody else owns this partition now), `Conflict`
(an instance moved on without us), `Unstorable` (the data itself is refused; names the instance where it is known),
`UnknownOutcome` (the connection broke during a commit) and `Transient`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.changes import TaskRow
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, Payload
from holdfast.core.transitions import WorkflowState
from holdfast.store.rows import (
    Claim,
    CommandKey,
    CommandRow,
    Commit,
    Committed,
    Counts,
    DueLease,
    DueTimer,
    InstanceView,
    LeaseView,
    Loaded,
    OutboxRow,
    ParkedInput,
    ParkedView,
    Publisher,
    QueuedTask,
    Rejection,
    Settled,
    StoredDefinition,
    TimerView,
)


class CoordinatorStore(Protocol):
    async def claim(
        self, partitions: Sequence[int], holder: str, *, publish: bool, publisher_lease_s: float
    ) -> list[Claim]:
        """Make these partitions ours: epoch + 1 each, and with `publish` the publisher's lease as well."""
        ...

    async def load(
        self,
        instances: Sequence[InstanceId],
        commands: Sequence[CommandKey] = (),
        workflows: Sequence[tuple[str, str]] = (),
    ) -> Loaded:
        """One round trip for everything that a batch needs and that is not cached."""
        ...

    async def commit(self, commit: Commit) -> Committed:
        """One transaction in one round trip: all of it, or one of the errors above."""
        ...

    async def settle(self, partitions: Sequence[int]) -> list[Settled]:
        """After an unknown outcome: waits for a backend that is still committing, then says what is on record.

        A statement that had not reached the database yet may still arrive afterwards: it then meets the offset fence,
        or takes the offsets first and fences us. `claim` instead of `settle` excludes that.
        """
        ...

    async def partition_count(self) -> int | None:
        """How many partitions each inbox topic was created with; None before `ensure_partitions`."""
        ...

    async def definition(self, namespace: str, workflow: str, version: int) -> StoredDefinition | None: ...

    async def parked_due(self, partitions: Sequence[int], now: datetime) -> list[InstanceId]:
        """Parked, not quarantined instances of these partitions whose next try is due."""
        ...

    async def parked_inputs(self, instance: InstanceId, limit: int) -> list[ParkedInput]: ...

    async def parked_state(self, instance: InstanceId) -> int:
        """How many tries the first parked input of the instance has had."""
        ...

    async def wake_relay(self) -> None:
        """NOTIFY, on a connection of its own: inside the transaction it would halve the throughput."""
        ...

    async def wake_recovery(self, due_at: datetime) -> None: ...

    async def now(self) -> datetime: ...


class DefinitionStore(Protocol):
    async def define(self, definition: StoredDefinition) -> bool:
        """Store a version; False when exactly this is stored already; Refused when another body is."""
        ...

    async def definition(self, namespace: str, workflow: str, version: int | None) -> StoredDefinition | None: ...

    async def definitions(self) -> list[StoredDefinition]: ...


class OutboxStore(Protocol):
    async def claim_publishers(self, holder: str, *, lease_s: float, most: int) -> list[Publisher]:
        """Take publisher's leases that nobody holds (they ran out), at most so many in all for this holder."""
        ...

    async def renew_publishers(self, holder: str, publishers: Sequence[Publisher], *, lease_s: float) -> frozenset[int]:
        """The partitions that are still ours."""
        ...

    async def release_publishers(self, holder: str, publishers: Sequence[Publisher]) -> None: ...

    async def read_outbox(self, positions: Sequence[tuple[int, int]], *, rows_max: int) -> list[OutboxRow]:
        """Rows with numbers above the given one, per (partition, after), in order."""
        ...

    async def advance(self, positions: Sequence[Publisher]) -> frozenset[int]:
        """Move `done` and delete what is below it, fenced by the epoch; the partitions where that held."""
        ...

    async def park_outbox(
        self, partition: int, number: int, position: int, topic: str, instance: str, body: bytes, error: str
    ) -> None:
        """A message that Kafka will never take, kept with its reason; later ones of its instance follow it."""
        ...

    async def parked_instances(self, partitions: Sequence[int]) -> set[str]: ...

    async def wait_for_outbox(self, timeout_s: float) -> None:
        """Returns when there is more than `read_outbox` was last asked for, or after the time-out; sets and clears the
        mark that commits look at. Who has read nothing since the last wait just sleeps: nobody has to wake it."""
        ...

    async def close(self) -> None: ...


class RecoveryStore(Protocol):
    async def now(self) -> datetime: ...

    async def claim_due_timers(self, *, claim_s: float, limit: int) -> list[DueTimer]: ...

    async def next_due(self) -> datetime | None:
        """When the earliest unsent timer is due."""
        ...

    async def mark_timers_sent(self, sent: Sequence[tuple[DueTimer, int]]) -> None:
        """With the offset that the tick got: once ticks are processed past it, a row that is still there goes again."""
        ...

    async def unanswered_timers(self, *, limit: int, claim_s: float = 10.0) -> list[DueTimer]:
        """Sent, processed past, and still there. Claimed for a while, so that one recovery sends each again."""
        ...

    async def lapsed_leases(
        self, partition: int, until: datetime, reports_end: int, *, limit: int, after: DueLease | None = None
    ) -> list[DueLease]:
        """Leases of a partition that are past due at `until`, if reports are processed up to `reports_end`: one
        statement. `after` is the last one of the page before. Parked instances are left out: nothing reaches them."""
        ...

    async def partitions_with_due_leases(self, until: datetime) -> dict[int, float]:
        """partition -> the shortest lease among those past due."""
        ...

    async def next_lease_due(self) -> datetime | None: ...

    async def queued_since(
        self, before: datetime, *, limit: int, after: QueuedTask | None = None
    ) -> list[QueuedTask]: ...

    async def still_queued(self, tasks: Sequence[QueuedTask]) -> list[QueuedTask]: ...

    async def inbox_positions(self) -> dict[int, tuple[int, int, int]]:
        """partition -> (commands_next, reports_next, ticks_next)."""
        ...

    async def outbox_positions(self) -> dict[int, tuple[int, int]]:
        """partition -> (last committed number, published up to)."""
        ...

    async def wait_for_timers(self, timeout_s: float) -> None:
        """Returns after the time-out, or when `wake_recovery` was called since the last wait."""
        ...

    async def close(self) -> None: ...


class QueryStore(Protocol):
    """What the command line, the client and `verify` read. Nothing here locks or waits for anybody."""

    async def now(self) -> datetime: ...

    async def instances(self, instances: Sequence[InstanceId]) -> dict[InstanceId, InstanceView]:
        """Those that exist. One round trip for many, so that waiting for many costs one poll."""
        ...

    async def list_instances(
        self,
        *,
        namespace: str | None = None,
        workflow: str | None = None,
        states: Sequence[WorkflowState] = (),
        quarantined: bool | None = None,
        limit: int = 50,
        before: InstanceView | None = None,
    ) -> list[InstanceView]:
        """Newest first; `before` is the last one of the page before."""
        ...

    async def events(self, instance: InstanceId, *, after: int = 0, limit: int = 1000) -> list[Recorded]: ...

    async def outputs(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Payload]:
        """The outputs of those that have one."""
        ...

    async def tasks(self, instance: InstanceId) -> list[TaskRow]:
        """Every attempt, by execution, path and number."""
        ...

    async def leases(self, instance: InstanceId) -> list[LeaseView]: ...

    async def timers(self, instance: InstanceId) -> list[TimerView]: ...

    async def outcomes(self, commands: Sequence[CommandKey]) -> dict[CommandKey, CommandRow]:
        """Those that are on record."""
        ...

    async def commands(self, instance: InstanceId) -> list[tuple[CommandRow, int]]:
        """Every command of an instance with the number of its repeats, in the order in which they came."""
        ...

    async def rejections(self, instance: InstanceId) -> list[Rejection]: ...

    async def parked(self, *, limit: int = 100) -> list[ParkedView]: ...

    async def parked_inputs(self, instance: InstanceId, limit: int) -> list[ParkedInput]: ...

    async def counts(self) -> Counts: ...
