"""All sides of one store, opened together: `open_stores` for Postgres, `memory_stores` for its twin."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from holdfast.store.memory import MemoryCoordinatorStore, MemoryDefinitionStore, MemoryOutboxStore
from holdfast.store.memory_queries import MemoryQueryStore
from holdfast.store.memory_recovery import MemoryRecoveryStore
from holdfast.store.memory_tables import Tables
from holdfast.store.migrate import check_schema
from holdfast.store.pool import Database, Timeouts, open_database
from holdfast.store.postgres_coordinator import PostgresCoordinatorStore
from holdfast.store.postgres_definitions import PostgresDefinitionStore
from holdfast.store.postgres_outbox import PostgresOutboxStore
from holdfast.store.postgres_queries import PostgresQueryStore
from holdfast.store.postgres_recovery import PostgresRecoveryStore
from holdfast.store.protocol import CoordinatorStore, DefinitionStore, OutboxStore, QueryStore, RecoveryStore


@dataclass(frozen=True, slots=True)
class Stores:
    coordinator: CoordinatorStore
    definitions: DefinitionStore
    outbox: OutboxStore
    recovery: RecoveryStore
    queries: QueryStore
    database: Database | None = None  # Postgres only

    async def close(self) -> None:
        await self.outbox.close()
        await self.recovery.close()
        if self.database is not None:
            await self.database.close()


async def open_stores(
    dsn: str, service: str, *, connections_max: int = 4, timeouts: Timeouts | None = None, prepared: bool = True
) -> Stores:
    """Refused when the schema is behind; Transient when the database does not answer."""
    database = await open_database(dsn, service, connections_max=connections_max, timeouts=timeouts, prepared=prepared)
    try:
        await check_schema(database)
    except BaseException:
        await database.close()
        raise
    return Stores(
        PostgresCoordinatorStore(database),
        PostgresDefinitionStore(database),
        PostgresOutboxStore(database),
        PostgresRecoveryStore(database),
        PostgresQueryStore(database),
        database,
    )


def memory_stores(now: Callable[[], datetime], partitions: int) -> Stores:
    tables = Tables(now, partitions)
    return Stores(
        MemoryCoordinatorStore(tables),
        MemoryDefinitionStore(tables),
        MemoryOutboxStore(tables),
        MemoryRecoveryStore(tables),
        MemoryQueryStore(tables),
    )
