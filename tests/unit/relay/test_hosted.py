"""The relay inside a coordinator: memory first, Postgres when in doubt, nothing overtaken."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from holdfast.contracts.frame import FramedMessage
from holdfast.relay.hosted import HostedLimits, HostedPublisher
from holdfast.store.rows import Claim
from tests.unit.relay.doubles import AWAY, LATER, Outbox, Producers, message, until

QUICK = HostedLimits(lease_s=0.06, flush_s=0.01, in_flight_bytes_max=10_000)
NEVER_BY_ITSELF = HostedLimits(lease_s=600, flush_s=600)


class Coordinator:
    """Commits rows and publishes them, as the real one does."""

    def __init__(self, limits: HostedLimits) -> None:
        self.outbox = Outbox()
        self.producers = Producers()
        self.hosted = HostedPublisher(self.producers, self.outbox, holder="coordinator-1", limits=limits)
        self.last = 0

    async def take(self, *, done: int = 0, epoch: int = 1) -> None:
        self.outbox.epochs[0] = epoch
        await self.hosted.take([claim(done, self.last, epoch)])

    def commit(self, *messages: FramedMessage) -> None:
        self.last += 1
        self.outbox.put(0, self.last, *messages)
        self.hosted.publish(0, self.last, messages)

    def values(self) -> list[str]:
        return self.producers.newest.values if self.producers.made else []

    def reports_arrive(self) -> None:
        for call in self.producers.newest.calls:
            call.arrive()
        self.producers.newest.calls.clear()


def claim(done: int, last: int, epoch: int | None) -> Claim:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Claim(0, 7, 0, 0, 0, last, epoch, done, frozenset(), now)


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.relay.publisher._PRODUCER_DELAY_S", 0.0)
    monkeypatch.setattr("holdfast.relay.hosted._RETRY_S", 0.001)


@pytest.fixture
async def idle() -> AsyncIterator[Coordinator]:
    """Nothing is flushed or renewed by itself."""
    coordinator = Coordinator(NEVER_BY_ITSELF)
    yield coordinator
    await coordinator.hosted.close(0.1)


@pytest.fixture
async def quick() -> AsyncIterator[Coordinator]:
    coordinator = Coordinator(QUICK)
    yield coordinator
    await coordinator.hosted.close(0.1)


async def test_what_was_just_committed_is_published_from_memory(idle: Coordinator) -> None:
    await idle.take()
    idle.commit(message("a", "1"))
    idle.commit(message("a", "2"))
    assert idle.values() == ["1", "2"]
    assert idle.outbox.reads == 0


async def test_done_is_offered_to_commits_until_one_has_stored_it(idle: Coordinator) -> None:
    await idle.take()
    idle.commit(message("a", "1"))
    assert idle.hosted.done(0) is None
    idle.reports_arrive()
    assert idle.hosted.done(0) == 1
    assert idle.hosted.done(0) == 1  # The commit that carried it may have failed.
    assert idle.hosted.wants_flush() == {0: 1}
    idle.hosted.stored(0, 1)
    assert idle.hosted.done(0) is None
    assert idle.hosted.wants_flush() == {}


async def test_a_backlog_goes_out_before_anything_newer(idle: Coordinator) -> None:
    for number in (1, 2, 3):
        idle.last = number
        idle.outbox.put(0, number, message("a", f"old{number}"))
    await idle.take(done=1)
    idle.commit(message("a", "new"))
    await until(lambda: len(idle.values()) == 3)
    assert idle.values() == ["old2", "old3", "new"]
    idle.commit(message("a", "newer"))
    assert idle.values()[-1] == "newer"  # Caught up: from memory again, at once.


async def test_after_a_failure_rows_come_from_the_store_and_are_not_overtaken(idle: Coordinator) -> None:
    await idle.take()
    for value in ("1", "2", "3"):
        idle.commit(message("a", value))
    first = idle.producers.newest
    first.calls[0].arrive()
    first.calls[1].arrive({0: LATER})
    idle.commit(message("a", "4"))
    await until(lambda: idle.producers.newest is not first and len(idle.values()) == 3)
    assert idle.values() == ["2", "3", "4"]
    assert idle.hosted.done(0) == 1


async def test_memory_is_bounded_and_room_is_waited_for(quick: Coordinator) -> None:
    await quick.take()
    for number in range(12):
        quick.commit(message("a", f"{number:04}" + "x" * 1000))
    assert quick.hosted.in_flight_bytes < 12_000
    waits = asyncio.create_task(quick.hosted.room())
    await asyncio.sleep(0)
    assert not waits.done()
    quick.reports_arrive()
    await waits
    while quick.outbox.done.get(0) != 12:
        quick.reports_arrive()
        await asyncio.sleep(0.001)


async def test_an_idle_coordinator_stores_done_and_keeps_its_lease(quick: Coordinator) -> None:
    await quick.take()
    quick.commit(message("a", "1"))
    quick.reports_arrive()
    await until(lambda: quick.outbox.done.get(0) == 1)
    assert not quick.outbox.rows
    await until(lambda: {0} in quick.outbox.renewed)


async def test_who_has_lost_the_lease_publishes_no_more(quick: Coordinator) -> None:
    await quick.take(epoch=1)
    quick.commit(message("a", "1"))
    quick.outbox.epochs[0] = 2
    await until(lambda: quick.hosted.epoch(0) is None)
    quick.commit(message("a", "2"))
    assert quick.values() == ["1"]
    assert quick.hosted.done(0) is None


async def test_storing_done_tells_that_the_lease_is_lost() -> None:
    coordinator = Coordinator(HostedLimits(lease_s=600, flush_s=0.01))
    await coordinator.take(epoch=1)
    coordinator.commit(message("a", "1"))
    coordinator.outbox.epochs[0] = 2
    coordinator.reports_arrive()
    await until(lambda: coordinator.hosted.epoch(0) is None)
    assert coordinator.outbox.done == {}
    await coordinator.hosted.close(0.1)


async def test_postgres_away_is_waited_out(quick: Coordinator) -> None:
    quick.outbox.put(0, 1, message("a", "1"))
    quick.last = 1
    quick.outbox.fail.extend([AWAY] * 3)
    await quick.take()
    await until(lambda: quick.values() == ["1"])


async def test_a_partition_without_the_publishers_lease_is_left_to_the_relay(idle: Coordinator) -> None:
    await idle.hosted.take([claim(0, 0, None)])
    idle.commit(message("a", "1"))
    assert idle.values() == []


async def test_closing_stores_done_and_gives_the_leases_back() -> None:
    coordinator = Coordinator(NEVER_BY_ITSELF)
    await coordinator.take()
    coordinator.commit(message("a", "1"))
    coordinator.reports_arrive()
    await coordinator.hosted.close()
    assert coordinator.outbox.done == {0: 1}
    assert coordinator.outbox.released == {0}
    assert coordinator.producers.newest.closed
