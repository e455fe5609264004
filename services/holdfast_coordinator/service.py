"""The coordinator as a process: it assembles the parts and runs them until it is told to stop."""

from holdfast.contracts.topics import COORDINATOR_GROUP, INBOX, REPORTS, TICKS
from holdfast.core.errors import Refused
from holdfast.kit.clock import DatabaseClock
from holdfast.kit.patience import patiently
from holdfast.kit.service import Runtime, run_service
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_consumer import KafkaConsumer
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import Assignments
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.stores import Stores, open_stores
from holdfast_coordinator.coordinator import Coordinator
from holdfast_coordinator.settings import CoordinatorSettings


def run() -> int:
    settings = CoordinatorSettings()
    return run_service("coordinator", settings, lambda runtime: _body(settings, runtime))


async def _body(settings: CoordinatorSettings, runtime: Runtime) -> None:
    kafka = settings.kafka_client(f"holdfast-coordinator-{runtime.instance_id}")
    stores = await patiently("postgres", runtime, lambda: open_stores(settings.postgres_dsn, "coordinator"))
    if stores is None:
        return
    try:
        partitions = await patiently("topics", runtime, lambda: _check_partitions(kafka, stores.coordinator))
        if partitions is not None:
            await _coordinate(settings, runtime, stores, kafka, partitions)
    finally:
        await stores.close()


async def _coordinate(
    settings: CoordinatorSettings, runtime: Runtime, stores: Stores, kafka: KafkaConfig, partitions: int
) -> None:
    clock = DatabaseClock()
    clock.observe(await stores.coordinator.now())

    def consumer(assignments: Assignments) -> KafkaConsumer:
        session_timeout_ms = int(settings.session_timeout_s * 1000)
        return KafkaConsumer(
            kafka, INBOX, COORDINATOR_GROUP, assignments, first=(TICKS, REPORTS), session_timeout_ms=session_timeout_ms
        )

    coordinator = Coordinator(
        settings,
        stores,
        partitions,
        holder=runtime.instance_id,
        clock=clock,
        health=runtime.health,
        log=runtime.log,
        consumer=consumer,
        producer=lambda: KafkaProducer(kafka),
    )
    await coordinator.run(runtime.stopping)


async def _check_partitions(kafka: KafkaConfig, store: CoordinatorStore) -> int:
    """The three inbox topics must have the partition count that Postgres has on record."""
    expected = await store.partition_count()
    if expected is None:
        raise Refused("no_partitions", "no partition count is on record; run `holdfast topics create`")
    admin = KafkaAdmin(kafka)
    try:
        found = await admin.describe(INBOX)
    finally:
        await admin.close()
    for topic in INBOX:
        if topic not in found:
            raise Refused("topic_missing", f"{topic} does not exist; run `holdfast topics create`")
        if found[topic].partitions != expected:
            text = f"{topic} has {found[topic].partitions} partitions, {expected} are on record"
            raise Refused("partition_count", f"{text}: instances would be looked for in the wrong place")
    return expected
