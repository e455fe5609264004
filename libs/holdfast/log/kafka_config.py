"""How every librdkafka client of ours is told where Kafka is, and which of Kafka's errors mean what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException

from holdfast.core.errors import Fenced, HoldfastError, Refused, Transient
from holdfast.log.protocol import DeliveryError

ClientValue: TypeAlias = str | int | float | bool | Callable[..., object] | None


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where Kafka is; `extra` is passed to every client as it is (TLS, SASL, client.rack) and wins over ours."""

    bootstrap: str = "127.0.0.1:9092"
    extra: Mapping[str, str] = field(default_factory=dict)
    client_id: str = "holdfast"

    def client(self, **own: ClientValue) -> dict[str, ClientValue]:
        """Settings of one client; keyword `a_b` is librdkafka's `a.b`."""
        config: dict[str, ClientValue] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.client_id,
            # A broker that restarts is back in a second or two; the default of 10 s would be a pause of its own.
            "reconnect.backoff.max.ms": 1000,
            "log_level": 4,
        }
        config.update(
            (name if name.endswith(("_cb", "on_commit")) else name.replace("_", "."), value)
            for name, value in own.items()
        )
        config.update(self.extra)
        return config


# The same message fails again, whoever sends it and whenever: it has to be parked.
_PERMANENT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
    }
)

# An answer that says: a member of this id and generation does not own what it talks about.
_FENCED = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)

_REFUSED = _PERMANENT | {
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}


def delivery_error(error: KafkaError) -> DeliveryError:
    """Classify a failed delivery. Exactly one of fatal, permanent and retriable is set."""
    code = error.code()
    fatal = error.fatal() or code == KafkaError._FATAL
    permanent = not fatal and code in _PERMANENT
    return DeliveryError(code, error.name(), not fatal and not permanent, fatal, permanent, error.str())


def as_holdfast_error(error: KafkaError | BaseException, doing: str) -> HoldfastError:
    """Map an error of a request onto our tree."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return Transient(f"{doing}: {error!r}")
    code = error.code()
    if code in _FENCED:
        return Fenced(f"{doing}: {error.str()}")
    if code in _REFUSED:
        return Refused(error.name().lower().lstrip("_"), f"{doing}: {error.str()}")
    return Transient(f"{doing}: {error.str()}")
