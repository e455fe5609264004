"""Rows as a coordinator leaves them, written by SQL with the database's clock, and what is on the ticks topic."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import asyncpg
import confluent_kafka

from holdfast.contracts.messages import decode_tick
from holdfast.core.ids import InstanceKey, instance_id
from holdfast.core.inputs import Tick
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.murmur2 import partition_for
from holdfast.log.protocol import Message, TopicPartition
from holdfast.store.stores import Stores

PARTITIONS = 4
WAIT_S = 60.0


async def until(condition: Callable[[], Awaitable[bool]], what: str, wait_s: float = WAIT_S) -> None:
    end = time.monotonic() + wait_s
    while not await condition():
        assert time.monotonic() < end, f"not within {wait_s} s: {what}"
        await asyncio.sleep(0.02)


class Ticks:
    """Reads the ticks topic from its beginning, without a group."""

    def __init__(self, kafka: str, topic: str, partitions: int = PARTITIONS) -> None:
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka, "group.id": "recovery-test", "enable.auto.commit": False}
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
        self.found: list[tuple[Tick, int]] = []  # with the time at which the producer made it, in ms
        self.partitions: list[int] = []

    async def read(self) -> list[Tick]:
        for message in await asyncio.to_thread(self._consumer.consume, 5000, 0.05):
            assert message.error() is None, message.error()
            self.found.append((decode_tick(message.value() or b"", "test"), message.timestamp()[1]))
            self.partitions.append(message.partition() or 0)
        return [tick for tick, _ in self.found]

    async def expect(self, count: int) -> list[Tick]:
        async def enough() -> bool:
            return len(await self.read()) >= count

        await until(enough, f"{count} ticks")
        return await self.read()

    async def stays_empty(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert await self.read() == []

    def close(self) -> None:
        self._consumer.close()


@dataclass
class Rows:
    """What a coordinator would have written."""

    database: str
    stores: Stores

    async def sql(self, statement: str, *arguments: object) -> object:
        connection = await asyncpg.connect(self.database)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()

    async def many(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        connection = await asyncpg.connect(self.database)
        try:
            await connection.executemany(statement, rows)
        finally:
            await connection.close()

    async def instances(self, count: int) -> list[tuple[InstanceKey, int]]:
        keys = [InstanceKey(f"shop/order/{uuid.uuid4().hex}") for _ in range(count)]
        made = [(key, partition_for(key.encode(), PARTITIONS)) for key in keys]
        await self.many(
            """INSERT INTO holdfast.workflow_instances (instance_id, partition, namespace, workflow, run_id, version,
                   state, execution, sequence, fence, last_service, created_at, updated_at)
               VALUES ($1, $2, 'shop', 'order', $3, 1, 'RUNNING', 1, 5, 1, 'test', now(), now())""",
            [(instance_id(key), partition, key.split("/", 2)[2]) for key, partition in made],
        )
        return made

    async def timers(self, instances: list[tuple[InstanceKey, int]], in_s: float) -> float:
        """All due at the same moment; returns it, as seconds of the database's clock."""
        due = await self.sql("SELECT clock_timestamp() + $1 * interval '1 second'", in_s)
        await self.many(
            """INSERT INTO holdfast.timers (instance_id, key, partition, token, due_at)
               VALUES ($1, 'sleep:a', $2, 7, $3)""",
            [(instance_id(key), partition, due) for key, partition in instances],
        )
        await self.sql("SELECT pg_notify('holdfast_timers', '')")
        return due.timestamp()  # type: ignore[attr-defined, no-any-return]

    async def lease(self, key: InstanceKey, partition: int, lease_s: float) -> None:
        await self.sql(
            """INSERT INTO holdfast.execution_leases (instance_id, path, partition, execution, attempt, fence, holder,
                   address, lease_s, since, expires_at, timeout_at)
               VALUES ($1, 'charge', $2, 1, 1, 3, 'w', '', $3, now(), now() + $3 * interval '1 second',
                   now() + interval '1 day')""",
            instance_id(key),
            partition,
            lease_s,
        )

    async def heard(self, key: InstanceKey, partition: int, reports_next: int) -> None:
        """The coordinator commits a heartbeat: the renewal and the offset in one transaction."""
        await self.sql(
            """WITH renewed AS (
                   UPDATE holdfast.execution_leases SET renewals = renewals + 1,
                       expires_at = clock_timestamp() + lease_s * interval '1 second' WHERE instance_id = $1)
               UPDATE holdfast.inbox_partitions SET reports_next = $3 WHERE partition = $2""",
            instance_id(key),
            partition,
            reports_next,
        )

    async def processed(self, column: str, partition: int, offset: int) -> None:
        await self.sql(f"UPDATE holdfast.inbox_partitions SET {column} = $2 WHERE partition = $1", partition, offset)

    async def queued(self, key: InstanceKey, queue: str, fences: list[int]) -> None:
        await self.many(
            """INSERT INTO holdfast.task_executions (instance_id, execution, path, attempt, status, fence, queue,
                   activity, queued_at)
               VALUES ($1, 1, 'charge', $2::integer, 'QUEUED', $2::integer, $3, 'a.b', now() - interval '1 minute')""",
            [(instance_id(key), fence, queue) for fence in fences],
        )


async def produce(kafka: str, messages: list[Message]) -> None:
    producer = KafkaProducer(KafkaConfig(kafka))
    assert all(delivery.error is None for delivery in await producer.send_all(messages))
    await producer.close()


async def commit_offsets(kafka: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False})
    try:
        wanted = [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        await asyncio.to_thread(consumer.commit, offsets=wanted, asynchronous=False)
    finally:
        consumer.close()
