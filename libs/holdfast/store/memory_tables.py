"""The tables of the in-memory twin: plain dictionaries, one writer at a time because nothing here awaits.

Time comes from `now`, so that a simulation can run on virtual time; nothing depends on threads, hashes or the order of
arrival of anything but calls.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.changes import InstanceRow, LeaseRow, TaskRow, TimerRow
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath
from holdfast.store.rows import CommandKey, CommandRow, ParkedInput, SnapshotRow, StoredDefinition


@dataclass(slots=True)
class Inbox:
    epoch: int = 0
    holder: str = ""
    commands_next: int = 0
    reports_next: int = 0
    ticks_next: int = 0
    outbox_last: int = 0
    moved_to: str | None = None


@dataclass(slots=True)
class Outgoing:
    holder: str = ""
    epoch: int = 0
    lease_s: float = 0.0
    lease_until: datetime | None = None
    done: int = 0
    rows: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Instance:
    row: InstanceRow
    partition: int
    last_service: str
    quarantined_at: datetime | None = None
    quarantine_reason: str | None = None


@dataclass(slots=True)
class Lease:
    row: LeaseRow
    partition: int
    renewals: int = 0
    details: Payload | None = None
    frozen: bool = False

    @property
    def due_at(self) -> datetime:
        return min(self.row.expires_at, self.row.timeout_at)


@dataclass(slots=True)
class Timer:
    row: TimerRow
    partition: int
    claimed_until: datetime | None = None
    sent_at: datetime | None = None
    sent_offset: int | None = None
    frozen: bool = False

    @property
    def due_at(self) -> datetime:
        return self.row.due_at if self.claimed_until is None else max(self.row.due_at, self.claimed_until)


@dataclass(slots=True)
class Parked:
    """An instance that takes no other path than its parked inputs."""

    partition: int
    instance: InstanceKey
    parked_at: datetime
    tries: int = 0
    next_try_at: datetime | None = None
    error: str = ""
    quarantined_at: datetime | None = None
    inputs: dict[int, ParkedInput] = field(default_factory=dict)


class Tables:
    def __init__(self, now: Callable[[], datetime], partitions: int) -> None:
        self.now = now
        self.inbox = {partition: Inbox() for partition in range(partitions)}
        self.outgoing = {partition: Outgoing() for partition in range(partitions)}
        self.definitions: dict[tuple[str, str, int], StoredDefinition] = {}
        self.instances: dict[InstanceId, Instance] = {}
        self.events: dict[InstanceId, list[Recorded]] = {}
        self.snapshots: dict[InstanceId, SnapshotRow] = {}
        self.tasks: dict[InstanceId, dict[tuple[int, TaskPath, int], TaskRow]] = {}
        self.leases: dict[InstanceId, dict[TaskPath, Lease]] = {}
        self.timers: dict[InstanceId, dict[str, Timer]] = {}
        self.commands: dict[CommandKey, tuple[CommandRow, int]] = {}
        self.parked: dict[InstanceId, Parked] = {}
        self.rejections: dict[tuple[InstanceId, TaskPath, int], int] = {}
        self.outbox_parked: dict[tuple[int, int, int], dict[str, Any]] = {}
        self.relays_waiting = 0
        self.outbox_woken = asyncio.Event()
        self.timers_woken = asyncio.Event()

    def extend_lease(self, partition: int) -> None:
        out = self.outgoing[partition]
        out.lease_until = self.now() + timedelta(seconds=out.lease_s)

    def frozen(self, instance: InstanceId) -> bool:
        parked = self.parked.get(instance)
        return parked is not None and parked.quarantined_at is not None

    def freeze(self, instance: InstanceId, frozen: bool, reason: str | None) -> None:
        """Quarantine is a mark beside the state; timers and leases stand still while it is there."""
        found = self.instances.get(instance)
        if found is not None:
            found.quarantined_at = (found.quarantined_at or self.now()) if frozen else None
            found.quarantine_reason = reason if frozen else None
        for lease in self.leases.get(instance, {}).values():
            lease.frozen = frozen
        for timer in self.timers.get(instance, {}).values():
            timer.frozen = frozen
