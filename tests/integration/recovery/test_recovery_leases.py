"""Lag-aware expiry against real Kafka and Postgres, with leases of a second and a half."""

import asyncio
import time

from holdfast.core.inputs import LeaseExpired
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import Message
from holdfast_recovery.leases import Leases
from holdfast_recovery.sender import TickSender
from tests.integration.recovery.conftest import RunLoop
from tests.integration.recovery.support import Rows, Ticks, produce

LEASE_S = 1.5


async def test_a_dead_worker_on_an_idle_partition_loses_its_lease(
    rows: Rows, reports: str, ticks: Ticks, admin: KafkaAdmin, sender: TickSender, run_loop: RunLoop
) -> None:
    [(key, partition)] = await rows.instances(1)
    run_loop(Leases(rows.stores.recovery, admin, sender, ask_s=0.2).step)
    await rows.lease(key, partition, LEASE_S)
    [tick] = await ticks.expect(1)
    assert isinstance(tick, LeaseExpired)
    assert (tick.instance, tick.path, tick.fence, tick.renewals) == (key, "charge", 3, 0)


async def test_reports_that_are_not_processed_protect_a_lease(
    kafka: str, rows: Rows, reports: str, ticks: Ticks, admin: KafkaAdmin, sender: TickSender, run_loop: RunLoop
) -> None:
    [(key, partition)] = await rows.instances(1)
    run_loop(Leases(rows.stores.recovery, admin, sender, ask_s=0.2).step)
    await rows.lease(key, partition, LEASE_S)
    await produce(kafka, [Message(reports, key.encode(), b"heartbeat", (), partition)])
    await ticks.stays_empty(3 * LEASE_S)  # The coordinator is stopped.
    await rows.heard(key, partition, 1)
    await ticks.stays_empty(LEASE_S / 2)  # Renewed: the old moment expires nothing.
    await ticks.expect(1)


async def test_a_worker_that_heartbeats_is_left_alone(
    kafka: str, rows: Rows, reports: str, ticks: Ticks, admin: KafkaAdmin, sender: TickSender, run_loop: RunLoop
) -> None:
    """On a machine that is too busy to heartbeat in time a lease may end: then, and only then."""
    [(key, partition)] = await rows.instances(1)
    producer = KafkaProducer(KafkaConfig(kafka))
    run_loop(Leases(rows.stores.recovery, admin, sender, ask_s=0.2).step)
    await rows.lease(key, partition, LEASE_S)
    renewed_at, too_late = time.monotonic(), set()
    for beat in range(12):
        await producer.send_all([Message(reports, key.encode(), b"heartbeat", (), partition)])
        if time.monotonic() - renewed_at >= LEASE_S:
            too_late.add(beat)
        renewed_at = time.monotonic()  # Before the renewal, so that a gap never looks shorter than it was.
        await rows.heard(key, partition, beat + 1)
        await asyncio.sleep(LEASE_S / 3)
    expired = {tick.renewals for tick in await ticks.read() if isinstance(tick, LeaseExpired)}
    assert expired <= too_late
    assert len(too_late) < 6, "this machine was too busy to show anything"
    await producer.close()
