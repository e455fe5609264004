"""A Kafka that lives in one process: the twin of the log for simulations and for the pytest kit.

Everything happens on the event loop, in an order that depends on nothing but the calls: no thread, no sleep, no
clock of its own (`now_ms` is given). What a simulation wants to do to Kafka is here too: `stop` and `start` the
broker, and `expel` a member that may not know it yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.log.murmur2 import partition_for
from holdfast.log.protocol import Delivery, DeliveryError, Message, Record, TopicPartition, TopicSpec

if TYPE_CHECKING:
    from holdfast.log.memory_consumer import MemoryConsumer

UNKNOWN_TOPIC = DeliveryError(3, "UNKNOWN_TOPIC_OR_PART", False, False, True, "no such topic")
UNKNOWN_PARTITION = DeliveryError(-190, "_UNKNOWN_PARTITION", False, False, True, "no such partition")
TOO_LARGE = DeliveryError(10, "MSG_SIZE_TOO_LARGE", False, False, True, "message too large")
PURGED = DeliveryError(-152, "_PURGE_QUEUE", True, False, False, "purged")


@dataclass(slots=True)
class MemoryPartition:
    start: int = 0
    records: list[Record] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def read(self, offset: int, records_max: int) -> list[Record]:
        index = offset - self.start
        return self.records[index : index + records_max]

    def delete_before(self, offset: int) -> None:
        cut = min(offset, self.end) - self.start
        if cut > 0:
            del self.records[:cut]
            self.start += cut


@dataclass(slots=True)
class MemoryTopic:
    topic_id: str
    partitions: list[MemoryPartition]
    configs: dict[str, str]
    keyless: int = 0  # messages without a key go round


class MemoryLog:
    """The broker. Consumers, tails, producers and admins of one log are made with it."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.topics: dict[str, MemoryTopic] = {}
        self.groups: dict[str, MemoryGroup] = {}
        self.up = True
        self._topics_made = 0
        self._listeners: dict[object, Callable[[], None]] = {}

    def create(self, spec: TopicSpec) -> bool:
        if spec.name in self.topics:
            return False
        self._topics_made += 1
        partitions = [MemoryPartition() for _ in range(spec.partitions)]
        self.topics[spec.name] = MemoryTopic(f"topic-{self._topics_made}", partitions, dict(spec.configs))
        self._topic_changed(spec.name)
        return True

    def delete(self, topic: str) -> bool:
        if self.topics.pop(topic, None) is None:
            return False
        for group in self.groups.values():
            group.committed = {tp: offset for tp, offset in group.committed.items() if tp.topic != topic}
        self._topic_changed(topic)
        return True

    def add_partitions(self, topic: str, partitions: int) -> None:
        there = self.topics[topic].partitions
        there.extend(MemoryPartition() for _ in range(partitions - len(there)))
        self._topic_changed(topic)

    def partition(self, partition: TopicPartition) -> MemoryPartition | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def append(self, message: Message, message_bytes_max: int) -> Delivery:
        topic = self.topics.get(message.topic)
        if topic is None:
            return Delivery(message.topic, -1, -1, UNKNOWN_TOPIC)
        size = len(message.key or b"") + len(message.value or b"")
        if size > min(message_bytes_max, int(topic.configs.get("max.message.bytes", message_bytes_max))):
            return Delivery(message.topic, -1, -1, TOO_LARGE)
        number = message.partition
        if number is None:
            number = self._choose(topic, message.key)
        if number >= len(topic.partitions):
            return Delivery(message.topic, -1, -1, UNKNOWN_PARTITION)
        partition = topic.partitions[number]
        offset = partition.end
        headers = list(message.headers) or ()
        partition.records.append(
            Record(message.topic, number, offset, message.key, message.value, headers, self.now_ms())
        )
        self.notify()
        return Delivery(message.topic, number, offset)

    def stop(self) -> None:
        """The broker goes away: nothing is read or written until `start`, and nothing is lost."""
        self.up = False

    def start(self) -> None:
        self.up = True
        self.notify()

    def group(self, name: str) -> MemoryGroup:
        return self.groups.setdefault(name, MemoryGroup(self))

    def expel(self, consumer: MemoryConsumer, unaware_until: Awaitable[object] | None = None) -> asyncio.Task[None]:
        """The session of this member timed out. Its partitions go to others at once; it hears `lost` (and joins
        again) only when `unaware_until` is done: until then it goes on as if they were its own."""
        return consumer.expelled(unaware_until)

    def listen(self, who: object, notify: Callable[[], None]) -> None:
        self._listeners[who] = notify

    def unlisten(self, who: object) -> None:
        self._listeners.pop(who, None)

    def notify(self) -> None:
        for notify in list(self._listeners.values()):
            notify()

    def _choose(self, topic: MemoryTopic, key: bytes | None) -> int:
        if key is not None:
            return partition_for(key, len(topic.partitions))
        topic.keyless += 1
        return topic.keyless % len(topic.partitions)

    def _topic_changed(self, topic: str) -> None:
        for group in self.groups.values():
            if any(topic in member.topics for member in group.members):
                group.rebalance()
        self.notify()


class MemoryGroup:
    """A consumer group: who is in it, what it has committed, and the eager rebalance."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.members: list[MemoryConsumer] = []
        self.committed: dict[TopicPartition, int] = {}
        self.joins = 0
        self._asked_for = 0
        self._task: asyncio.Task[None] | None = None

    def rebalance(self) -> None:
        self._asked_for += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._rebalance())

    async def _rebalance(self) -> None:
        """Everybody lets go, then everybody is given their part; from the top when somebody came or went meanwhile."""
        served = -1
        while served != self._asked_for:
            served = self._asked_for
            await asyncio.gather(*[member.ask(member.take_away()) for member in self.members])
            if served == self._asked_for:
                parts = range_assignment(self._log, self.members)
                await asyncio.gather(*[member.ask(member.give(parts[member])) for member in self.members])


def range_assignment(
    log: MemoryLog, members: Iterable[MemoryConsumer]
) -> Mapping[MemoryConsumer, list[TopicPartition]]:
    """Kafka's `range`: per topic, contiguous numbers to members in order of their ids, the first ones get one more."""
    ordered = sorted(members, key=lambda member: member.member_id)
    parts: dict[MemoryConsumer, list[TopicPartition]] = {member: [] for member in ordered}
    for topic in sorted({topic for member in ordered for topic in member.topics} & log.topics.keys()):
        takers = [member for member in ordered if topic in member.topics]
        count = len(log.topics[topic].partitions)
        each, more = divmod(count, len(takers))
        number = 0
        for index, member in enumerate(takers):
            size = each + (1 if index < more else 0)
            parts[member] += [TopicPartition(topic, number + i) for i in range(size)]
            number += size
    return parts
