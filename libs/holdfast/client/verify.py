"""Replay the events of instances, rebuild every row that `project` makes, and compare with the tables.

What is compared: `workflow_instances`, `task_executions`, `execution_leases` (without renewals and expiry: heartbeats
write no events) and `timers` (without what recovery notes there). What is checked besides: sequences are gapless from 1,
and every move of the workflow and of its tasks is in the table of legal moves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Protocol

from holdfast.client.replay import Replay, Rows, replay
from holdfast.contracts.definitions import parse_definition
from holdfast.core.definition import Definition
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, split_key
from holdfast.store.rows import StoredDefinition

_PAGE = 200
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


class Source(Protocol):
    """Where instances are read from. All of one instance must come from one moment, or a running one looks wrong."""

    async def instance_ids(self, after: InstanceId | None, limit: int) -> list[InstanceId]: ...

    async def whole(self, instance: InstanceId) -> Snapshot | None: ...

    async def definition(self, namespace: str, workflow: str, version: int | None) -> StoredDefinition | None: ...


class Verifier:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._definitions: dict[tuple[str, str, int], Definition | None] = {}
        self.report = Report()

    async def all(self) -> AsyncIterator[Difference]:
        after: InstanceId | None = None
        while page := await self._source.instance_ids(after, _PAGE):
            for instance in page:
                for difference in await self.one(instance):
                    yield difference
            after = page[-1]

    async def one(self, instance: InstanceId, name: str = "") -> list[Difference]:
        snapshot = await self._source.whole(instance)
        if snapshot is None:
            found = [Difference(name or str(instance), "workflow_instances", "", "row", "a row", None)]
        else:
            found = await self._check(snapshot)
            self.report.events += len(snapshot.history)
        self.report.instances += 1
        self.report.differences += len(found)
        return found

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
            stored = await self._source.definition(*name)
            try:
                self._definitions[name] = None if stored is None else parse_definition(stored.body)
            except HoldfastError:
                self._definitions[name] = None
        return self._definitions[name]


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
