"""Leases stay alive by themselves, whatever the activity does."""

import asyncio
import json
import threading
import time

from holdfast.core.inputs import TaskHeartbeat, TaskReportedCompleted, TaskReportedStarted
from holdfast.worker import ActivityContext, activity
from holdfast.worker.attempt import Attempt
from holdfast.worker.offsets import Partition
from holdfast.worker.pulse import Pulse, PulseThread
from tests.unit.worker.stage import MemoryPort, Slow, Stage, until
from tests.unit.worker.test_offsets import Gate, partition, quick


def beats(stage: Stage) -> list[TaskHeartbeat]:
    return [r for r in stage.reports() if isinstance(r, TaskHeartbeat)]


async def test_a_running_async_activity_heartbeats_by_itself_until_it_ends() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity, quick]) as running:
        dispatch = stage.dispatch("test.gate", 0, lease_s=0.15)
        await until(lambda: len(beats(stage)) >= 3)
        assert {(b.holder, b.fence) for b in beats(stage)} == {(running.holder, dispatch.fence)}
        gate.let(0)
        await stage.outcome(dispatch)
        count = len(beats(stage))
        await asyncio.sleep(0.15)
        assert len(beats(stage)) == count


async def test_a_sync_activity_is_kept_alive_as_well() -> None:
    stage = Stage()
    done = threading.Event()

    @activity("test.block")
    def block() -> None:
        done.wait()

    async with stage.worker([block]):
        dispatch = stage.dispatch("test.block", lease_s=0.15)
        await until(lambda: len(beats(stage)) >= 3)
        done.set()
        await stage.outcome(dispatch)


async def test_details_go_out_with_the_next_heartbeat_without_waiting_for_the_lease() -> None:
    stage = Stage()
    go_on = asyncio.Event()

    @activity("test.progress")
    async def progress(ctx: ActivityContext) -> None:
        assert ctx.heartbeat({"percent": 10})
        assert ctx.heartbeat({"percent": 50})
        await go_on.wait()

    async with stage.worker([progress]):
        stage.dispatch("test.progress", lease_s=3600)
        await until(lambda: beats(stage))
        assert json.loads(beats(stage)[0].details or b"") == {"percent": 50}
        go_on.set()


async def test_details_from_a_thread_arrive_too() -> None:
    stage = Stage()
    go_on = threading.Event()

    @activity("test.progress")
    def progress(ctx: ActivityContext) -> None:
        ctx.heartbeat(["from a thread"])
        go_on.wait()

    async with stage.worker([progress]):
        stage.dispatch("test.progress", lease_s=3600)
        await until(lambda: beats(stage))
        assert json.loads(beats(stage)[0].details or b"") == ["from a thread"]
        go_on.set()


async def test_an_hour_without_kafka_leaves_one_heartbeat_per_attempt() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=1e9) as running:
        stage.dispatch("test.gate", 0, lease_s=0.03)
        await until(lambda: gate.entered == [0])
        stage.slow.on = True
        await until(lambda: stage.slow.kept)
        await asyncio.sleep(0.2)
        assert len(stage.slow.kept) == 1
        before = running.process.pulse.sent
        stage.slow.release()
        await until(lambda: running.process.pulse.sent > before)
        gate.let(0)


async def test_a_blocked_event_loop_does_not_stop_the_heartbeats() -> None:
    """The pulse's own thread and producer go on; here they write to a log of their own, which nobody else touches."""
    stage = Stage()
    dispatch = stage.make("test.block", lease_s=0.06)
    pulse = Pulse("holder", "address", MemoryPort(stage.log, Slow()).producer)
    thread = PulseThread(pulse)
    thread.start()
    attempt = _attempt(pulse, partition(), dispatch)
    pulse.begun(attempt)
    blocked_until = time.monotonic() + 5
    while len(stage.records("holdfast.reports")) < 5 and time.monotonic() < blocked_until:
        pass  # This is the event loop: it gets no turn, as with an activity that computes.
    assert len(beats(stage)) >= 5
    attempt.ended = True
    await thread.stop()
    assert not thread.alive


def _attempt(pulse: Pulse, part: Partition, dispatch: object) -> Attempt:
    attempt = Attempt(part, 0, dispatch, pulse.progress)  # type: ignore[arg-type]
    attempt.begun_at = time.monotonic()
    return attempt


async def test_a_heartbeat_never_delays_or_replaces_the_outcome() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=0.01):
        dispatch = stage.dispatch("test.gate", 0, lease_s=0.06)
        await until(lambda: len(beats(stage)) >= 2)
        gate.let(0)
        await stage.outcome(dispatch)
    kinds = [type(r) for r in stage.reports(dispatch)]
    assert kinds[0] is TaskReportedStarted
    assert kinds.count(TaskReportedCompleted) == 1
