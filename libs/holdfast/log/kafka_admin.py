"""Asking and arranging: `Admin` over confluent-kafka's AdminClient, whose futures are awaited on the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its __init__ exports without saying so.
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from holdfast.core.errors import Transient
from holdfast.log.kafka_config import KafkaConfig, as_holdfast_error
from holdfast.log.protocol import GroupMember, TopicDescription, TopicPartition, TopicSpec

_log = logging.getLogger(__name__)
_K = TypeVar("_K", bound=Hashable)

_COORDINATOR_MOVES = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)
_COORDINATOR_PAUSE_S = 0.1
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_NO_GROUP = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID})


class KafkaAdmin:
    def __init__(self, kafka: KafkaConfig, *, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        # librdkafka asks the leader that it remembers, also after an election, for as long as it remembers.
        remembered: dict[str, Any] = {"metadata.max.age.ms": 2000}
        self._config: dict[str, Any] = remembered | dict(kafka.client(error_cb=self._on_error))
        self._handle = AdminClient(self._config, logger=_log)
        self._readers: dict[str, confluent_kafka.Consumer] = {}

    async def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    async def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Asked by a consumer handle that never joins. AdminClient.list_consumer_group_offsets ends the process with a
        segmentation fault when the group's coordinator is moving or not there yet (librdkafka 2.16.0: it refreshes
        the coordinator of a consumer group that an admin handle does not have)."""
        wanted = [confluent_kafka.TopicPartition(*tp) for tp in partitions]
        if not wanted:
            return {}
        reader = self._readers.get(group)
        if reader is None:
            reader = self._readers[group] = confluent_kafka.Consumer({**self._config, "group.id": group}, logger=_log)
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                found = await asyncio.to_thread(reader.committed, wanted, timeout=self._timeout_s)
                break
            except KafkaException as problem:
                # On a fresh broker the group's coordinator is being made, and librdkafka does not wait for it here.
                if problem.args[0].code() not in _COORDINATOR_MOVES or time.monotonic() >= until:
                    raise as_holdfast_error(problem, f"committed offsets of {group}") from problem
                await asyncio.sleep(_COORDINATOR_PAUSE_S)
        for tp in found:
            if tp.error is not None and tp.error.code() not in _NO_TOPIC:
                raise as_holdfast_error(tp.error, f"committed offsets of {group}")
        return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {name: str(topic.topic_id) for name, topic in (await self._topics(topics)).items()}

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        found = await self._topics(topics)
        if not found:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in found]
        asked = self._handle.describe_configs(resources, request_timeout=self._timeout_s)
        configs = {
            resource.name: {entry.name: entry.value for entry in entries.values()}
            for resource, entries in (await self._answers(asked, "describe configs", missing=_NO_TOPIC)).items()
        }
        return {
            name: TopicDescription(
                name,
                str(topic.topic_id),
                len(topic.partitions),
                min((len(partition.replicas) for partition in topic.partitions), default=0),
                configs[name],
            )
            for name, topic in found.items()
            if name in configs
        }

    async def create(self, topics: Iterable[TopicSpec]) -> set[str]:
        new = [NewTopic(spec.name, spec.partitions, spec.replication, config=dict(spec.configs)) for spec in topics]
        if not new:
            return set()
        asked = self._handle.create_topics(new, request_timeout=self._timeout_s)
        made = set(await self._answers(asked, "create topics", missing=frozenset({KafkaError.TOPIC_ALREADY_EXISTS})))
        await self._until_visible({spec.topic for spec in new})
        return made

    async def _until_visible(self, names: set[str]) -> None:
        """The controller has them, but a broker may not have heard yet, and a consumer that then finds no topic
        looks again only after its refresh interval."""
        deadline = time.monotonic() + self._timeout_s
        while names - (await self._topics(names)).keys():
            if time.monotonic() > deadline:
                raise Transient(f"topics were made and are not to be seen: {sorted(names)}")
            await asyncio.sleep(0.02)

    async def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        asked = self._handle.incremental_alter_configs([resource], request_timeout=self._timeout_s)
        await self._answers(asked, f"alter {topic}")

    async def add_partitions(self, topic: str, partitions: int) -> None:
        asked = self._handle.create_partitions([NewPartitions(topic, partitions)], request_timeout=self._timeout_s)
        await self._answers(asked, f"add partitions to {topic}")

    async def delete_topics(self, topics: Iterable[str]) -> set[str]:
        names = list(topics)
        if not names:
            return set()
        asked = self._handle.delete_topics(names, request_timeout=self._timeout_s)
        return set(await self._answers(asked, "delete topics", missing=_NO_TOPIC))

    async def delete_records_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            wanted = [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in offsets.items()]
            asked = self._handle.delete_records(wanted, request_timeout=self._timeout_s)
            await self._answers(asked, "delete records")

    async def group_members(self, group: str) -> list[GroupMember]:
        asked = self._handle.describe_consumer_groups([group], request_timeout=self._timeout_s)
        answers = await self._answers(asked, f"members of {group}", missing=_NO_GROUP)
        return [
            GroupMember(
                member.member_id,
                member.client_id,
                member.host,
                tuple(sorted(TopicPartition(tp.topic, tp.partition) for tp in member.assignment.topic_partitions)),
            )
            for answer in answers.values()
            for member in answer.members
        ]

    async def close(self) -> None:
        """The admin handle ends with its last reference; there is nothing to flush."""
        while self._readers:
            _, reader = self._readers.popitem()
            await asyncio.to_thread(reader.close)

    async def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        wanted = {confluent_kafka.TopicPartition(*tp): spec for tp in partitions}
        if not wanted:
            return {}
        asked = self._handle.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout_s
        )
        answers = await self._answers(asked, "list offsets", missing=_NO_TOPIC)
        if any(answer.offset < 0 for answer in answers.values()):
            # The binding answers a question that timed out with -1001 instead of an error. Taken for an end, that
            # would be one that everybody has reached, and leases would expire because the broker is away.
            raise Transient("list offsets: kafka has not answered in time")
        return {TopicPartition(tp.topic, tp.partition): answer.offset for tp, answer in answers.items()}

    async def _topics(self, topics: Iterable[str]) -> dict[str, Any]:
        names = list(topics)
        if not names:
            return {}
        asked = self._handle.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
        return await self._answers(asked, "describe topics", missing=_NO_TOPIC)

    async def _answers(
        self, asked: Mapping[_K, Future[Any]], doing: str, missing: frozenset[int] = frozenset()
    ) -> dict[_K, Any]:
        """Wait for all; errors in `missing` leave the key out, the first other one is raised as ours."""
        answers: dict[_K, Any] = {}
        waiting = asyncio.gather(*map(asyncio.wrap_future, asked.values()), return_exceptions=True)
        try:
            # librdkafka's own bound holds per request; some of these are two or three in a row.
            results = await asyncio.wait_for(waiting, self._timeout_s * 3)
        except TimeoutError as late:
            raise Transient(f"{doing}: no answer") from late
        for key, result in zip(asked, results, strict=True):
            if isinstance(result, KafkaException) and result.args[0].code() in missing:
                continue
            if isinstance(result, BaseException):
                raise as_holdfast_error(result, doing) from result
            answers[key] = result
        return answers

    def _on_error(self, error: KafkaError) -> None:
        _log.warning("kafka admin: %s", error.str())
