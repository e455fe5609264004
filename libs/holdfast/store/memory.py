"""The in-memory twin, as the coordinator and the relay see it: the same operations and guarantees, no database."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime

from holdfast.core.errors import Refused
from holdfast.core.ids import InstanceId
from holdfast.core.state import STATE_SHAPE
from holdfast.store import memory_commit
from holdfast.store.memory_tables import Tables
from holdfast.store.postgres_definitions import another_body
from holdfast.store.rows import (
    Claim,
    CommandKey,
    Commit,
    Committed,
    Loaded,
    LoadedInstance,
    OutboxRow,
    ParkedInput,
    Publisher,
    Settled,
    StoredDefinition,
)


class MemoryDefinitionStore:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def define(self, definition: StoredDefinition) -> bool:
        key = (definition.namespace, definition.workflow, definition.version)
        stored = self._tables.definitions.setdefault(key, definition)
        if stored is definition:
            return True
        if stored.body != definition.body:
            raise another_body(definition)
        return False

    async def definition(self, namespace: str, workflow: str, version: int | None) -> StoredDefinition | None:
        if version is not None:
            return self._tables.definitions.get((namespace, workflow, version))
        newest = newest_version(self._tables, namespace, workflow)
        return None if newest is None else self._tables.definitions[namespace, workflow, newest]

    async def definitions(self) -> list[StoredDefinition]:
        return [self._tables.definitions[key] for key in sorted(self._tables.definitions)]


def newest_version(tables: Tables, namespace: str, workflow: str) -> int | None:
    versions = [version for ns, name, version in tables.definitions if (ns, name) == (namespace, workflow)]
    return max(versions, default=None)


class MemoryCoordinatorStore:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._definitions = MemoryDefinitionStore(tables)

    async def claim(
        self, partitions: Sequence[int], holder: str, *, publish: bool, publisher_lease_s: float
    ) -> list[Claim]:
        for partition in partitions:
            row = self._tables.inbox.get(partition)
            if row is None or row.moved_to is not None:
                raise Refused("partition_missing", f"partition {partition} has no row here, or has moved")
        return [self._claim(partition, holder, publish, publisher_lease_s) for partition in sorted(set(partitions))]

    def _claim(self, partition: int, holder: str, publish: bool, lease_s: float) -> Claim:
        row, out = self._tables.inbox[partition], self._tables.outgoing[partition]
        row.epoch += 1
        row.holder = holder
        if publish:
            _take(self._tables, partition, holder, lease_s)
        return Claim(
            partition,
            row.epoch,
            row.commands_next,
            row.reports_next,
            row.ticks_next,
            row.outbox_last,
            out.epoch if publish else None,
            out.done,
            frozenset(key for key, parked in self._tables.parked.items() if parked.partition == partition),
            self._tables.now(),
        )

    async def load(
        self,
        instances: Sequence[InstanceId],
        commands: Sequence[CommandKey] = (),
        workflows: Sequence[tuple[str, str]] = (),
    ) -> Loaded:
        newest = {name: newest_version(self._tables, *name) for name in workflows}
        return Loaded(
            {instance: self._instance(instance) for instance in instances if instance in self._tables.instances},
            {key: self._tables.commands[key][0] for key in commands if key in self._tables.commands},
            {name: version for name, version in newest.items() if version is not None},
        )

    def _instance(self, instance: InstanceId) -> LoadedInstance:
        found = self._tables.instances[instance]
        snapshot = self._tables.snapshots.get(instance)
        if snapshot is not None and snapshot.shape != STATE_SHAPE:
            snapshot = None
        start = 0 if snapshot is None else snapshot.sequence
        leases = self._tables.leases.get(instance, {})
        return LoadedInstance(
            instance,
            found.row.key,
            found.row.version,
            found.row.sequence,
            None if snapshot is None else snapshot.body,
            start,
            [recorded for recorded in self._tables.events.get(instance, []) if recorded.sequence > start],
            {path: (lease.row.fence, lease.renewals, lease.row.expires_at) for path, lease in leases.items()},
            found.quarantined_at is not None,
        )

    async def commit(self, commit: Commit) -> Committed:
        return memory_commit.commit(self._tables, commit)

    async def settle(self, partitions: Sequence[int]) -> list[Settled]:
        rows = [(partition, self._tables.inbox[partition]) for partition in sorted(set(partitions))]
        return [
            Settled(partition, row.epoch, row.commands_next, row.reports_next, row.ticks_next, row.outbox_last)
            for partition, row in rows
        ]

    async def partition_count(self) -> int | None:
        return len(self._tables.inbox)

    async def definition(self, namespace: str, workflow: str, version: int) -> StoredDefinition | None:
        return await self._definitions.definition(namespace, workflow, version)

    async def parked_due(self, partitions: Sequence[int], now: datetime) -> list[InstanceId]:
        due = [
            (parked.next_try_at, instance)
            for instance, parked in self._tables.parked.items()
            if parked.partition in partitions and parked.quarantined_at is None
        ]
        early = sorted(instance for at, instance in due if at is None)
        return early + [instance for at, instance in sorted((at, i) for at, i in due if at is not None) if at <= now]

    async def parked_inputs(self, instance: InstanceId, limit: int) -> list[ParkedInput]:
        parked = self._tables.parked.get(instance)
        return [] if parked is None else [parked.inputs[number] for number in sorted(parked.inputs)][:limit]

    async def parked_state(self, instance: InstanceId) -> int:
        parked = self._tables.parked.get(instance)
        return 0 if parked is None else parked.tries

    async def wake_relay(self) -> None:
        self._tables.outbox_woken.set()

    async def wake_recovery(self, due_at: datetime) -> None:
        self._tables.timers_woken.set()

    async def now(self) -> datetime:
        return self._tables.now()


def _take(tables: Tables, partition: int, holder: str, lease_s: float) -> Publisher:
    out = tables.outgoing[partition]
    out.epoch += 1
    out.holder = holder
    out.lease_s = lease_s
    tables.extend_lease(partition)
    return Publisher(partition, out.epoch, out.done)


class MemoryOutboxStore:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._seen: dict[int, int] = {}

    async def claim_publishers(self, holder: str, *, lease_s: float, most: int) -> list[Publisher]:
        now = self._tables.now()
        rows = self._tables.outgoing.items()
        held = sum(1 for _, out in rows if out.holder == holder and out.lease_until and out.lease_until > now)
        free = sorted(partition for partition, out in rows if out.lease_until is None or out.lease_until <= now)
        return [_take(self._tables, partition, holder, lease_s) for partition in free[: max(0, most - held)]]

    async def renew_publishers(self, holder: str, publishers: Sequence[Publisher], *, lease_s: float) -> frozenset[int]:
        mine = self._mine(publishers, holder)
        for partition in mine:
            self._tables.outgoing[partition].lease_s = lease_s
            self._tables.extend_lease(partition)
        return mine

    async def release_publishers(self, holder: str, publishers: Sequence[Publisher]) -> None:
        for partition in self._mine(publishers, holder):
            out = self._tables.outgoing[partition]
            out.holder, out.lease_until = "", None

    async def read_outbox(self, positions: Sequence[tuple[int, int]], *, rows_max: int) -> list[OutboxRow]:
        self._seen = dict(positions)
        each = max(1, rows_max // max(1, len(positions)))
        found = []
        for partition, after in positions:
            rows = self._tables.outgoing[partition].rows
            numbers = sorted(number for number in rows if number > after)[:each]
            found += [OutboxRow(partition, number, rows[number]) for number in numbers]
        return found

    async def advance(self, positions: Sequence[Publisher]) -> frozenset[int]:
        mine = self._mine(positions, None)
        for position in positions:
            if position.partition in mine:
                memory_commit.move_done(self._tables, position.partition, position.done)
        return mine

    async def park_outbox(
        self, partition: int, number: int, position: int, topic: str, instance: str, body: bytes, error: str
    ) -> None:
        parked = {"topic": topic, "instance": instance, "body": body, "error": error}
        self._tables.outbox_parked.setdefault((partition, number, position), parked)

    async def parked_instances(self, partitions: Sequence[int]) -> set[str]:
        return {
            parked["instance"]
            for (partition, _, _), parked in self._tables.outbox_parked.items()
            if partition in partitions
        }

    async def wait_for_outbox(self, timeout_s: float) -> None:
        seen, self._seen = self._seen, {}
        if not seen:
            await asyncio.sleep(timeout_s)
            return
        self._tables.relays_waiting += 1
        try:
            if not any(self._tables.inbox[partition].outbox_last > after for partition, after in seen.items()):
                await wait_for(self._tables.outbox_woken, timeout_s)
        finally:
            self._tables.relays_waiting -= 1

    async def close(self) -> None:
        pass

    def _mine(self, publishers: Sequence[Publisher], holder: str | None) -> frozenset[int]:
        rows = [(publisher, self._tables.outgoing[publisher.partition]) for publisher in publishers]
        return frozenset(
            publisher.partition
            for publisher, out in rows
            if out.epoch == publisher.epoch and (holder is None or out.holder == holder)
        )


async def wait_for(event: asyncio.Event, timeout_s: float) -> None:
    """What was said since the last wait ends this one at once."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()
