"""The in-memory twin, as recovery sees it."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from holdfast.core.ids import InstanceId
from holdfast.core.transitions import TaskStatus
from holdfast.store.memory import wait_for
from holdfast.store.memory_tables import Lease, Tables, Timer
from holdfast.store.rows import DueLease, DueTimer, QueuedTask


class MemoryRecoveryStore:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def now(self) -> datetime:
        return self._tables.now()

    async def claim_due_timers(self, *, claim_s: float, limit: int) -> list[DueTimer]:
        now = self._tables.now()
        due = [
            (timer.due_at, str(instance), timer.row.key, instance, timer)
            for instance, timer in self._timers()
            if timer.sent_at is None and timer.due_at <= now
        ]
        due.sort(key=lambda entry: entry[:3])
        return self._claim([(instance, timer) for *_, instance, timer in due[:limit]], claim_s)

    async def next_due(self) -> datetime | None:
        return min((timer.due_at for _, timer in self._timers() if timer.sent_at is None), default=None)

    async def mark_timers_sent(self, sent: Sequence[tuple[DueTimer, int]]) -> None:
        for due, offset in sent:
            timer = self._tables.timers.get(InstanceId(due.instance_id), {}).get(due.key)
            if timer is not None and timer.row.token == due.token:
                timer.sent_at, timer.sent_offset, timer.claimed_until = self._tables.now(), offset, None

    async def unanswered_timers(self, *, limit: int, claim_s: float = 10.0) -> list[DueTimer]:
        now = self._tables.now()
        found = [
            (timer.partition, timer.sent_offset, str(instance), timer.row.key, instance, timer)
            for instance, timer in self._timers()
            if timer.sent_offset is not None
            and self._tables.inbox[timer.partition].ticks_next > timer.sent_offset
            and (timer.claimed_until is None or timer.claimed_until <= now)
            and instance not in self._tables.parked
        ]
        found.sort(key=lambda entry: entry[:4])
        return self._claim([(instance, timer) for *_, instance, timer in found[:limit]], claim_s)

    async def lapsed_leases(
        self, partition: int, until: datetime, reports_end: int, *, limit: int, after: DueLease | None = None
    ) -> list[DueLease]:
        if self._tables.inbox[partition].reports_next < reports_end:
            return []
        start = None if after is None else (min(after.expires_at, after.timeout_at), after.instance_id, after.path)
        found = [
            (lease.due_at, instance, lease.row.path, lease)
            for instance, lease in self._leases()
            if lease.partition == partition and lease.due_at <= until and instance not in self._tables.parked
        ]
        found.sort(key=lambda entry: entry[:3])
        page = [entry for entry in found if start is None or entry[:3] > start]
        return [self._due_lease(instance, lease) for _, instance, _, lease in page[:limit]]

    async def partitions_with_due_leases(self, until: datetime) -> dict[int, float]:
        shortest: dict[int, float] = {}
        for _, lease in self._leases():
            if lease.due_at <= until:
                known = shortest.get(lease.partition, lease.row.lease_s)
                shortest[lease.partition] = min(known, lease.row.lease_s)
        return shortest

    async def next_lease_due(self) -> datetime | None:
        return min((lease.due_at for _, lease in self._leases()), default=None)

    async def queued_since(self, before: datetime, *, limit: int, after: QueuedTask | None = None) -> list[QueuedTask]:
        start = None if after is None else (after.queued_at, after.instance_id, after.path)
        found = [task for task in self._queued() if task.queued_at < before]
        found.sort(key=lambda task: (task.queued_at, task.instance_id, task.path))
        return [t for t in found if start is None or (t.queued_at, t.instance_id, t.path) > start][:limit]

    async def still_queued(self, tasks: Sequence[QueuedTask]) -> list[QueuedTask]:
        queued = {(task.instance_id, task.execution, task.path, task.attempt, task.fence) for task in self._queued()}
        return [
            task for task in tasks if (task.instance_id, task.execution, task.path, task.attempt, task.fence) in queued
        ]

    async def inbox_positions(self) -> dict[int, tuple[int, int, int]]:
        rows = self._tables.inbox.items()
        return {partition: (row.commands_next, row.reports_next, row.ticks_next) for partition, row in rows}

    async def outbox_positions(self) -> dict[int, tuple[int, int]]:
        rows = self._tables.inbox.items()
        return {partition: (row.outbox_last, self._tables.outgoing[partition].done) for partition, row in rows}

    async def wait_for_timers(self, timeout_s: float) -> None:
        await wait_for(self._tables.timers_woken, timeout_s)

    async def close(self) -> None:
        pass

    def _timers(self) -> Iterator[tuple[InstanceId, Timer]]:
        for instance, timers in self._tables.timers.items():
            yield from ((instance, timer) for timer in timers.values() if not timer.frozen)

    def _leases(self) -> Iterator[tuple[InstanceId, Lease]]:
        for instance, leases in self._tables.leases.items():
            yield from ((instance, lease) for lease in leases.values() if not lease.frozen)

    def _claim(self, timers: list[tuple[InstanceId, Timer]], claim_s: float) -> list[DueTimer]:
        until = self._tables.now() + timedelta(seconds=claim_s)
        claimed = []
        for instance, timer in timers:
            timer.claimed_until = until
            key = self._tables.instances[instance].row.key
            row = timer.row
            claimed.append(DueTimer(timer.partition, instance, key, row.key, row.token, row.due_at))
        return sorted(claimed, key=lambda timer: (timer.due_at, timer.instance, timer.key))

    def _due_lease(self, instance: InstanceId, lease: Lease) -> DueLease:
        row = lease.row
        return DueLease(
            lease.partition,
            instance,
            self._tables.instances[instance].row.key,
            row.path,
            row.fence,
            lease.renewals,
            row.lease_s,
            row.expires_at,
            row.timeout_at,
        )

    def _queued(self) -> Iterator[QueuedTask]:
        for instance, tasks in self._tables.tasks.items():
            if instance in self._tables.parked:
                continue
            home = self._tables.instances[instance]
            for (execution, path, attempt), task in tasks.items():
                if task.status is TaskStatus.QUEUED and task.queued_at is not None:
                    yield QueuedTask(
                        home.partition,
                        instance,
                        home.row.key,
                        path,
                        execution,
                        attempt,
                        task.fence,
                        task.queue,
                        task.queued_at,
                    )
