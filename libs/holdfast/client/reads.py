"""What the client reads to answer "what became of it": the store's queries, and the pool they run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, Payload
from holdfast.core.transitions import FINISHED
from holdfast.store.pool import Database, open_database
from holdfast.store.postgres_definitions import PostgresDefinitionStore
from holdfast.store.postgres_queries import PostgresQueryStore
from holdfast.store.rows import CommandKey, CommandRow, InstanceView

Status = InstanceView
"""Where a run is now: its row, all of it."""


def is_finished(status: Status) -> bool:
    """FAILED and COMPENSATION_FAILED count as finished until a person acts."""
    return status.state in FINISHED


class Reads(Protocol):
    """The part of the store's queries that waiting needs; each answers for many at once."""

    async def outcomes(self, commands: Sequence[CommandKey]) -> dict[CommandKey, CommandRow]: ...

    async def instances(self, instances: Sequence[InstanceId]) -> dict[InstanceId, InstanceView]: ...

    async def outputs(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Payload]: ...

    async def events(self, instance: InstanceId, *, after: int = 0, limit: int = 1000) -> list[Recorded]: ...

    async def close(self) -> None: ...


class PostgresReads(PostgresQueryStore):
    """The store's queries together with their own few connections."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.database = database
        self.definitions = PostgresDefinitionStore(database)

    @classmethod
    async def open(cls, dsn: str) -> PostgresReads:
        return cls(await open_database(dsn, "client", connections_max=3))

    async def close(self) -> None:
        await self.database.close()
