from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.store.migrate import ensure_partitions, migrate
from holdfast.store.stores import Stores, open_stores
from tests.integration.relay.support import PARTITIONS, RelayProcess, Writer, make_topic

StartRelay = Callable[..., RelayProcess]


@pytest.fixture
async def stores(database: str) -> AsyncIterator[Stores]:
    await migrate(database)
    await ensure_partitions(database, PARTITIONS)
    opened = await open_stores(database, "relay test")
    yield opened
    await opened.close()


@pytest.fixture
async def writer(kafka: str, stores: Stores) -> Writer:
    writer = Writer(stores, await make_topic(kafka))
    await writer.claim()
    return writer


@pytest.fixture
def start_relay(kafka: str, database: str, tmp_path: Path) -> Iterator[StartRelay]:
    started: list[RelayProcess] = []

    def start(**settings: object) -> RelayProcess:
        started.append(RelayProcess(kafka, database, tmp_path / f"relay-{len(started) + 1}.log", **settings))
        return started[-1]

    yield start
    for relay in started:
        relay.stop()
