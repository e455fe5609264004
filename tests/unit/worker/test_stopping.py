"""Cancellation is cooperative: who obeys, and what is said afterwards."""

import asyncio
import threading
from typing import Any

import pytest

from holdfast.contracts.topics import CANCELLATIONS
from holdfast.core.inputs import TaskReportedCancelled, TaskReportedCompleted, TaskReportedStarted
from holdfast.worker import ActivityContext, activity
from tests.unit.worker.stage import Stage, until
from tests.unit.worker.test_offsets import Gate, quick


async def test_an_async_activity_gets_cancelled_error_and_the_coordinator_hears_that_we_obeyed() -> None:
    stage = Stage()
    seen: list[object] = []

    @activity("test.wait")
    async def wait(ctx: ActivityContext) -> None:
        seen.append("in")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append((ctx.cancelled, ctx.heartbeat()))
            raise

    async with stage.worker([wait]) as running:
        dispatch = stage.dispatch("test.wait")
        await until(lambda: seen == ["in"])
        stage.cancel(dispatch, "order withdrawn")
        done = await stage.outcome(dispatch)
        await stage.until_committed(1)
        assert running.engine.free == 100
    assert isinstance(done, TaskReportedCancelled)
    assert done.ran
    assert seen == ["in", ("order withdrawn", False)]


async def test_a_sync_activity_sees_the_reason_and_decides_itself() -> None:
    stage = Stage()
    entered = threading.Event()

    @activity("test.poll")
    def poll(ctx: ActivityContext) -> None:
        entered.set()
        while ctx.cancelled is None:
            pass
        raise RuntimeError(ctx.cancelled)

    async with stage.worker([poll]):
        dispatch = stage.dispatch("test.poll")
        await until(entered.is_set)
        stage.cancel(dispatch, "stop it")
        done = await stage.outcome(dispatch)
    assert isinstance(done, TaskReportedCancelled)
    assert done.ran


async def test_an_activity_that_completes_although_cancelled_has_completed() -> None:
    stage = Stage()
    entered = asyncio.Event()

    @activity("test.stubborn")
    async def stubborn() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    async with stage.worker([stubborn]):
        dispatch = stage.dispatch("test.stubborn")
        await entered.wait()
        stage.cancel(dispatch)
        assert isinstance(await stage.outcome(dispatch), TaskReportedCompleted)


async def test_a_dispatch_that_was_cancelled_before_it_came_is_dropped_and_never_runs() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity, quick]) as running:
        dispatch = stage.make("test.gate", 0)
        stage.cancel(dispatch)
        await until(lambda: len(running.engine._told) == 1)
        stage.send(dispatch)
        done = await stage.outcome(dispatch)
        assert isinstance(done, TaskReportedCancelled)
        assert not done.ran
        await stage.until_committed(1)
        assert running.engine.free == 100
    assert gate.entered == []


async def test_a_dispatch_that_waits_for_its_claim_is_dropped_by_a_cancellation() -> None:
    stage = Stage()
    gate = Gate()
    dispatch = stage.dispatch("test.gate", 0)
    stage.slow.on = True
    async with stage.worker([gate.activity]) as running:
        await until(lambda: stage.slow.kept)
        stage.cancel(dispatch)
        await until(lambda: running.engine.free == 100)
        stage.slow.release()
        done = await stage.outcome(dispatch)
    assert isinstance(done, TaskReportedCancelled)
    assert not done.ran
    assert gate.entered == []


async def test_an_async_activity_that_is_cancelled_before_its_first_step_never_runs() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity]) as running:
        dispatch = stage.make("test.gate", 0)
        (intake,) = running.process.intakes
        stage.send(dispatch)
        intake._take(stage.records("holdfast.tasks.test"))  # begun, but the loop has not had its turn
        from holdfast.core.changes import Cancellation

        running.engine.cancel(Cancellation(dispatch.instance, 1, dispatch.path, dispatch.fence, None, "now"))
        done = await stage.outcome(dispatch)
    assert isinstance(done, TaskReportedCancelled)
    assert not done.ran
    assert gate.entered == []


@pytest.mark.parametrize("other", [{"execution": 2}, {"path": "elsewhere"}, {"fence": 99}, {"instance": "a/b/c"}])
async def test_a_cancellation_of_something_else_is_not_obeyed(other: dict[str, Any]) -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity]) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        known = {"instance": dispatch.instance, "path": dispatch.path, "fence": dispatch.fence}
        stage.cancel(stage.make("test.gate", **(known | other)))
        marker = stage.make("test.gate")
        stage.cancel(marker)
        await until(lambda: (marker.instance, marker.fence) in running.engine._told)
        gate.let(0)
        assert isinstance(await stage.outcome(dispatch), TaskReportedCompleted)


async def test_only_the_holder_that_is_named_obeys() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity]) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        stage.cancel(dispatch, "lease_lost", holder="somebody-else")
        marker = stage.make("test.gate")
        stage.cancel(marker)
        await until(lambda: (marker.instance, marker.fence) in running.engine._told)
        gate.let(0)
        assert isinstance(await stage.outcome(dispatch), TaskReportedCompleted)


async def test_a_holder_that_lost_its_lease_stops_and_says_nothing() -> None:
    stage = Stage()
    stopped: list[bool] = []

    @activity("test.wait")
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return ""

    async with stage.worker([wait, quick], start_grace_s=0.01) as running:
        dispatch = stage.dispatch("test.wait", lease_s=0.3)
        await stage.report(dispatch, TaskReportedStarted)
        stage.cancel(dispatch, "lease_lost", holder=running.holder)
        await until(lambda: stopped)
        said = len(stage.reports(dispatch))
        await until(lambda: running.engine.free == 100)
        await stage.outcome(stage.dispatch("test.quick", 1))
        await stage.until_committed(2)
    assert len(stage.reports(dispatch)) == said
    assert stage.outcomes(dispatch) == []


async def test_the_offset_of_a_lost_lease_passes_although_nothing_was_reported() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=1e9) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        stage.cancel(dispatch, "lease_lost", holder=running.holder)
        await stage.until_committed(1)
    assert stage.reports(dispatch) == []


async def test_work_finished_after_the_lease_was_lost_is_not_reported() -> None:
    stage = Stage()
    entered, go_on = threading.Event(), threading.Event()

    @activity("test.deaf")
    def deaf() -> str:
        entered.set()
        go_on.wait()
        return "too late"

    async with stage.worker([deaf, quick], start_grace_s=0.01) as running:
        dispatch = stage.dispatch("test.deaf")
        await until(entered.is_set)
        stage.cancel(dispatch, "cancelled")  # told to stop first, then that it lost its lease: the second counts
        stage.cancel(dispatch, "lease_lost", holder=running.holder)
        await until(lambda: running.engine.stats.stops["lease_lost"] == 1)
        go_on.set()
        await until(lambda: running.engine.free == 100)
        await stage.outcome(stage.dispatch("test.quick", 1))
    assert stage.outcomes(dispatch) == []


async def test_a_cancellation_that_cannot_be_read_is_counted_and_the_next_is_obeyed() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity]) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        stage.write(CANCELLATIONS, b"\xff\xff", 0)
        stage.cancel(dispatch)
        assert isinstance(await stage.outcome(dispatch), TaskReportedCancelled)
        assert running.engine.stats.malformed_cancellations == 1


async def test_the_memory_of_cancellations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.engine.told_max", 10)
    stage = Stage()
    async with stage.worker([quick]) as running:
        for number in range(25):
            stage.cancel(stage.make("test.quick", number))
        last = stage.make("test.quick")
        stage.cancel(last)
        await until(lambda: (last.instance, last.fence) in running.engine._told)
        assert len(running.engine._told) == 10
