"""Lost dispatches and trimmed topics against real Kafka and Postgres."""

import uuid

import pytest

from holdfast.contracts.topics import task_topic, worker_group
from holdfast.core.ids import InstanceKey
from holdfast.core.inputs import DispatchLost
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.protocol import Message, TopicPartition, TopicSpec
from holdfast_recovery.backlog import FENCE_HEADER, INSTANCE_HEADER
from holdfast_recovery.dispatches import LostDispatches
from holdfast_recovery.kafka_scanner import KafkaScanner
from holdfast_recovery.sender import TickSender
from holdfast_recovery.trim import Trim
from tests.integration.recovery.support import Rows, Ticks, commit_offsets, produce, until


class Queue:
    """A task topic of two partitions and the tasks that were dispatched to it."""

    def __init__(self, kafka: str, rows: Rows, admin: KafkaAdmin) -> None:
        self.name = f"q{uuid.uuid4().hex[:12]}"
        self.topic = task_topic(self.name)
        self.kafka, self.rows, self.admin = kafka, rows, admin

    async def make(self) -> None:
        await self.admin.create([TopicSpec(self.topic, 2)])

    async def dispatch(self, key: InstanceKey, fences: list[int], partition: int, *, publish: bool = True) -> None:
        await self.rows.queued(key, self.name, fences)
        if publish:
            await produce(self.kafka, [self.message(key, fence, partition) for fence in fences])

    def message(self, key: InstanceKey, fence: int, partition: int) -> Message:
        headers = ((INSTANCE_HEADER, key.encode()), (FENCE_HEADER, str(fence).encode()))
        return Message(self.topic, b"idempotency", b"task", headers, partition)

    async def commit(self, partition: int, offset: int) -> None:
        await commit_offsets(self.kafka, worker_group(self.name), {TopicPartition(self.topic, partition): offset})


@pytest.fixture
async def queue(kafka: str, rows: Rows, admin: KafkaAdmin) -> Queue:
    queue = Queue(kafka, rows, admin)
    await queue.make()
    return queue


@pytest.fixture
def dispatches(kafka: str, rows: Rows, reports: str, admin: KafkaAdmin, sender: TickSender) -> LostDispatches:
    scanner = KafkaScanner(KafkaConfig(kafka))
    return LostDispatches(rows.stores.recovery, rows.stores.outbox, admin, scanner, sender, publish_wait_s=0.2)


async def lost(ticks: Ticks, count: int) -> list[int]:
    return [tick.fence for tick in await ticks.expect(count) if isinstance(tick, DispatchLost)]


async def test_a_backlog_is_told_from_what_is_lost(
    queue: Queue, rows: Rows, dispatches: LostDispatches, ticks: Ticks
) -> None:
    [(key, _)] = await rows.instances(1)
    await queue.dispatch(key, list(range(1, 301)), 0)
    await queue.dispatch(key, list(range(301, 601)), 1)
    await dispatches.step()
    assert await ticks.read() == []
    await queue.commit(1, 2)
    await dispatches.step()
    assert await lost(ticks, 2) == [301, 302]


async def test_an_unpublished_dispatch_is_late_and_not_lost(
    queue: Queue, rows: Rows, dispatches: LostDispatches, ticks: Ticks
) -> None:
    [(key, partition)] = await rows.instances(1)
    await queue.dispatch(key, [1], 0, publish=False)
    await rows.sql("UPDATE holdfast.inbox_partitions SET outbox_last = 5 WHERE partition = $1", partition)
    await dispatches.step()
    assert await ticks.read() == []
    await rows.sql("UPDATE holdfast.outbox_partitions SET done = 5 WHERE partition = $1", partition)
    await dispatches.step()
    assert await lost(ticks, 1) == [1]


async def test_a_recreated_topic_has_lost_what_was_in_it(
    queue: Queue, rows: Rows, dispatches: LostDispatches, ticks: Ticks, admin: KafkaAdmin
) -> None:
    [(key, _)] = await rows.instances(1)
    await queue.dispatch(key, [1, 2, 3], 0)
    await queue.commit(0, 1)
    await rows.sql("DELETE FROM holdfast.task_executions WHERE fence = 1")
    await dispatches.step()
    await admin.delete_topics([queue.topic])

    async def gone() -> bool:
        return await admin.topic_ids([queue.topic]) == {}

    await until(gone, "the topic is deleted")
    await dispatches.step()
    assert await ticks.read() == []
    await queue.make()
    await queue.dispatch(key, [4], 0)
    await dispatches.step()
    assert await lost(ticks, 2) == [2, 3]


async def test_a_trimmed_topic_begins_at_the_first_unfinished_dispatch(
    queue: Queue, rows: Rows, dispatches: LostDispatches, ticks: Ticks, admin: KafkaAdmin
) -> None:
    async def queues() -> list[str]:
        return [queue.name]

    [(key, _)] = await rows.instances(1)
    await queue.dispatch(key, list(range(1, 101)), 0)
    await queue.commit(0, 60)
    await Trim(queues, admin, records_min=10).step()
    first = TopicPartition(queue.topic, 0)
    assert await admin.start_offsets([first]) == {first: 60}
    await rows.sql("DELETE FROM holdfast.task_executions WHERE fence <= 60")
    await dispatches.step()
    assert await ticks.read() == []
