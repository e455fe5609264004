"""The twin of `KafkaAdmin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.errors import Refused, Transient
from holdfast.log.memory import MemoryLog, MemoryPartition, MemoryTopic
from holdfast.log.protocol import GroupMember, TopicDescription, TopicPartition, TopicSpec


class MemoryAdmin:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: found.start for tp, found in self._partitions(partitions)}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: found.end for tp, found in self._partitions(partitions)}

    async def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._answer()
        found = self._log.groups.get(group)
        return {tp: found.committed[tp] for tp in partitions if tp in found.committed} if found else {}

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        self._answer()
        return {name: self._log.topics[name].topic_id for name in topics if name in self._log.topics}

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        self._answer()
        return {name: _describe(name, self._log.topics[name]) for name in topics if name in self._log.topics}

    async def create(self, topics: Iterable[TopicSpec]) -> set[str]:
        self._answer()
        return {spec.name for spec in topics if self._log.create(spec)}

    async def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._topic(topic).configs.update(configs)

    async def add_partitions(self, topic: str, partitions: int) -> None:
        if partitions <= len(self._topic(topic).partitions):
            raise Refused("invalid_partitions", f"{topic} has {len(self._topic(topic).partitions)} already")
        self._log.add_partitions(topic, partitions)

    async def delete_topics(self, topics: Iterable[str]) -> set[str]:
        self._answer()
        return {name for name in topics if self._log.delete(name)}

    async def delete_records_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        for tp, found in self._partitions(offsets):
            if offsets[tp] > found.end:
                raise Refused("offset_out_of_range", f"{tp.topic}-{tp.partition} ends at {found.end}")
            found.delete_before(offsets[tp])

    async def group_members(self, group: str) -> list[GroupMember]:
        self._answer()
        found = self._log.groups.get(group)
        return [
            GroupMember(member.member_id, "memory", "memory", tuple(sorted(member.assignment)))
            for member in (found.members if found else ())
        ]

    async def close(self) -> None:
        """Nothing is held."""

    def _answer(self) -> None:
        if not self._log.up:
            raise Transient("the broker is away")

    def _topic(self, name: str) -> MemoryTopic:
        self._answer()
        if name not in self._log.topics:
            raise Refused("unknown_topic_or_part", f"no topic {name}")
        return self._log.topics[name]

    def _partitions(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, MemoryPartition]]:
        self._answer()
        return [(tp, found) for tp in partitions if (found := self._log.partition(tp)) is not None]


def _describe(name: str, topic: MemoryTopic) -> TopicDescription:
    return TopicDescription(name, topic.topic_id, len(topic.partitions), 1, dict(topic.configs))
