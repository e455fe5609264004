"""A lease expires when its holder was silent for a whole lease, and for no other reason."""

import pytest

from holdfast.core.errors import Transient
from holdfast.core.inputs import LapseKind, LeaseExpired
from holdfast.log.protocol import TopicPartition
from holdfast_recovery.leases import Leases
from tests.unit.recovery.doubles import World


class Watch(World):
    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases(self.rows, self.admin, self.sender, ask_s=0.3, clock=self.clock)

    async def pass_time(self, seconds: float) -> None:
        """Run the loop as the service would, until so much time has passed; Kafka away is a step that failed."""
        end = self.clock.s + seconds
        while self.clock.s < end:
            try:
                pause_s = await self.leases.step()
            except Transient:
                pause_s = 0.5
            self.clock.s = min(end, self.clock.s + max(pause_s, 0.001))

    def expired(self) -> list[LeaseExpired]:
        return [tick for tick in self.ticks() if isinstance(tick, LeaseExpired)]


@pytest.fixture
async def watch() -> Watch:
    """A recovery that has been running for a while."""
    watch = Watch()
    await watch.pass_time(120)
    return watch


async def test_a_worker_that_dies_on_an_idle_partition_loses_its_lease(watch: Watch) -> None:
    watch.rows.lease(30)
    await watch.pass_time(29.9)
    assert not watch.expired()
    await watch.pass_time(2)
    [tick, *_] = watch.expired()
    assert (tick.fence, tick.renewals, tick.kind) == (1, 0, LapseKind.LEASE)


async def test_a_short_lease_expires_too(watch: Watch) -> None:
    watch.rows.lease(2)
    await watch.pass_time(9)
    assert watch.expired()


async def test_a_worker_that_heartbeats_keeps_its_lease(watch: Watch) -> None:
    watch.rows.lease(30)
    for _ in range(20):
        await watch.pass_time(10)
        watch.report()
        watch.coordinator_catches_up()
        watch.rows.heartbeat()
    assert not watch.expired()


async def test_while_reports_lag_nothing_expires(watch: Watch) -> None:
    watch.rows.lease(30)
    for _ in range(12):  # The coordinator is stopped; the worker goes on.
        await watch.pass_time(10)
        watch.report()
    assert not watch.expired()
    watch.rows.heartbeat()
    watch.coordinator_catches_up()
    await watch.pass_time(25)
    assert not watch.expired()


async def test_a_dead_worker_on_a_busy_partition_loses_its_lease(watch: Watch) -> None:
    """The coordinator is always a little behind the newest end, and never behind one that was read a while ago."""
    watch.report(3)
    watch.rows.lease(30)
    for _ in range(80):
        watch.report()
        watch.coordinator_catches_up(but=3)
        await watch.pass_time(0.5)
    assert watch.expired()


async def test_after_kafka_was_away_nothing_expires_until_it_has_answered_for_one_lease(watch: Watch) -> None:
    watch.rows.lease(30)
    await watch.pass_time(20)
    watch.log.stop()
    await watch.pass_time(60)
    watch.log.start()
    await watch.pass_time(29)
    assert not watch.expired()
    await watch.pass_time(3)
    assert watch.expired()


async def test_a_pause_of_kafka_shorter_than_a_heartbeat_spares_nobody(watch: Watch) -> None:
    watch.rows.lease(30)
    await watch.pass_time(20)
    watch.log.stop()
    await watch.pass_time(8)
    watch.log.start()
    await watch.pass_time(5)
    assert watch.expired()


async def test_a_recovery_that_has_just_started_expires_nothing_for_one_lease() -> None:
    watch = Watch()
    watch.rows.lease(30)
    watch.clock.s += 500  # Nobody was there to look.
    await watch.pass_time(29)
    assert not watch.expired()
    await watch.pass_time(3)
    assert watch.expired()


async def test_a_recovery_that_was_frozen_expires_nothing_for_one_lease(watch: Watch) -> None:
    watch.rows.lease(30)
    await watch.pass_time(10)
    watch.clock.s += 100  # SIGSTOP: both clocks go on.
    await watch.pass_time(29)
    assert not watch.expired()


async def test_an_attempt_that_runs_too_long_is_timed_out_however_it_heartbeats(watch: Watch) -> None:
    watch.rows.lease(30, timeout_s=45)
    for _ in range(5):
        await watch.pass_time(10)
        watch.rows.heartbeat()
    assert watch.expired()[0].kind is LapseKind.TIMEOUT


async def test_a_tick_is_not_repeated_at_every_look(watch: Watch) -> None:
    watch.rows.lease(30)
    await watch.pass_time(35)
    assert len(watch.expired()) == 1
    await watch.pass_time(5)
    assert len(watch.expired()) == 2  # The first may have been lost: again, slowly.


async def test_postgres_away_is_a_gap_as_well(watch: Watch) -> None:
    watch.rows.lease(30)
    await watch.pass_time(10)
    watch.rows.away = True
    await watch.pass_time(60)
    watch.rows.away = False
    await watch.pass_time(29)
    assert not watch.expired()


async def test_a_question_that_timed_out_is_a_gap(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    async def timed_out(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        raise Transient("list offsets: kafka has not answered in time")

    watch.rows.lease(30)
    with monkeypatch.context() as frozen:
        frozen.setattr(watch.admin, "end_offsets", timed_out)
        await watch.pass_time(100)
    await watch.pass_time(29)
    assert not watch.expired()
