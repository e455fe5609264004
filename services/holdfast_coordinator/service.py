"""The coordinator as a process: it assembles the parts and runs them until it is told to stop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.contracts.topics import COORDINATOR_GROUP, INBOX, REPORTS, TICKS
from holdfast.core.errors import Refused, Transient
from holdfast.kit.backoff import Backoff
from holdfast.kit.clock import DatabaseClock
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

T = TypeVar("T")


def run() -> int:
    settings = CoordinatorSettings()
    return run_service("coordinator", settings, lambda runtime: _body(settings, runtime))


async def _body(settings: CoordinatorSettings, runtime: Runtime) -> None:
    kafka = settings.kafka_client(f"holdfast-coordinator-{runtime.instance_id}")
    stores = await _patiently("Postgres", runtime, lambda: open_stores(settings.postgres_dsn, "coordinator"))
    if stores is None:
        return
    try:
        partitions = await _patiently("topics", runtime, lambda: _check_partitions(kafka, stores.coordinator))
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
