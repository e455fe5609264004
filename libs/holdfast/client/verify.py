"""Replay the events of instances, rebuild every row that `project` makes, and compare with the tables.

What is compared: `workflow_instances`, `task_executions`, `execution_leases` (without renewals and expiry: heartbeats
write no events) and `timers` (without what recovery notes there). What is checked besides: sequences are gapless from
1, and every move of the workflow and of its tasks is in the table of legal moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from holdfast.client.replay import Replay, Rows, replay
from holdfast.contracts.definitions import compile_definition
from holdfast.core.changes import InstanceRow
from holdfast.core.definition import Definition
from holdfast.core.errors import HoldfastError, Transient
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, split_key
from holdfast.store.protocol import DefinitionStore, QueryStore
from holdfast.store.rows import InstanceView

_PAGE = 200
_READS_MAX = 30
# A lease's holder may have renewed it since; the instance's key is its identity.
_NOT_COMPARED = {"expires_at"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not what the events say."""

    instance: str
    table: str
    row: str
    column: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        where = f"{self.table} {self.row}".strip()
        return f"{self.instance}: {where}: {self.column} is {self.found!r}, the events say {self.expected!r}"


@dataclass(slots=True)
class Report:
    instances: int = 0
    events: int = 0
    differences: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything about one instance, read at one moment."""

    key: InstanceKey
    version: int
    history: Sequence[Recorded]
    rows: Rows


class Verifier:
    """Reads without locks or a transaction: an instance that moved while it was read is read again."""

    def __init__(self, queries: QueryStore, definitions: DefinitionStore) -> None:
        self._queries = queries
        self._stored = definitions
        self._definitions: dict[tuple[str, str, int], Definition | None] = {}
        self.report = Report()

    async def all(self) -> AsyncIterator[Difference]:
        last: InstanceView | None = None
        while page := await self._queries.list_instances(limit=_PAGE, before=last):
            for view in page:
                for difference in await self.one(view.instance_id, view.key):
                    yield difference
            last = page[-1]

    async def one(self, instance: InstanceId, key: InstanceKey) -> list[Difference]:
        snapshot = await self._read(instance)
        if snapshot is None:
            history = await self._queries.events(instance, limit=1)
            expected = "a row, because it has events" if history else "a row"
            found = [Difference(key, "workflow_instances", "", "row", expected, "no row")]
        else:
            found = await self._check(snapshot)
            self.report.events += len(snapshot.history)
        self.report.instances += 1
        self.report.differences += len(found)
        return found

    async def _read(self, instance: InstanceId) -> Snapshot | None:
        for tries in range(_READS_MAX):
            before = await self._view(instance)
            if before is None:
                return None
            rows = Rows(
                instance=_row_of(before),
                tasks={(row.execution, row.path, row.attempt): row for row in await self._queries.tasks(instance)},
                leases={view.lease.path: view.lease for view in await self._queries.leases(instance)},
                timers={view.timer.key: view.timer for view in await self._queries.timers(instance)},
            )
            history = await self._history(instance)
            after = await self._view(instance)
            if after is not None and after.sequence == before.sequence:
                return Snapshot(before.key, before.version, history, rows)
            await asyncio.sleep(0.02 * tries)
        raise Transient(f"{instance} moved on each time it was read; verify it when it is quieter")

    async def _view(self, instance: InstanceId) -> InstanceView | None:
        return (await self._queries.instances([instance])).get(instance)

    async def _history(self, instance: InstanceId) -> list[Recorded]:
        history: list[Recorded] = []
        while page := await self._queries.events(instance, after=history[-1].sequence if history else 0):
            history += page
        return history

    async def _check(self, snapshot: Snapshot) -> list[Difference]:
        definition = await self._definition(snapshot)
        if definition is None:
            row = f"version {snapshot.version}"
            return [Difference(snapshot.key, "workflow_definitions", row, "body", "a definition", None)]
        return compare(snapshot.key, replay(snapshot.key, definition, snapshot.history), snapshot.rows)

    async def _definition(self, snapshot: Snapshot) -> Definition | None:
        namespace, workflow, _ = split_key(snapshot.key)
        name = (namespace, workflow, snapshot.version)
        if name not in self._definitions:
            stored = await self._stored.definition(*name)
            try:
                self._definitions[name] = None if stored is None else compile_definition(stored.body)
            except HoldfastError:
                self._definitions[name] = None
        return self._definitions[name]


def _row_of(view: InstanceView) -> InstanceRow:
    return InstanceRow(
        view.instance_id,
        view.key,
        view.version,
        view.state,
        view.execution,
        view.sequence,
        view.fence,
        view.awaiting,
        view.error,
        view.created_at,
        view.updated_at,
        view.finished_at,
    )


def compare(key: InstanceKey, expected: Replay, found: Rows) -> list[Difference]:
    """Every difference, or the one event that cannot be: after that nothing is known."""
    if expected.problem is not None:
        sequence, what = expected.problem
        return [Difference(key, "events", f"sequence {sequence}", "event", "a legal event", what)]
    differences = _row_differences(key, "workflow_instances", "", expected.rows.instance, found.instance)
    differences += _table_differences(key, "task_executions", expected.rows.tasks, found.tasks)
    differences += _table_differences(key, "execution_leases", expected.rows.leases, found.leases)
    differences += _table_differences(key, "timers", expected.rows.timers, found.timers)
    return differences


def _table_differences(
    key: InstanceKey, table: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]
) -> list[Difference]:
    differences: list[Difference] = []
    for row in sorted(expected.keys() | found.keys()):
        name = "/".join(str(part) for part in row) if isinstance(row, tuple) else str(row)
        differences += _row_differences(key, table, name, expected.get(row), found.get(row))
    return differences


def _row_differences(key: InstanceKey, table: str, row: str, expected: Any, found: Any) -> list[Difference]:
    if expected is None or found is None:
        if expected is None and found is None:
            return []
        return [Difference(key, table, row, "row", _present(expected), _present(found))]
    return [
        Difference(key, table, row, column.name, _plain(wanted), _plain(there))
        for column in fields(expected)
        if column.name not in _NOT_COMPARED
        and (wanted := getattr(expected, column.name)) != (there := getattr(found, column.name))
    ]


def _present(row: Any) -> str:
    return "no row" if row is None else "a row"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value
