"""Reading a range of a task topic for what is in its headers. No group, nothing committed, values not looked at."""

import asyncio
import time
from array import array
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from holdfast.core.errors import Transient
from holdfast.log.kafka_config import KafkaConfig, as_holdfast_error
from holdfast.log.protocol import TopicPartition
from holdfast_recovery.backlog import FENCE_HEADER, INSTANCE_HEADER, Scanned, mark

_CHUNK_RECORDS = 1000


class KafkaScanner:
    def __init__(self, kafka: KafkaConfig, *, silence_s: float = 10.0) -> None:
        """`silence_s`: for how long Kafka may say nothing before the scan is given up."""
        self._kafka = kafka
        self._silence_s = silence_s

    async def scan(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], records_max: int
    ) -> dict[TopicPartition, Scanned]:
        return await asyncio.to_thread(self._scan, ranges, records_max)

    def _scan(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], records_max: int
    ) -> dict[TopicPartition, Scanned]:
        # The binding wants a group's name; nothing is ever joined or committed with it.
        consumer = confluent_kafka.Consumer(
            self._kafka.client(
                group_id="holdfast.recovery.scan",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                enable_partition_eof=True,
                isolation_level="read_committed",
                auto_offset_reset="error",
            )
        )
        found = {tp: Scanned(array("q"), array("q"), start) for tp, (start, _) in ranges.items()}
        try:
            consumer.assign([confluent_kafka.TopicPartition(*tp, start) for tp, (start, _) in ranges.items()])
            self._read(consumer, {tp: end for tp, (_, end) in ranges.items()}, found, records_max)
        except KafkaException as problem:
            raise as_holdfast_error(problem, "scanning task topics") from problem
        finally:
            consumer.close()
        return found

    def _read(
        self,
        consumer: confluent_kafka.Consumer,
        ends: dict[TopicPartition, int],
        found: dict[TopicPartition, Scanned],
        records_max: int,
    ) -> None:
        open_ends, count, heard_at = dict(ends), 0, time.monotonic()
        while open_ends and count < records_max:
            messages = consumer.consume(_CHUNK_RECORDS, 0.1)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > self._silence_s:
                raise Transient("scanning task topics: kafka says nothing")
            for message in messages:
                tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
                count += self._take(message, tp, ends[tp], found)
                if found[tp].next >= ends[tp] and open_ends.pop(tp, None) is not None:
                    consumer.incremental_unassign([confluent_kafka.TopicPartition(*tp)])

    def _take(
        self, message: confluent_kafka.Message, tp: TopicPartition, end: int, found: dict[TopicPartition, Scanned]
    ) -> int:
        """Note one record; the end of a partition may also be reached by records that are not shown to us."""
        error, known = message.error(), found[tp]
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            known.next = max(known.next, end)
            return 0
        offset = int(message.offset() or 0)
        if offset >= end:
            known.next = end
            return 0
        headers = dict(message.headers() or ())
        instance, fence = headers.get(INSTANCE_HEADER), headers.get(FENCE_HEADER)
        if isinstance(instance, bytes) and isinstance(fence, bytes):
            known.offsets.append(offset)
            known.marks.append(mark(instance, fence))
        known.next = offset + 1
        return 1
