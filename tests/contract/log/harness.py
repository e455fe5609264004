"""What a contract test needs of a log, and a member that writes down what happens to it."""

from __future__ import annotations

import asyncio
import socket
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_consumer import KafkaConsumer
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.kafka_tail import KafkaTail
from holdfast.log.memory import MemoryLog
from holdfast.log.memory_admin import MemoryAdmin
from holdfast.log.memory_consumer import MemoryConsumer, MemoryTail
from holdfast.log.memory_producer import MemoryProducer
from holdfast.log.protocol import (
    Admin,
    Consumer,
    Delivery,
    Message,
    Producer,
    Record,
    Tail,
    TopicPartition,
    TopicSpec,
)


async def until(condition: Callable[[], object], what: str = "", timeout_s: float = 30.0) -> None:
    """Wait for a condition, never for time; the bound is only there so that a broken test ends."""
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {what or condition}") from None


class Member:
    """An `Assignments` with its consumer: starts where it is told to and notes what it hears, in order."""

    def __init__(self) -> None:
        self.consumer: Consumer
        self.heard: list[tuple[str, list[TopicPartition]]] = []
        self.starts: Mapping[TopicPartition, int] | None = None
        self.before_assigned: Callable[[], Any] | None = None
        self.before_revoked: Callable[[], Any] | None = None

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        if self.before_assigned is not None:
            await self.before_assigned()
        self.heard.append(("assigned", sorted(partitions)))
        return self.starts

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if self.before_revoked is not None:
            await self.before_revoked()
        self.heard.append(("revoked", sorted(partitions)))

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("lost", sorted(partitions)))

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.heard]

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment

    async def read(self, count: int, records_max: int = 500) -> list[Record]:
        return await read(self.consumer, count, records_max)


async def read(reader: Tail, count: int, records_max: int = 500) -> list[Record]:
    """Exactly `count` records, in as many batches as it takes."""
    records: list[Record] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await reader.batch(min(records_max, count - len(records)))
    return records


class Harness(ABC):
    admin: Admin
    long_session: Mapping[str, int] = {}

    def __init__(self) -> None:
        self._open: list[Any] = []

    async def topic(self, partitions: int = 1, *, name: str | None = None, **configs: str) -> str:
        made = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await self.admin.create([TopicSpec(made, partitions, configs=settings)])
        return made

    @staticmethod
    def group() -> str:
        return f"g-{uuid.uuid4().hex[:12]}"

    async def member(
        self,
        topics: str | Sequence[str],
        group: str | None = None,
        *,
        starts: Mapping[TopicPartition, int] | None = None,
        first: Sequence[str] = (),
        wait: bool = True,
        **options: Any,
    ) -> Member:
        """A started member; unless told otherwise it has been given something."""
        member = Member()
        member.starts = starts
        names = [topics] if isinstance(topics, str) else topics
        member.consumer = self._consumer(names, group or self.group(), member, first=first, **options)
        self._open.append(member.consumer)
        await member.consumer.start()
        if wait:
            await until(lambda: member.owned, "an assignment")
        return member

    async def tail(self, topic: str) -> Tail:
        tail = self._tail(topic)
        self._open.append(tail)
        await tail.start()
        return tail

    def producer(self, **options: Any) -> Producer:
        producer = self._producer(**options)
        self._open.append(producer)
        return producer

    async def write(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Delivery]:
        producer = self.producer()
        numbers = range(start, start + count)
        return await producer.send_all([Message(topic, b"k", b"%d" % n, partition=partition) for n in numbers])

    async def close(self) -> None:
        for thing in reversed(self._open):
            await thing.close()
        await self.admin.close()

    @abstractmethod
    def _consumer(self, topics: Sequence[str], group: str, member: Member, **options: Any) -> Consumer: ...

    @abstractmethod
    def _tail(self, topic: str) -> Tail: ...

    @abstractmethod
    def _producer(self, **options: Any) -> Producer: ...

    @abstractmethod
    async def expel(self, group: str, consumer: Consumer, unaware_until: asyncio.Event | None = None) -> None:
        """End this member's session behind its back. Kafka tells it in its own time, the twin after the event."""


class MemoryHarness(Harness):
    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog()
        self.admin = MemoryAdmin(self.log)

    def _consumer(self, topics: Sequence[str], group: str, member: Member, **options: Any) -> Consumer:
        return MemoryConsumer(self.log, topics, group, member, **options)

    def _tail(self, topic: str) -> Tail:
        return MemoryTail(self.log, topic)

    def _producer(self, **options: Any) -> Producer:
        return MemoryProducer(self.log, **options)

    async def expel(self, group: str, consumer: Consumer, unaware_until: asyncio.Event | None = None) -> None:
        assert isinstance(consumer, MemoryConsumer)
        self._finding_out = self.log.expel(consumer, unaware_until.wait() if unaware_until else None)


class KafkaHarness(Harness):
    long_session: Mapping[str, int] = {"session_timeout_ms": 30_000}

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.kafka = KafkaConfig(bootstrap)
        self.admin = KafkaAdmin(self.kafka)

    def _consumer(self, topics: Sequence[str], group: str, member: Member, **options: Any) -> Consumer:
        # The shortest session that a broker allows by default.
        return KafkaConsumer(self.kafka, topics, group, member, **{"session_timeout_ms": 6000, **options})

    def _tail(self, topic: str) -> Tail:
        return KafkaTail(self.kafka, topic, refresh_s=0.2)

    def _producer(self, **options: Any) -> Producer:
        return KafkaProducer(self.kafka, unknown_topic_ms=1000, **options)

    async def expel(self, group: str, consumer: Consumer, unaware_until: asyncio.Event | None = None) -> None:
        """Tell the broker that the member has left: to the member the same as a session that timed out, at once."""
        mine = [m for m in await self.admin.group_members(group) if frozenset(m.partitions) == consumer.assignment]
        assert len(mine) == 1
        await asyncio.to_thread(_leave_group, self.kafka.bootstrap, group, mine[0].member_id)


def _leave_group(bootstrap: str, group: str, member_id: str) -> None:
    """LeaveGroup (key 13, version 3) as bytes: the one request that confluent-kafka cannot send for somebody else."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    body = struct.pack(">hhi", 13, 3, 1) + text("test") + text(group) + struct.pack(">i", 1) + text(member_id)
    body += struct.pack(">h", -1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.recv(4096)
    (error,) = struct.unpack(">h", answer[12:14])
    assert error == 0, f"LeaveGroup answered {error}"
