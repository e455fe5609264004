"""The clients of a worker, over Kafka."""

from __future__ import annotations

from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_consumer import KafkaConsumer
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.kafka_tail import KafkaTail
from holdfast.log.protocol import Admin, Assignments, Consumer, Producer, Tail

# A dead letter carries a whole task message and says why; nothing else of ours comes near.
_message_bytes_max = 2_200_000


class KafkaPort:
    def __init__(self, kafka: KafkaConfig, *, session_timeout_ms: int = 10_000) -> None:
        self._kafka = kafka
        self._session_timeout_ms = session_timeout_ms

    def consumer(self, topic: str, group: str, assignments: Assignments) -> Consumer:
        return KafkaConsumer(self._kafka, [topic], group, assignments, session_timeout_ms=self._session_timeout_ms)

    def tail(self, topic: str) -> Tail:
        return KafkaTail(self._kafka, topic)

    def producer(self) -> Producer:
        return KafkaProducer(self._kafka, message_bytes_max=_message_bytes_max)

    def admin(self) -> Admin:
        return KafkaAdmin(self._kafka)
