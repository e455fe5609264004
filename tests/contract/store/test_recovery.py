"""Section 8: what is due is claimed once, sent again when unanswered, and never seen while its instance is frozen."""

import asyncio
import time
from datetime import datetime, timedelta

from holdfast.core.changes import TimerRow
from holdfast.core.ids import TaskPath
from holdfast.core.transitions import TaskStatus
from holdfast.store.rows import ParkedTry
from holdfast.store.stores import Stores
from tests.contract.store.given import (
    CHARGE,
    LATER,
    NOW,
    Coordinator,
    id_of,
    key_of,
    lease,
    more,
    new,
    parked,
    renewal,
    task,
    tasks,
    timer,
)


async def soon(stores: Stores, seconds: float) -> datetime:
    return await stores.recovery.now() + timedelta(seconds=seconds)


async def quarantine(owner: Coordinator, run: str) -> None:
    tried = ParkedTry(id_of(run), 5, None, "no tries left", quarantine=True)
    await owner.commit(parked=[parked(run, 1)], parked_tries=[tried])


async def test_a_timer_is_claimed_once_and_never_early(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 1)
    due_at = await soon(stores, 0.2)
    await owner.commit(new("a", timers=timer(token=7, due_at=due_at)), home=1)
    assert await stores.recovery.claim_due_timers(claim_s=30, limit=9) == []
    assert await stores.recovery.next_due() == due_at
    await asyncio.sleep(0.25)
    [due] = await stores.recovery.claim_due_timers(claim_s=30, limit=9)
    assert (due.partition, due.instance_id, due.instance) == (1, id_of("a"), key_of("a"))
    assert (due.key, due.token, due.due_at) == ("deadline", 7, due_at)
    assert await stores.recovery.claim_due_timers(claim_s=30, limit=9) == []


async def test_timers_are_claimed_earliest_first_and_page_by_page(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    several = {f"t{n}": TimerRow(f"t{n}", n, NOW - timedelta(days=200, seconds=n)) for n in range(5)}
    await owner.commit(new("a", timers=several))
    first = await stores.recovery.claim_due_timers(claim_s=30, limit=3)
    second = await stores.recovery.claim_due_timers(claim_s=30, limit=3)
    assert [due.key for due in first] == ["t4", "t3", "t2"]
    assert [due.key for due in second] == ["t1", "t0"]


async def test_a_claim_that_ran_out_makes_the_timer_due_again(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", timers=timer(due_at=await soon(stores, -1))))
    [first] = await stores.recovery.claim_due_timers(claim_s=0.1, limit=9)
    next_due = await stores.recovery.next_due()
    assert next_due is not None
    assert next_due > first.due_at  # not before the claim runs out: recovery must not spin
    await asyncio.sleep(0.15)
    assert await stores.recovery.claim_due_timers(claim_s=30, limit=9) == [first]


async def test_a_sent_timer_is_sent_again_only_when_ticks_were_processed_past_it(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", timers=timer(due_at=await soon(stores, -1))))
    [due] = await stores.recovery.claim_due_timers(claim_s=0, limit=9)
    await stores.recovery.mark_timers_sent([(due, 5)])
    assert await stores.recovery.claim_due_timers(claim_s=30, limit=9) == []
    assert await stores.recovery.next_due() is None
    await owner.commit(advance=owner.advance(ticks=5))
    assert await stores.recovery.unanswered_timers(limit=9) == []
    await owner.commit(advance=owner.advance(ticks=1))
    assert await stores.recovery.unanswered_timers(limit=9) == [due]
    assert await stores.recovery.unanswered_timers(limit=9) == []  # claimed by whoever asked first
    await stores.recovery.mark_timers_sent([(due, 9)])
    assert await stores.recovery.unanswered_timers(limit=9) == []
    await owner.commit(more("a", 2, timers={"deadline": None}), advance=owner.advance(ticks=5))
    assert await stores.recovery.unanswered_timers(limit=9) == []


async def test_a_new_schedule_under_the_same_key_is_a_new_timer(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", timers=timer(token=1, due_at=await soon(stores, -1))))
    [old] = await stores.recovery.claim_due_timers(claim_s=30, limit=9)
    await owner.commit(more("a", 2, timers=timer(token=2, due_at=await soon(stores, -1))))
    await stores.recovery.mark_timers_sent([(old, 1)])  # too late: it speaks of the old token
    [fresh] = await stores.recovery.claim_due_timers(claim_s=30, limit=9)
    assert fresh.token == 2


async def test_a_lease_lapses_only_when_reports_are_processed_up_to_the_end(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 1)
    await owner.commit(new("a", leases={CHARGE: lease()}), home=1)
    late = NOW + timedelta(seconds=31)
    assert await stores.recovery.lapsed_leases(1, late, 3, limit=9) == []
    await owner.commit(advance=owner.advance(1, reports=3))
    [lapsed] = await stores.recovery.lapsed_leases(1, late, 3, limit=9)
    assert (lapsed.instance, lapsed.path, lapsed.fence, lapsed.renewals) == (key_of("a"), CHARGE, 1, 0)
    assert (lapsed.lease_s, lapsed.expires_at, lapsed.timeout_at) == (30.0, NOW + timedelta(seconds=30), LATER)
    assert await stores.recovery.lapsed_leases(0, late, 0, limit=9) == []
    assert await stores.recovery.lapsed_leases(1, NOW, 3, limit=9) == []


async def test_a_renewed_lease_does_not_lapse_but_its_time_out_does(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", leases={CHARGE: lease()}), renewals=[renewal("a", 1, seconds=90)])
    assert await stores.recovery.lapsed_leases(0, NOW + timedelta(seconds=89), 0, limit=9) == []
    assert await stores.recovery.next_lease_due() == NOW + timedelta(seconds=90)
    await owner.commit(renewals=[renewal("a", 2, seconds=9000)])
    assert await stores.recovery.next_lease_due() == LATER
    assert len(await stores.recovery.lapsed_leases(0, LATER, 0, limit=9)) == 1


async def test_lapsed_leases_come_in_pages(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    several = {TaskPath(f"t{n}"): lease(path=TaskPath(f"t{n}"), lease_s=float(10 + n)) for n in range(5)}
    await owner.commit(new("a", leases=several))
    first = await stores.recovery.lapsed_leases(0, LATER, 0, limit=3)
    second = await stores.recovery.lapsed_leases(0, LATER, 0, limit=3, after=first[-1])
    assert [due.path for due in first + second] == ["t0", "t1", "t2", "t3", "t4"]
    assert await stores.recovery.partitions_with_due_leases(LATER) == {0: 10.0}
    assert await stores.recovery.partitions_with_due_leases(NOW) == {}


async def test_a_task_that_waits_in_its_queue_is_found_until_something_happens_to_it(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 1)
    await owner.commit(new("a", tasks=tasks(task(TaskStatus.QUEUED, queued_at=NOW))), home=1)
    assert await stores.recovery.queued_since(NOW, limit=9) == []
    [queued] = await stores.recovery.queued_since(LATER, limit=9)
    assert (queued.partition, queued.instance, queued.path, queued.fence) == (1, key_of("a"), CHARGE, 1)
    assert (queued.execution, queued.attempt, queued.queue, queued.queued_at) == (1, 1, "payment", NOW)
    assert await stores.recovery.queued_since(LATER, limit=9, after=queued) == []
    assert await stores.recovery.still_queued([queued]) == [queued]
    again = task(TaskStatus.QUEUED, fence=2, queued_at=NOW)
    await owner.commit(more("a", 2, tasks=tasks(again)), home=1)
    assert await stores.recovery.still_queued([queued]) == []
    await owner.commit(more("a", 3, tasks=tasks(task(TaskStatus.COMPLETED, fence=2, ended_at=NOW))), home=1)
    assert await stores.recovery.queued_since(LATER, limit=9) == []


async def test_quarantine_freezes_timers_leases_and_queued_tasks(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    waiting = tasks(task(TaskStatus.QUEUED, queued_at=NOW))
    past = await soon(stores, -1)
    await owner.commit(new("a", leases={CHARGE: lease()}, timers=timer(due_at=past), tasks=waiting))
    await quarantine(owner, "a")
    assert await stores.recovery.claim_due_timers(claim_s=30, limit=9) == []
    assert await stores.recovery.next_due() is None
    assert await stores.recovery.lapsed_leases(0, LATER, 0, limit=9) == []
    assert await stores.recovery.next_lease_due() is None
    assert await stores.recovery.partitions_with_due_leases(LATER) == {}
    assert await stores.recovery.queued_since(LATER, limit=9) == []
    view = (await stores.queries.instances([id_of("a")]))[id_of("a")]
    assert view.quarantined_at is not None
    assert view.quarantine_reason == "no tries left"
    assert (await stores.coordinator.load([id_of("a")])).instances[id_of("a")].quarantined


async def test_an_instance_whose_parked_inputs_are_decided_goes_on(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    past = await soon(stores, -1)
    await owner.commit(new("a", leases={CHARGE: lease()}, timers=timer(due_at=past)))
    await quarantine(owner, "a")
    await owner.commit(more("a", 2), unparked=[(id_of("a"), 1)])
    assert len(await stores.recovery.claim_due_timers(claim_s=30, limit=9)) == 1
    assert len(await stores.recovery.lapsed_leases(0, LATER, 0, limit=9)) == 1
    assert (await stores.queries.instances([id_of("a")]))[id_of("a")].quarantined_at is None


async def test_a_parked_instance_is_not_sent_the_same_thing_again_and_again(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    past = await soon(stores, -1)
    await owner.commit(new("a", leases={CHARGE: lease()}, timers=timer(due_at=past)))
    await stores.recovery.mark_timers_sent(
        [(due, 0) for due in await stores.recovery.claim_due_timers(claim_s=1, limit=9)]
    )
    await owner.commit(parked=[parked("a", 1)], advance=owner.advance(ticks=1))
    assert await stores.recovery.unanswered_timers(limit=9) == []
    assert await stores.recovery.lapsed_leases(0, LATER, 0, limit=9) == []


async def test_recovery_is_woken_for_an_earlier_timer_also_between_two_waits(stores: Stores) -> None:
    await stores.recovery.wait_for_timers(0.01)  # whatever it takes to begin to listen
    await stores.recovery.wait_for_timers(0.01)
    started = time.monotonic()
    waiting = asyncio.create_task(stores.recovery.wait_for_timers(20))
    await asyncio.sleep(0.1)
    await stores.coordinator.wake_recovery(NOW)
    await waiting
    await stores.coordinator.wake_recovery(NOW)
    await asyncio.sleep(0.1)
    await stores.recovery.wait_for_timers(20)
    assert time.monotonic() - started < 10
