"""What the client reads to answer "what became of it": a few verbs, each for many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.core.changes import LeaseRow, TaskRow, TimerRow
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload
from holdfast.core.inputs import Error
from holdfast.core.transitions import FINISHED, WorkflowState
from holdfast.store.rows import CommandKey, CommandRow


@dataclass(frozen=True, slots=True)
class Status:
    """Where a run is now."""

    key: InstanceKey
    instance_id: InstanceId
    version: int
    state: WorkflowState
    execution: int
    sequence: int
    awaiting: str | None
    error: Error | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def finished(self) -> bool:
        """FAILED and COMPENSATION_FAILED count as finished until a person acts."""
        return self.state in FINISHED


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it is now: heartbeats renew it without an event."""

    row: LeaseRow
    renewals: int
    details: Payload | None  # what the activity said with its last heartbeat


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything that the tables say of one run."""

    status: Status
    fence: int
    last_service: str
    quarantined: str | None  # why nothing happens any more, if it is quarantined
    parked: int  # inputs that wait because one of them could not be decided
    tasks: tuple[TaskRow, ...]
    leases: tuple[Lease, ...]
    timers: tuple[TimerRow, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs to list; empty fields filter nothing."""

    namespace: str | None = None
    workflow: str | None = None
    states: tuple[WorkflowState, ...] = ()
    run_id_prefix: str | None = None


class Reads(Protocol):
    async def outcomes(self, commands: Sequence[CommandKey]) -> dict[CommandKey, CommandRow]:
        """What became of these commands; those that nobody has looked at yet are missing."""
        ...

    async def statuses(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Status]:
        """Where these instances are; those that do not exist are missing."""
        ...

    async def events(self, instance: InstanceId, after: int, limit: int) -> list[Recorded]: ...

    async def outputs(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Payload]:
        """The outputs of those that have completed."""
        ...

    async def close(self) -> None: ...
