"""Everything of one topic from now on, without a group: how cancellations reach every worker.

`start` returns when the end of each partition is pinned, so that whatever is written after it is read. Partitions
that appear later are read from their beginning: there was nothing in them before.
"""

from __future__ import annotations

import asyncio
import logging
import time

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_reader import KafkaReader
from holdfast.log.protocol import TopicPartition

_log = logging.getLogger(__name__)


class KafkaTail(KafkaReader):
    def __init__(
        self,
        kafka: KafkaConfig,
        topic: str,
        *,
        refresh_s: float = 10.0,
        request_timeout_s: float = 5.0,
        buffer_records_max: int = 10_000,
        buffer_bytes_max: int = 32 * 1024 * 1024,
    ) -> None:
        """`refresh_s` is how long a new partition (or the topic itself) may go unnoticed."""
        # The binding wants a group's name; nothing is ever joined or committed with it.
        super().__init__(kafka.client(group_id="holdfast.tail"), (), buffer_records_max, buffer_bytes_max)
        self._topic = topic
        self._refresh_s = refresh_s
        self._request_timeout_s = request_timeout_s
        self._refresh_at = 0.0
        self._pinned: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Waits for Kafka for as long as it takes. A topic that does not exist yet is read once it does."""
        self._pinned = asyncio.get_running_loop().create_future()
        await super().start()
        await self._pinned

    def _open(self) -> None:
        while not self._closing and not self._pin(from_end=True):
            time.sleep(0.1)  # The reader's own thread; the loop goes on.
        self._post(self._opened)

    def _opened(self) -> None:
        if self._pinned is not None and not self._pinned.done():
            self._pinned.set_result(None)

    def _fail(self, failure: BaseException) -> None:
        super()._fail(failure)
        if self._pinned is not None and not self._pinned.done():
            self._pinned.set_exception(failure)

    def _each_round(self) -> None:
        super()._each_round()
        if time.monotonic() >= self._refresh_at:
            self._pin(from_end=False)

    def _pin(self, *, from_end: bool) -> bool:
        """Assign the partitions that are new. False where Kafka did not answer."""
        self._refresh_at = time.monotonic() + self._refresh_s
        try:
            topic = self._handle.list_topics(self._topic, timeout=self._request_timeout_s).topics[self._topic]
            if topic.error is not None and topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(topic.error)
            new = [tp for p in topic.partitions if (tp := TopicPartition(self._topic, p)) not in self._assigned_here]
            starts = [confluent_kafka.TopicPartition(*tp, self._start_of(tp, from_end=from_end)) for tp in new]
            if starts:
                self._handle.incremental_assign(starts)
        except KafkaException as problem:
            self.errors[problem.args[0].name()] += 1
            _log.warning("tail of %s: %s", self._topic, problem.args[0].str())
            return False
        self._assigned_here.update(new)
        return True

    def _start_of(self, partition: TopicPartition, *, from_end: bool) -> int:
        if not from_end:
            return 0
        ends = self._handle.get_watermark_offsets(
            confluent_kafka.TopicPartition(*partition), timeout=self._request_timeout_s, cached=False
        )
        if ends is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return int(ends[1])
