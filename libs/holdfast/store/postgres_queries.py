"""What people and clients read, on Postgres."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg
import orjson

from holdfast.core.changes import LeaseRow, TaskRow, TimerRow
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath, instance_key
from holdfast.core.inputs import Error
from holdfast.core.transitions import TaskStatus, WorkflowState
from holdfast.store import queries
from holdfast.store.failures import translated
from holdfast.store.pool import Database
from holdfast.store.postgres_coordinator import PostgresCoordinatorStore, recorded
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

_SQL = queries.load("queries")


class PostgresQueryStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._coordinator = PostgresCoordinatorStore(database)

    async def now(self) -> datetime:
        return await self._coordinator.now()

    async def instances(self, instances: Sequence[InstanceId]) -> dict[InstanceId, InstanceView]:
        rows = await self._rows("instances", list(instances))
        return {InstanceId(row["instance_id"]): _instance(row) for row in rows}

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
        page = (None, None) if before is None else (before.created_at, before.instance_id)
        wanted = [state.value for state in states]
        rows = await self._rows("list_instances", namespace, workflow, wanted, quarantined, limit, *page)
        return [_instance(row) for row in rows]

    async def events(self, instance: InstanceId, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        rows = await self._rows("events", instance, after, limit)
        return [recorded(instance, row[0], row[1], row[2], row[3:9], row[9], row[10]) for row in rows]

    async def outputs(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Payload]:
        rows = await self._rows("outputs", list(instances))
        return {InstanceId(row["instance_id"]): Payload(row["output"].encode()) for row in rows if row["output"]}

    async def tasks(self, instance: InstanceId) -> list[TaskRow]:
        return [_task(row) for row in await self._rows("tasks", instance)]

    async def leases(self, instance: InstanceId) -> list[LeaseView]:
        return [_lease(row) for row in await self._rows("leases", instance)]

    async def timers(self, instance: InstanceId) -> list[TimerView]:
        rows = await self._rows("timers", instance)
        return [TimerView(TimerRow(r["key"], r["token"], r["due_at"]), r["sent_at"], r["frozen"]) for r in rows]

    async def outcomes(self, commands: Sequence[CommandKey]) -> dict[CommandKey, CommandRow]:
        rows = await self._rows(
            "outcomes",
            [key.instance_id for key in commands],
            [key.source for key in commands],
            [key.id for key in commands],
        )
        return {command.key: command for command in map(_command, rows)}

    async def commands(self, instance: InstanceId) -> list[tuple[CommandRow, int]]:
        return [(_command(row), row["duplicates"]) for row in await self._rows("commands", instance)]

    async def rejections(self, instance: InstanceId) -> list[Rejection]:
        rows = await self._rows("rejections", instance)
        return [Rejection(instance, TaskPath(row["path"]), row["fence"], row["count"]) for row in rows]

    async def parked(self, *, limit: int = 100) -> list[ParkedView]:
        return [_parked(row) for row in await self._rows("parked", limit)]

    async def parked_inputs(self, instance: InstanceId, limit: int) -> list[ParkedInput]:
        return await self._coordinator.parked_inputs(instance, limit)

    async def counts(self) -> Counts:
        [row] = await self._rows("counts")
        states = orjson.loads(row["instances"] or "{}")
        return Counts({WorkflowState(state): count for state, count in states.items()}, *row[1:])

    async def _rows(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        with translated():
            return await self._database.fetch(_SQL[name], *arguments)


def _error(text: str | None) -> Error | None:
    if text is None:
        return None
    body = orjson.loads(text)
    details = Payload(orjson.dumps(body["details"])) if "details" in body else None
    return Error(body["code"], body["message"], details)


def _instance(row: asyncpg.Record) -> InstanceView:
    return InstanceView(
        instance_id=InstanceId(row["instance_id"]),
        key=instance_key(row["namespace"], row["workflow"], row["run_id"]),
        partition=row["partition"],
        version=row["version"],
        state=WorkflowState(row["state"]),
        execution=row["execution"],
        sequence=row["sequence"],
        fence=row["fence"],
        awaiting=row["awaiting"],
        error=_error(row["error"]),
        last_service=row["last_service"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
        quarantined_at=row["quarantined_at"],
        quarantine_reason=row["quarantine_reason"],
    )


def _task(row: asyncpg.Record) -> TaskRow:
    return TaskRow(
        path=TaskPath(row["path"]),
        execution=row["execution"],
        attempt=row["attempt"],
        status=TaskStatus(row["status"]),
        fence=row["fence"],
        queue=row["queue"],
        activity=row["activity"],
        holder=row["holder"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        error=_error(row["error"]),
    )


def _lease(row: asyncpg.Record) -> LeaseView:
    lease = LeaseRow(
        path=TaskPath(row["path"]),
        execution=row["execution"],
        attempt=row["attempt"],
        fence=row["fence"],
        holder=row["holder"],
        address=row["address"],
        lease_s=row["lease_s"],
        since=row["since"],
        expires_at=row["expires_at"],
        timeout_at=row["timeout_at"],
    )
    details = None if row["details"] is None else Payload(row["details"].encode())
    return LeaseView(lease, row["renewals"], details, row["frozen"])


def _command(row: asyncpg.Record) -> CommandRow:
    return CommandRow(
        key=CommandKey(InstanceId(row["instance_id"]), row["source"], row["id"]),
        instance=InstanceKey(row["instance"]),
        type=row["type"],
        digest=row["digest"],
        outcome=row["outcome"],
        reason=row["reason"],
        received_at=row["received_at"],
    )


def _parked(row: asyncpg.Record) -> ParkedView:
    return ParkedView(
        instance_id=InstanceId(row["instance_id"]),
        instance=InstanceKey(row["instance"]),
        partition=row["partition"],
        inputs=row["inputs"],
        tries=row["tries"],
        next_try_at=row["next_try_at"],
        error=row["error"],
        parked_at=row["parked_at"],
        quarantined_at=row["quarantined_at"],
    )
