"""Timers: never early, once in the normal case, again when lost."""

import pytest

from holdfast.core.errors import Transient
from holdfast.core.inputs import TimerDue
from holdfast_recovery.ticks import UnansweredTicks
from holdfast_recovery.timers import Timers
from tests.unit.recovery.doubles import World


@pytest.fixture
def world() -> World:
    return World()


def keys(world: World) -> list[str]:
    return [tick.key for tick in world.ticks() if isinstance(tick, TimerDue)]


async def test_a_timer_is_sent_when_it_is_due_and_not_before(world: World) -> None:
    world.rows.timer("sleep:a", in_s=0.75)
    timers = Timers(world.rows, world.sender)
    await timers.step()
    assert keys(world) == []
    assert world.rows.waits == [pytest.approx(0.75)]  # Slept exactly until then, not in rounds.
    await timers.step()
    assert keys(world) == ["sleep:a"]
    assert world.rows.sent == {("sleep:a", 1): 0}


async def test_a_timer_that_was_sent_is_not_sent_again(world: World) -> None:
    world.rows.timer("deadline", in_s=0)
    timers = Timers(world.rows, world.sender)
    for _ in range(50):
        await timers.step()
    assert keys(world) == ["deadline"]


async def test_many_timers_go_out_in_pages_without_a_pause(world: World) -> None:
    for number in range(25):
        world.rows.timer(f"t{number}", in_s=0)
    timers = Timers(world.rows, world.sender, page_rows=10)
    for _ in range(3):
        await timers.step()
    assert len(keys(world)) == 25
    assert len(world.rows.waits) == 1


async def test_two_recoveries_send_a_timer_once(world: World) -> None:
    world.rows.timer("a", in_s=0)
    one, two = Timers(world.rows, world.sender), Timers(world.rows, world.sender)
    await one.step()
    await two.step()
    assert keys(world) == ["a"]


async def test_while_kafka_is_away_a_timer_waits_and_is_sent_once_it_is_back(world: World) -> None:
    world.rows.timer("a", in_s=0)
    timers = Timers(world.rows, world.sender, claim_s=10)
    world.log.stop()
    with pytest.raises(Transient):
        await timers.step()
    assert not world.rows.sent
    world.log.start()
    world.clock.s += 10  # The claim runs out.
    await timers.step()
    assert world.rows.sent
    assert set(keys(world)) == {"a"}


async def test_the_claim_of_a_recovery_that_died_runs_out(world: World) -> None:
    world.rows.timer("a", in_s=0)
    await world.rows.claim_due_timers(claim_s=10, limit=10)  # ... and then it was killed.
    timers = Timers(world.rows, world.sender)
    await timers.step()
    assert keys(world) == []
    for _ in range(20):
        await timers.step()
    assert keys(world) == ["a"]


async def test_a_tick_that_was_processed_without_effect_is_sent_again(world: World) -> None:
    world.rows.timer("a", in_s=0)
    await Timers(world.rows, world.sender).step()
    unanswered = UnansweredTicks(world.rows, world.sender)
    await unanswered.step()
    assert keys(world) == ["a"]  # Not processed yet: somebody may still answer it.
    world.rows.inbox[0] = (0, 0, 1)
    assert await unanswered.step() == 10.0
    assert keys(world) == ["a", "a"]
    await unanswered.step()
    assert keys(world) == ["a", "a"]  # Its new offset has not been processed yet.


async def test_a_timer_that_was_consumed_is_not_sent_again(world: World) -> None:
    world.rows.timer("a", in_s=0)
    await Timers(world.rows, world.sender).step()
    world.rows.inbox[0] = (0, 0, 1)
    world.rows.timers.clear()
    world.rows.sent.clear()
    await UnansweredTicks(world.rows, world.sender).step()
    assert keys(world) == ["a"]
