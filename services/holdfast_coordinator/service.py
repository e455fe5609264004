"""The coordinator as a process: it assembles the parts and runs them until it is told to stop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.contracts.topics import COORDINATOR_GROUP, INBOX, REPORTS, TICKS
from holdfast.core.errors import Refused, Transient
from holdfast.kit.backoff import Backoff
from holdfast.kit.clock import DatabaseClock
from holdfast.kit.logging import Logger
from holdfast.kit.service import Runtime, run_service
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_consumer import KafkaConsumer
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.relay.hosted import HostedLimits, HostedPublisher
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.stores import Stores, open_stores
from holdfast_coordinator.assignment import Assignment
from holdfast_coordinator.cache import StateCache
from holdfast_coordinator.definitions import DefinitionCache
from holdfast_coordinator.intake import Intake
from holdfast_coordinator.parking import Parking
from holdfast_coordinator.pipeline import Pipeline
from holdfast_coordinator.preparing import Preparer
from holdfast_coordinator.settings import CoordinatorSettings

T = TypeVar("T")


def run() -> int:
    settings = CoordinatorSettings()
    return run_service("coordinator", settings, lambda runtime: _body(settings, runtime))


async def _body(settings: CoordinatorSettings, runtime: Runtime) -> None:
    holder = runtime.instance_id
    kafka = settings.kafka_client(f"holdfast-coordinator-{holder}")
    stores = await _patiently("Postgres", runtime, lambda: open_stores(settings.postgres_dsn, "coordinator"))
    if stores is None:
        return
    try:
        partitions = await _patiently("topics", runtime, lambda: _check_partitions(kafka, stores.coordinator))
        if partitions is not None:
            await _coordinate(settings, runtime, stores, kafka, partitions, holder)
    finally:
        await stores.close()


async def _coordinate(
    settings: CoordinatorSettings, runtime: Runtime, stores: Stores, kafka: KafkaConfig, partitions: int, holder: str
) -> None:
    log: Logger = runtime.log
    clock = DatabaseClock()
    clock.observe(await stores.coordinator.now())
    cache = StateCache(settings.cache_states_max)
    parking = Parking(settings)
    preparer = Preparer(
        stores.coordinator,
        cache,
        DefinitionCache(stores.coordinator),
        Intake(partitions, holder),
        clock,
        service=holder,
        snapshot_events_min=settings.snapshot_events_min,
    )
    publisher = None
    if settings.relay == "hosted":
        limits = HostedLimits(lease_s=settings.publisher_lease_s)
        publisher = HostedPublisher(lambda: KafkaProducer(kafka), stores.outbox, holder=holder, limits=limits)
    assignment = Assignment(
        settings, stores.coordinator, cache, parking, clock, publisher, log, holder=holder, health=runtime.health
    )
    consumer = KafkaConsumer(
        kafka,
        INBOX,
        COORDINATOR_GROUP,
        assignment,
        first=(TICKS, REPORTS),
        session_timeout_ms=int(settings.session_timeout_s * 1000),
    )
    pipeline = Pipeline(
        stores.coordinator,
        consumer,
        assignment,
        cache,
        preparer,
        parking,
        clock,
        publisher,
        log,
        batch_inputs_max=settings.batch_inputs_max,
    )
    await consumer.start()
    runtime.health.started()
    try:
        await pipeline.run(runtime.stopping)
    finally:
        await consumer.close()
        if publisher is not None:
            await publisher.close()


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


async def _patiently(what: str, runtime: Runtime, ask: Callable[[], Awaitable[T]]) -> T | None:
    """Not ready until it answers, however long that takes; None if we are told to stop first."""
    backoff = Backoff()
    while not runtime.stopping.is_set():
        try:
            answer = await ask()
            runtime.health.passes(what)
            return answer
        except (Transient, Refused) as problem:
            runtime.log.warning("coordinator_waits", needs=what, reason=str(problem))
            runtime.health.fails(what, str(problem))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(runtime.stopping.wait(), backoff.next_s())
    return None
