"""Lag-aware expiry against real Kafka and Postgres, with leases of a second and a half."""

import asyncio

from holdfast.core.inputs import LeaseExpired
from holdfast.log.kafka_admin import KafkaAdmin
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
    await rows.renew(key)
    await rows.processed("reports_next", partition, 1)
    await ticks.stays_empty(LEASE_S / 2)  # Renewed: the old moment expires nothing.
    await ticks.expect(1)


async def test_a_worker_that_heartbeats_is_left_alone(
    kafka: str, rows: Rows, reports: str, ticks: Ticks, admin: KafkaAdmin, sender: TickSender, run_loop: RunLoop
) -> None:
    [(key, partition)] = await rows.instances(1)
    run_loop(Leases(rows.stores.recovery, admin, sender, ask_s=0.2).step)
    await rows.lease(key, partition, LEASE_S)
    for beat in range(10):
        await produce(kafka, [Message(reports, key.encode(), b"heartbeat", (), partition)])
        await rows.renew(key)
        await rows.processed("reports_next", partition, beat + 1)
        await asyncio.sleep(LEASE_S / 3)
    assert await ticks.read() == []
