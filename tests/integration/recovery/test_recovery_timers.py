"""Timers against real Kafka and Postgres."""

from collections.abc import Callable

from holdfast.core.inputs import TimerDue
from holdfast_recovery.sender import TickSender
from holdfast_recovery.ticks import UnansweredTicks
from holdfast_recovery.timers import Timers
from tests.integration.recovery.conftest import RunLoop
from tests.integration.recovery.support import Rows, Ticks, until


async def test_two_thousand_timers_of_one_moment_go_out_together_and_never_early(
    rows: Rows, ticks: Ticks, sender: TickSender, run_loop: RunLoop, say: Callable[[str], None]
) -> None:
    run_loop(Timers(rows.stores.recovery, sender).step)
    instances = await rows.instances(2000)
    due_s = await rows.timers(instances, in_s=2.0)
    found = await ticks.expect(2000)
    assert {(tick.instance, tick.key, tick.token) for tick in found if isinstance(tick, TimerDue)} == {
        (key, "sleep:a", 7) for key, _ in instances
    }
    late_ms = sorted(at - int(due_s * 1000) for _, at in ticks.found)
    say(f"2,000 timers of one moment: first {late_ms[0]} ms late, median {late_ms[1000]}, last {late_ms[-1]}")
    assert late_ms[0] >= 0
    assert late_ms[-1] < 2000  # Far above what is measured on a quiet machine: this one may be busy.
    by_key = dict(instances)
    assert [by_key[tick.instance] for tick, _ in ticks.found] == ticks.partitions
    assert len(await ticks.read()) == 2000

    async def all_marked() -> bool:
        return await rows.sql("SELECT count(*) FROM holdfast.timers WHERE sent_offset IS NULL") == 0

    await until(all_marked, "all marked as sent")


async def test_an_earlier_timer_wakes_a_sleeping_recovery(
    rows: Rows, ticks: Ticks, sender: TickSender, run_loop: RunLoop
) -> None:
    [late, early] = [[one] for one in await rows.instances(2)]
    await rows.timers(late, in_s=600)
    run_loop(Timers(rows.stores.recovery, sender, poll_s=600).step)
    await ticks.stays_empty(0.5)
    await rows.timers(early, in_s=0.3)
    [tick] = await ticks.expect(1)
    assert tick.instance == early[0][0]


async def test_two_recoveries_send_each_timer_once(
    rows: Rows, ticks: Ticks, sender: TickSender, run_loop: RunLoop
) -> None:
    run_loop(Timers(rows.stores.recovery, sender, page_rows=20).step)
    run_loop(Timers(rows.stores.recovery, sender, page_rows=20).step)
    await rows.timers(await rows.instances(400), in_s=0.5)
    await ticks.expect(400)
    assert len({tick.instance for tick in await ticks.read()}) == 400 == len(await ticks.read())


async def test_a_tick_without_effect_is_sent_again(
    rows: Rows, ticks: Ticks, sender: TickSender, run_loop: RunLoop
) -> None:
    run_loop(Timers(rows.stores.recovery, sender).step)
    [(key, partition)] = instances = await rows.instances(1)
    await rows.timers(instances, in_s=0)
    await ticks.expect(1)
    run_loop(UnansweredTicks(rows.stores.recovery, sender, every_s=0.05).step)
    await rows.processed("ticks_next", partition, 1)
    assert [tick.instance for tick in await ticks.expect(2)] == [key, key]
    await rows.sql("DELETE FROM holdfast.timers")
    await rows.processed("ticks_next", partition, 2)
    assert len(await ticks.read()) == 2
