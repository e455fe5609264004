"""A bad input never stops the line, and never overtakes."""

import asyncio
from typing import Any

import pytest

import holdfast_coordinator.decider as decider
from holdfast.core.ids import InstanceKey, instance_id
from holdfast.core.inputs import TaskReportedCompleted
from holdfast.store.errors import UnknownOutcome, Unstorable
from holdfast_coordinator.parking import BadDeploy
from tests.unit.coordinator.stage import Stage, eventually, eventually_async, patched


def raising_for(instance: str, kind: type = TaskReportedCompleted) -> Any:
    real = decider.decide

    def decide(state: Any, message: Any, now: Any) -> Any:
        if message.instance == instance and isinstance(message, kind):
            raise ZeroDivisionError("a bug")
        return real(state, message, now)

    return decide


async def test_an_instance_whose_decision_raises_is_parked_and_two_hundred_others_go_on(stage: Stage) -> None:
    await stage.coordinate()
    bad = await stage.start("bad")
    others = [await stage.start(str(number)) for number in range(200)]
    with patched(decider, "decide", raising_for(bad)):
        for instance in [*others[:100], bad, *others[100:]]:
            await stage.complete(await stage.dispatch(instance, "reserve"))
        for instance in others:
            await stage.complete(await stage.dispatch(instance, "charge"))
            await stage.has_state(instance, "COMPLETED")
        parked = await stage.stores.queries.parked()
        assert [view.instance for view in parked] == [bad]
    await stage.finish(bad)
    await stage.has_state(bad, "COMPLETED")


async def test_later_inputs_of_a_parked_instance_wait_their_turn_and_keep_their_order(stage: Stage) -> None:
    await stage.coordinate()
    bad = await stage.start("bad")
    reserve = await stage.dispatch(bad, "reserve")
    with patched(decider, "decide", raising_for(bad)):
        await stage.complete(reserve)
        await eventually(lambda: bool(stage.running[0][0].assignment._parking.instances))
        await stage.cancel(bad)
        identity = instance_id(InstanceKey(bad))

        async def both() -> bool:
            return len(await stage.stores.queries.parked_inputs(identity, 10)) == 2

        await eventually_async(both, lambda: "two parked inputs")
        assert await stage.state(bad) == "RUNNING"  # The cancel did not overtake the completion.
    await stage.has_state(bad, "CANCELLED")
    events = await stage.stores.queries.events(identity)
    names = [type(entry.event).__name__ for entry in events]
    assert names.index("TaskCompleted") < names.index("WorkflowCancelled")


@pytest.mark.parametrize("took_effect", [False, True])
async def test_an_instance_parked_by_a_commit_that_failed_is_neither_stuck_nor_overtaken(
    stage: Stage, took_effect: bool
) -> None:
    await stage.coordinate()
    bad = await stage.start("bad")
    reserve = await stage.dispatch(bad, "reserve")
    faults = stage.store.after if took_effect else stage.store.before
    with patched(decider, "decide", raising_for(bad)):
        faults.append(UnknownOutcome("the connection broke"))
        await stage.complete(reserve)
        await eventually(lambda: not faults)
        await stage.cancel(bad)
    await stage.has_state(bad, "CANCELLED")
    names = [type(entry.event).__name__ for entry in await stage.stores.queries.events(instance_id(InstanceKey(bad)))]
    assert names.index("TaskCompleted") < names.index("WorkflowCancelled")


async def test_after_its_tries_an_instance_is_quarantined_with_copies_in_the_dlq(stage: Stage) -> None:
    stage.settings.parked_tries_max = 2
    await stage.coordinate()
    bad = await stage.start("bad")
    reserve = await stage.dispatch(bad, "reserve")
    with patched(decider, "decide", raising_for(bad)):
        await stage.complete(reserve)
        await eventually(lambda: len(stage.dead()) == 1)
    [copy] = stage.dead()
    headers = dict(copy.headers)
    assert headers["__dlq.errors.reason"] == b"quarantined"
    assert b"ZeroDivisionError" in (headers["__dlq.errors.message"] or b"")
    [view] = await stage.stores.queries.parked()
    assert view.quarantined_at is not None
    good = await stage.start("good")
    await stage.finish(good)
    await stage.has_state(good, "COMPLETED")


async def test_data_that_the_database_refuses_parks_its_instance_only(stage: Stage) -> None:
    await stage.coordinate()
    bad = "shop/order/bad"
    identity = instance_id(InstanceKey(bad))
    stage.store.refuse = lambda commit: (
        Unstorable("NUL") if any(changes.row.instance_id == identity for changes in commit.changes) else None
    )
    stage.store.gate.clear()
    instances = [await stage.start(str(number)) for number in range(20)]
    await stage.start("bad")
    stage.store.gate.set()
    for instance in instances:
        await stage.finish(instance)
        await stage.has_state(instance, "COMPLETED")
        assert await stage.sequences(instance) == list(range(1, 9))
    [view] = await stage.stores.queries.parked()
    assert view.instance == bad
    stage.store.refuse = lambda commit: None
    await stage.finish(bad)
    await stage.has_state(bad, "COMPLETED")


async def test_many_instances_that_cannot_be_decided_are_a_bad_deploy_and_stop_the_coordinator() -> None:
    stage = Stage(poisoned_per_minute_max=3)
    await stage.define()
    await stage.coordinate()
    instances = [await stage.start(str(number)) for number in range(6)]
    dispatches = [await stage.dispatch(instance, "reserve") for instance in instances]

    def decide(state: Any, message: Any, now: Any) -> Any:
        raise ZeroDivisionError("a bad deploy")

    with patched(decider, "decide", decide):
        for dispatch in dispatches:
            await stage.complete(dispatch)
        with pytest.raises(BadDeploy, match="bad deploy"):
            await asyncio.wait_for(stage.running[0][2], 10)
    await stage.coordinate("the version before")
    for instance in instances:
        await stage.complete(await stage.dispatch(instance, "charge"))
        await stage.has_state(instance, "COMPLETED")
    await stage.close()


async def test_a_parked_instance_stays_parked_across_a_takeover(stage: Stage) -> None:
    await stage.coordinate("first")
    bad = await stage.start("bad")
    reserve = await stage.dispatch(bad, "reserve")
    with patched(decider, "decide", raising_for(bad)):
        await stage.complete(reserve)
        await eventually(lambda: bool(stage.running[0][0].assignment._parking.instances))
        _, stopping, task = stage.running[0]
        stopping.set()
        await task
        second = await stage.coordinate("second")
        assert instance_id(InstanceKey(bad)) in second.assignment._parking.instances
    await stage.finish(bad)
    await stage.has_state(bad, "COMPLETED")


async def test_a_parked_start_that_is_refused_again_and_again_is_quarantined_and_not_called_a_duplicate(
    stage: Stage,
) -> None:
    """A try that was refused leaves nothing behind: neither its state in the cache nor its number in the outbox."""
    stage.settings.parked_tries_max = 3
    await stage.coordinate()
    bad = "shop/order/bad"
    identity = instance_id(InstanceKey(bad))
    stage.store.refuse = lambda commit: (
        Unstorable("NUL") if any(changes.row.instance_id == identity for changes in commit.changes) else None
    )
    await stage.start("bad")
    await eventually(lambda: len(stage.dead()) == 1)
    assert await stage.outcomes(bad) == []
    [view] = await stage.stores.queries.parked()
    assert (view.instance, view.tries, view.quarantined_at is not None) == (bad, 3, True)


async def test_data_that_is_refused_in_a_batch_does_not_wake_up_a_quarantined_instance(stage: Stage) -> None:
    stage.settings.parked_tries_max = 1
    await stage.coordinate()
    quarantined = await stage.start("quarantined")
    reserve = await stage.dispatch(quarantined, "reserve")
    with patched(decider, "decide", raising_for(quarantined)):
        await stage.complete(reserve)
        await eventually(lambda: len(stage.dead()) == 1)
    refused = iter([Unstorable("NUL")])
    stage.store.refuse = lambda commit: next(refused, None)
    stage.store.gate.clear()
    await stage.complete(reserve)
    other = await stage.start("other")
    stage.store.gate.set()
    await stage.finish(other)
    await stage.has_state(other, "COMPLETED")
    views = {view.instance: view for view in await stage.stores.queries.parked()}
    assert views[quarantined].quarantined_at is not None
    assert views[quarantined].tries == 1
    assert len(stage.dead()) == 1
