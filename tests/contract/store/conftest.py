"""One suite over both implementations: every test here runs against Postgres and against the in-memory twin."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from holdfast.store.migrate import ensure_partitions, migrate
from holdfast.store.stores import Stores, memory_stores, open_stores

PARTITIONS = 4


@pytest.fixture(params=["memory", "postgres"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    if request.param == "memory":
        yield memory_stores(lambda: datetime.now(UTC), PARTITIONS)
        return
    dsn = request.getfixturevalue("database")
    await migrate(dsn)
    await ensure_partitions(dsn, PARTITIONS)
    opened = await open_stores(dsn, "contract test")
    yield opened
    await opened.close()
