"""The in-memory twin, as people and clients see it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.core.changes import TaskRow
from holdfast.core.events import Recorded, WorkflowCompleting
from holdfast.core.ids import InstanceId, Payload, split_key
from holdfast.core.transitions import WorkflowState
from holdfast.store.memory_tables import Tables
from holdfast.store.rows import (
    CommandKey,
    CommandRow,
    Counts,
    InstanceView,
    LeaseView,
    ParkedInput,
    ParkedView,
    Rejection,
    TimerView,
)


class MemoryQueryStore:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def now(self) -> datetime:
        return self._tables.now()

    async def instances(self, instances: Sequence[InstanceId]) -> dict[InstanceId, InstanceView]:
        return {instance: self._view(instance) for instance in instances if instance in self._tables.instances}

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
        found = [
            view
            for view in map(self._view, self._tables.instances)
            if namespace in (None, split_key(view.key)[0])
            and workflow in (None, split_key(view.key)[1])
            and (not states or view.state in states)
            and quarantined in (None, view.quarantined_at is not None)
            and (before is None or (view.created_at, view.instance_id) < (before.created_at, before.instance_id))
        ]
        return sorted(found, key=lambda view: (view.created_at, view.instance_id), reverse=True)[:limit]

    async def events(self, instance: InstanceId, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        events = self._tables.events.get(instance, [])
        return [recorded for recorded in events if recorded.sequence > after][:limit]

    async def outputs(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Payload]:
        found: dict[InstanceId, Payload] = {}
        for instance in instances:
            for recorded in self._tables.events.get(instance, []):
                if isinstance(recorded.event, WorkflowCompleting):
                    found[instance] = recorded.event.output
        return found

    async def tasks(self, instance: InstanceId) -> list[TaskRow]:
        tasks = self._tables.tasks.get(instance, {})
        return [replace(tasks[key]) for key in sorted(tasks)]

    async def leases(self, instance: InstanceId) -> list[LeaseView]:
        leases = self._tables.leases.get(instance, {})
        ordered = [leases[path] for path in sorted(leases)]
        return [LeaseView(replace(lease.row), lease.renewals, lease.details, lease.frozen) for lease in ordered]

    async def timers(self, instance: InstanceId) -> list[TimerView]:
        timers = self._tables.timers.get(instance, {})
        ordered = [timers[key] for key in sorted(timers)]
        return [TimerView(replace(timer.row), timer.sent_at, timer.frozen) for timer in ordered]

    async def outcomes(self, commands: Sequence[CommandKey]) -> dict[CommandKey, CommandRow]:
        return {key: self._tables.commands[key][0] for key in commands if key in self._tables.commands}

    async def commands(self, instance: InstanceId) -> list[tuple[CommandRow, int]]:
        found = [entry for key, entry in self._tables.commands.items() if key.instance_id == instance]
        return sorted(found, key=lambda entry: (entry[0].received_at, entry[0].key.source, entry[0].key.id))

    async def rejections(self, instance: InstanceId) -> list[Rejection]:
        found = sorted((key, count) for key, count in self._tables.rejections.items() if key[0] == instance)
        return [Rejection(*key, count) for key, count in found]

    async def parked(self, *, limit: int = 100) -> list[ParkedView]:
        found = [
            ParkedView(
                instance,
                parked.instance,
                parked.partition,
                len(parked.inputs),
                parked.tries,
                parked.next_try_at,
                parked.error,
                parked.parked_at,
                parked.quarantined_at,
            )
            for instance, parked in self._tables.parked.items()
        ]
        return sorted(found, key=lambda view: (view.parked_at, view.instance_id))[:limit]

    async def parked_inputs(self, instance: InstanceId, limit: int) -> list[ParkedInput]:
        parked = self._tables.parked.get(instance)
        return [] if parked is None else [parked.inputs[number] for number in sorted(parked.inputs)][:limit]

    async def counts(self) -> Counts:
        tables = self._tables
        return Counts(
            dict(Counter(found.row.state for found in tables.instances.values())),
            sum(len(leases) for leases in tables.leases.values()),
            sum(len(timers) for timers in tables.timers.values()),
            sum(len(out.rows) for out in tables.outgoing.values()),
            len(tables.outbox_parked),
            sum(len(parked.inputs) for parked in tables.parked.values()),
            sum(1 for parked in tables.parked.values() if parked.quarantined_at is not None),
            sum(tables.rejections.values()),
        )

    def _view(self, instance: InstanceId) -> InstanceView:
        found = self._tables.instances[instance]
        row = found.row
        assert row.created_at is not None
        return InstanceView(
            instance,
            row.key,
            found.partition,
            row.version,
            row.state,
            row.execution,
            row.sequence,
            row.fence,
            row.awaiting,
            row.error,
            found.last_service,
            row.created_at,
            row.updated_at,
            row.finished_at,
            found.quarantined_at,
            found.quarantine_reason,
        )
