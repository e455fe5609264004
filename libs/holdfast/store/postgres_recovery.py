"""Recovery's side of the store on Postgres."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from holdfast.core.ids import TaskPath, instance_key
from holdfast.store import queries
from holdfast.store.failures import translated
from holdfast.store.listen import Listener
from holdfast.store.pool import Database
from holdfast.store.rows import DueLease, DueTimer, QueuedTask

_SQL = queries.load("recovery")


class PostgresRecoveryStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._listener = Listener(database, "holdfast_timers")

    async def now(self) -> datetime:
        now: datetime = await self._value("now")
        return now

    async def claim_due_timers(self, *, claim_s: float, limit: int) -> list[DueTimer]:
        return _timers(await self._rows("claim_due_timers", claim_s, limit))

    async def next_due(self) -> datetime | None:
        due: datetime | None = await self._value("next_due")
        return due

    async def mark_timers_sent(self, sent: Sequence[tuple[DueTimer, int]]) -> None:
        with translated():
            await self._database.execute(
                _SQL["mark_timers_sent"],
                [timer.instance_id for timer, _ in sent],
                [timer.key for timer, _ in sent],
                [timer.token for timer, _ in sent],
                [offset for _, offset in sent],
            )

    async def unanswered_timers(self, *, limit: int, claim_s: float = 10.0) -> list[DueTimer]:
        return _timers(await self._rows("unanswered_timers", claim_s, limit))

    async def lapsed_leases(
        self, partition: int, until: datetime, reports_end: int, *, limit: int, after: DueLease | None = None
    ) -> list[DueLease]:
        page: tuple[Any, ...] = (None, None, None)
        if after is not None:
            page = (min(after.expires_at, after.timeout_at), after.instance_id, after.path)
        return [_lease(row) for row in await self._rows("lapsed_leases", partition, until, reports_end, limit, *page)]

    async def partitions_with_due_leases(self, until: datetime) -> dict[int, float]:
        return {row["partition"]: row["lease_s"] for row in await self._rows("partitions_with_due_leases", until)}

    async def next_lease_due(self) -> datetime | None:
        due: datetime | None = await self._value("next_lease_due")
        return due

    async def queued_since(self, before: datetime, *, limit: int, after: QueuedTask | None = None) -> list[QueuedTask]:
        page: tuple[Any, ...] = (None, None, None)
        if after is not None:
            page = (after.queued_at, after.instance_id, after.path)
        return [_queued(row) for row in await self._rows("queued_since", before, limit, *page)]

    async def still_queued(self, tasks: Sequence[QueuedTask]) -> list[QueuedTask]:
        rows = await self._rows(
            "still_queued",
            [task.instance_id for task in tasks],
            [task.execution for task in tasks],
            [task.path for task in tasks],
            [task.attempt for task in tasks],
            [task.fence for task in tasks],
        )
        return [tasks[row["place"] - 1] for row in rows]

    async def inbox_positions(self) -> dict[int, tuple[int, int, int]]:
        return {row[0]: (row[1], row[2], row[3]) for row in await self._rows("inbox_positions")}

    async def outbox_positions(self) -> dict[int, tuple[int, int]]:
        return {row[0]: (row[1], row[2]) for row in await self._rows("outbox_positions")}

    async def wait_for_timers(self, timeout_s: float) -> None:
        if await self._listener.ready():
            await self._listener.wait(timeout_s)
        else:
            await asyncio.sleep(timeout_s)

    async def close(self) -> None:
        await self._listener.close()

    async def _rows(self, name: str, *arguments: Any) -> list[asyncpg.Record]:
        with translated():
            return await self._database.fetch(_SQL[name], *arguments)

    async def _value(self, name: str) -> Any:
        with translated():
            return await self._database.fetchval(_SQL[name])


def _timers(rows: list[asyncpg.Record]) -> list[DueTimer]:
    timers = [
        DueTimer(
            row["partition"],
            row["instance_id"],
            instance_key(row["namespace"], row["workflow"], row["run_id"]),
            row["key"],
            row["token"],
            row["due_at"],
        )
        for row in rows
    ]
    return sorted(timers, key=lambda timer: (timer.due_at, timer.instance, timer.key))


def _lease(row: asyncpg.Record) -> DueLease:
    return DueLease(
        row["partition"],
        row["instance_id"],
        instance_key(row["namespace"], row["workflow"], row["run_id"]),
        TaskPath(row["path"]),
        row["fence"],
        row["renewals"],
        row["lease_s"],
        row["expires_at"],
        row["timeout_at"],
    )


def _queued(row: asyncpg.Record) -> QueuedTask:
    return QueuedTask(
        row["partition"],
        row["instance_id"],
        instance_key(row["namespace"], row["workflow"], row["run_id"]),
        TaskPath(row["path"]),
        row["execution"],
        row["attempt"],
        row["fence"],
        row["queue"],
        row["queued_at"],
    )
