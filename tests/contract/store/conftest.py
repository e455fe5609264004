"""One suite over both implementations: every test here runs against Postgres and against the in-memory twin."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from holdfast.embedded.postgres import execute
from holdfast.embedded.stack import Stack
from holdfast.store.migrate import ensure_partitions, migrate
from holdfast.store.stores import Stores, memory_stores, open_stores

PARTITIONS = 4

# Cheaper by far than a new database for each test.
EMPTY = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables
                 WHERE schemaname = 'holdfast' AND tablename NOT IN ('migrations', 'cluster')
    LOOP
        EXECUTE format('DELETE FROM holdfast.%I', name);
    END LOOP;
    INSERT INTO holdfast.inbox_partitions (partition)
    SELECT n FROM holdfast.cluster, generate_series(0, partitions - 1) n;
    INSERT INTO holdfast.outbox_partitions (partition) SELECT partition FROM holdfast.inbox_partitions;
END
$$
"""


@pytest.fixture(scope="session")
def store_database(stack: Stack) -> Iterator[str]:
    name = f"store_{uuid.uuid4().hex}"
    dsn = stack.postgres.create_database(name)

    async def prepare() -> None:
        await migrate(dsn)
        await ensure_partitions(dsn, PARTITIONS)

    asyncio.run(prepare())
    yield dsn
    stack.postgres.drop_database(name)


@pytest.fixture(params=["memory", "postgres"])
def backing(request: pytest.FixtureRequest) -> str | None:
    """The database, emptied; None for the twin."""
    if request.param == "memory":
        return None
    dsn: str = request.getfixturevalue("store_database")
    execute(dsn, EMPTY)
    return dsn


@pytest.fixture
async def stores(backing: str | None) -> AsyncIterator[Stores]:
    opened = (
        memory_stores(lambda: datetime.now(UTC), PARTITIONS)
        if backing is None
        else await open_stores(backing, "contract test")
    )
    yield opened
    await opened.close()
