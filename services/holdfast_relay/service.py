"""The relay as a process: assembled here, driven by `holdfast.kit.service`."""

import asyncio

from holdfast.core.errors import Refused, Transient
from holdfast.kit.patience import patiently
from holdfast.kit.service import Runtime, run_service
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.relay import metrics
from holdfast.store.postgres_relays import RELAY_HOLDER_PREFIX, PostgresRelays
from holdfast.store.stores import open_stores
from holdfast_relay.relay import Relay, RelayLimits
from holdfast_relay.settings import RelaySettings

# What the topics allow; a producer that allowed less would park what Kafka takes.


def run() -> int:
    settings = RelaySettings()
    return run_service("relay", settings, lambda runtime: serve(runtime, settings))


def relay_producer(kafka: KafkaConfig) -> KafkaProducer:
    return KafkaProducer(kafka)


async def serve(runtime: Runtime, settings: RelaySettings) -> None:
    holder = RELAY_HOLDER_PREFIX + runtime.instance_id[-40:]  # Fits into an application_name.
    stores = await patiently("postgres", runtime, lambda: open_stores(settings.postgres_dsn, holder))
    if stores is None:
        return
    assert stores.database is not None
    relays = PostgresRelays(stores.database)
    kafka = settings.kafka_client("holdfast-relay")
    limits = RelayLimits(
        settings.relay_lease_s, settings.relay_poll_s, settings.relay_rows_max, settings.relay_in_flight_bytes_max
    )

    def note(loop: str, reason: str | None) -> None:
        if reason is None:
            runtime.health.passes(loop)
        else:
            runtime.health.fails(loop, reason)

    relay = Relay(stores.outbox, relays, lambda: relay_producer(kafka), holder=holder, limits=limits, note=note)
    runtime.health.started()
    stats = asyncio.create_task(_measure(runtime, relays, settings.relay_stats_s), name="relay-stats")
    try:
        await relay.run(runtime.stopping)
    finally:
        stats.cancel()
        await asyncio.gather(stats, return_exceptions=True)
        await stores.close()


async def _measure(runtime: Runtime, relays: PostgresRelays, every_s: float) -> None:
    while True:
        try:
            stats = await relays.outbox_stats()
        except (Transient, Refused) as problem:
            runtime.log.debug("outbox_not_measured", reason=str(problem))
        else:
            metrics.outbox_rows.set(stats.rows)
            metrics.outbox_age_seconds.set(stats.oldest_s)
            metrics.outbox_parked.set(stats.parked)
        await asyncio.sleep(every_s)
