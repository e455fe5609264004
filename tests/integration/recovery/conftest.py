import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import TopicSpec
from holdfast.store.migrate import ensure_partitions, migrate
from holdfast.store.stores import Stores, open_stores
from holdfast_recovery.loops import Loops
from holdfast_recovery.sender import TickSender
from tests.integration.recovery.support import PARTITIONS, Rows, Ticks

RunLoop = Callable[[Callable[[], Awaitable[float]]], None]


@pytest.fixture
async def stores(database: str) -> AsyncIterator[Stores]:
    await migrate(database)
    await ensure_partitions(database, PARTITIONS)
    opened = await open_stores(database, "recovery test")
    yield opened
    await opened.close()


@pytest.fixture
def rows(database: str, stores: Stores) -> Rows:
    return Rows(database, stores)


@pytest.fixture
def admin(kafka: str) -> KafkaAdmin:
    return KafkaAdmin(KafkaConfig(kafka), timeout_s=2.0)


@pytest.fixture
async def reports(admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kafka is shared by all tests, so each has inbox topics of its own."""
    name = f"reports-{uuid.uuid4().hex[:12]}"
    await admin.create([TopicSpec(name, PARTITIONS)])
    for module in ("leases", "dispatches"):
        monkeypatch.setattr(f"holdfast_recovery.{module}.REPORTS", name)
    return name


@pytest.fixture
async def ticks(kafka: str, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ticks]:
    name = f"ticks-{uuid.uuid4().hex[:12]}"
    await admin.create([TopicSpec(name, PARTITIONS)])
    monkeypatch.setattr("holdfast_recovery.sender.TICKS", name)
    ticks = Ticks(kafka, name)
    yield ticks
    ticks.close()


@pytest.fixture
async def sender(kafka: str) -> AsyncIterator[TickSender]:
    sender = TickSender(lambda: KafkaProducer(KafkaConfig(kafka)), "recovery/test", timeout_s=5.0)
    yield sender
    await sender.close()


@pytest.fixture
async def run_loop() -> AsyncIterator[RunLoop]:
    """Run a loop as the service does, until the test ends."""
    stopping = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:

        def start(step: Callable[[], Awaitable[float]]) -> None:
            loops = Loops({"loop": step}, lambda name, reason: None)
            task = asyncio.create_task(loops.run(stopping))
            stack.push_async_callback(lambda: task)

        yield start
        stopping.set()
