"""Topics as a test sees them: everything that is on one, and a plain producer that sends any bytes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, OffsetSpec

from holdfast.contracts.dlq import dlq_errors

ANY = -1


@dataclass(frozen=True)
class Found:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    at: datetime  # when its producer sent it

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    def header(self, name: str) -> str | None:
        return next((value.decode() for found, value in self.headers if found == name), None)

    @property
    def errors(self) -> dict[str, str]:
        """What a dead letter says about itself."""
        return dlq_errors(self.headers)


class Topics:
    """`bootstrap` is any Kafka. Everything blocks."""

    def __init__(self, bootstrap: str) -> None:
        self._config = {"bootstrap.servers": bootstrap, "client.id": "holdfast-test", "log_level": 0}
        self.admin = AdminClient(self._config)
        self._producer = confluent_kafka.Producer(
            {**self._config, "message.max.bytes": 8_000_000, "partitioner": "murmur2_random"}
        )

    def partitions(self, topic: str) -> list[confluent_kafka.TopicPartition]:
        found = self.admin.list_topics(topic, timeout=10).topics[topic]
        return [confluent_kafka.TopicPartition(topic, number) for number in sorted(found.partitions)]

    def ends(self, topic: str) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.latest())

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        """A topic that was just made, or a broker that was just frozen, has leaders only a moment later."""
        until = time.monotonic() + 20
        while True:
            try:
                asked = self.admin.list_offsets(dict.fromkeys(self.partitions(topic), spec), request_timeout=10)
                return {place.partition: future.result().offset for place, future in asked.items()}
            except confluent_kafka.KafkaException:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def read(self, topic: str) -> list[Found]:
        """Everything from the beginning to the end as it is now, each partition in its order."""
        starts, ends = self._offsets(topic, OffsetSpec.earliest()), self.ends(topic)
        left = {number for number in ends if starts[number] < ends[number]}
        if not left:
            return []
        config: dict[str, Any] = {"group.id": "holdfast-test-reader", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**self._config, **config, "enable.partition.eof": True})
        found: list[Found] = []
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, number, starts[number]) for number in left])
            while left:
                for message in consumer.consume(1000, 0.2):
                    if message.error():
                        if message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                            left.discard(message.partition())
                            continue
                        raise confluent_kafka.KafkaException(message.error())
                    found.append(_found(message))
        finally:
            consumer.close()
        return sorted(found, key=lambda one: (one.partition, one.offset))

    def send(
        self,
        topic: str,
        key: bytes | str | None,
        value: bytes | str | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int = ANY,
    ) -> Found:
        """Send exactly these bytes and wait until Kafka has them; where they are."""
        done: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            done.append(error or message)

        self._producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=delivered)
        self._producer.flush(20)
        if not done or isinstance(done[0], confluent_kafka.KafkaError):
            raise AssertionError(f"Kafka did not take a message to {topic}: {done}")
        return _found(done[0])


def _found(message: confluent_kafka.Message) -> Found:
    at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    headers = tuple((name, value or b"") for name, value in message.headers() or ())
    return Found(message.topic(), message.partition(), message.offset(), message.key(), message.value(), headers, at)
