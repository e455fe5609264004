"""SIGTERM: nothing new, what runs may end, the rest is handed back, and Kafka has everything before we leave."""

import asyncio
import threading

from holdfast.contracts.topics import worker_group
from holdfast.core.inputs import HandBackReason, TaskHandBack, TaskReportedCompleted, TaskReportedStarted
from holdfast.worker import ActivityContext, activity
from tests.unit.worker.stage import Stage, until
from tests.unit.worker.test_offsets import Gate, quick


async def test_what_runs_may_end_and_its_report_and_offset_are_there_before_the_worker_leaves() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], drain_s=60) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        running.stopping.set()
        await until(lambda: running.engine.draining)
        late = stage.dispatch("test.gate", 1)
        gate.let(0)
        await running.task
    assert isinstance(await stage.outcome(dispatch), TaskReportedCompleted)
    assert stage.committed() == 1
    assert stage.reports(late) == []  # left to Kafka
    assert stage.log.group(worker_group("test")).members == []


async def test_the_group_is_left_as_soon_as_every_offset_is_settled_not_when_the_last_attempt_ends() -> None:
    stage = Stage()
    gate, next_gate = Gate(), Gate()
    async with stage.worker([gate.activity], drain_s=60, start_grace_s=0.01) as running:
        stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        running.stopping.set()
        await until(lambda: stage.log.group(worker_group("test")).members == [])
        async with stage.worker([next_gate.activity]):
            stage.dispatch("test.gate", 1)
            await until(lambda: next_gate.entered == [1])
            next_gate.let(1)
            assert not running.task.done()
            gate.let(0)
            await running.task
    assert next_gate.entered == [1]


async def test_what_does_not_end_in_time_is_cancelled_and_handed_back() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], drain_s=0.0) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        await running.end()
    done = await stage.outcome(dispatch)
    assert isinstance(done, TaskHandBack)
    assert done.reason is HandBackReason.DRAINING
    assert stage.committed() == 1


async def test_a_thread_that_does_not_listen_is_handed_back_and_does_not_keep_the_worker() -> None:
    stage = Stage()
    entered, go_on = threading.Event(), threading.Event()
    told: list[str | None] = []

    @activity("test.deaf")
    def deaf(ctx: ActivityContext) -> None:
        entered.set()
        go_on.wait()
        told.append(ctx.cancelled)

    async with stage.worker([deaf], drain_s=0.0) as running:
        dispatch = stage.dispatch("test.deaf")
        await until(entered.is_set)
        await running.end()
    assert isinstance(await stage.outcome(dispatch), TaskHandBack)
    go_on.set()
    await until(lambda: told == ["draining"])


async def test_what_waits_for_its_claim_is_handed_back() -> None:
    stage = Stage()
    gate = Gate()
    dispatch = stage.dispatch("test.gate", 0)
    stage.slow.on = True
    async with stage.worker([gate.activity], drain_s=0.0) as running:
        await until(lambda: stage.slow.kept)
        running.stopping.set()
        await until(lambda: running.engine.free == 100)
        stage.slow.release()
        await running.task
    assert [type(r) for r in stage.reports(dispatch)] == [TaskReportedStarted, TaskHandBack]
    assert gate.entered == []
    assert stage.committed() == 1


async def test_a_worker_waits_for_kafka_before_it_leaves() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], drain_s=60.0, start_grace_s=0.01) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await stage.report(dispatch, TaskReportedStarted)
        await stage.until_committed(1)  # so that nothing but the last report keeps it
        stage.slow.on = True
        running.stopping.set()
        gate.let(0)
        await until(lambda: stage.slow.kept)
        await until(lambda: stage.log.group(worker_group("test")).members == [])
        await asyncio.sleep(0.1)
        assert not running.task.done()
        stage.slow.release()
        await running.task
    assert isinstance(await stage.outcome(dispatch), TaskReportedCompleted)
    assert stage.committed() == 1


async def test_a_draining_worker_is_not_ready() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity, quick], drain_s=60) as running:
        assert running.process.problem() is None
        stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        running.stopping.set()
        await until(lambda: running.process.problem() == "draining")
        gate.let(0)
