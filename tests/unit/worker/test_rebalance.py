"""Partitions that are taken away: what runs goes on under its lease, what has not begun belongs to the next owner."""

import asyncio

import pytest

from holdfast.core.inputs import TaskReportedStarted
from tests.unit.worker.stage import Stage, until
from tests.unit.worker.test_offsets import Gate, quick


async def test_a_revoked_partition_is_committed_as_far_as_it_is_settled_and_its_running_task_goes_on() -> None:
    stage = Stage(partitions=2)
    first, second = Gate(), Gate()
    async with stage.worker([first.activity], start_grace_s=0.01):
        running = stage.dispatch("test.gate", 0, partition=1)
        await stage.report(running, TaskReportedStarted)
        async with stage.worker([second.activity], start_grace_s=0.01) as other:
            await until(lambda: other.process.intakes[0].assignment)
            assert stage.committed(0) + stage.committed(1) == 1  # its `started` was acknowledged: not delivered again
            first.let(0)
            await stage.outcome(running)
    assert second.entered == []


async def test_a_lost_partition_is_not_committed_any_more() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=1e9) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        (consumer,) = running.port.consumers
        (partition,) = running.process.intakes[0]._partitions.values()
        finding_out = asyncio.Event()
        expelled = stage.log.expel(consumer, finding_out.wait())
        finding_out.set()
        await expelled
        assert partition.lost
        await until(lambda: running.engine.stats.delivered_again == 1)  # it has joined again
        await asyncio.sleep(0.15)  # longer than the interval between two commits
        assert stage.committed() == 0  # nobody has reported anything yet: Kafka must keep it
        gate.let(0)
        await stage.outcome(dispatch)
        assert partition.committed == 0
        # The second delivery passes without being run.
        await stage.until_committed(1)
    assert gate.entered == [0]
    assert len(stage.outcomes()) == 1


async def test_what_was_read_and_not_begun_is_dropped_with_its_partition_and_run_by_the_next_owner() -> None:
    stage = Stage("test", "other")
    gate, next_gate = Gate(), Gate()
    async with stage.worker([gate.activity], concurrency=1, start_grace_s=0.01) as running:
        stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        intake = next(each for each in running.process.intakes if each.queue == "test")
        waiting = stage.dispatch("test.gate", 1)
        intake._take([stage.records("holdfast.tasks.test")[1]])  # as if it had been read when the slot was still free
        assert intake.pending == 1
        await intake.revoked(list(intake.assignment))
        assert intake.pending == 0
        await until(lambda: stage.committed() == 1)
        await running.kill()
        async with stage.worker([next_gate.activity], start_grace_s=0.01):
            await until(lambda: next_gate.entered == [1])
            next_gate.let(1)
            await stage.outcome(waiting)
        gate.let(0)


async def test_nothing_of_a_partition_begins_while_it_is_being_taken_away() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], concurrency=1, start_grace_s=1e9) as running:
        first = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        (intake,) = running.process.intakes
        running.port.consumers[0].pause(intake.assignment)  # as a consumer does by itself in a rebalance
        stage.dispatch("test.gate", 1)
        intake._take([stage.records("holdfast.tasks.test")[1]])
        letting_go = asyncio.create_task(intake.revoked(list(intake.assignment)))  # waits for the first to settle
        await asyncio.sleep(0)
        gate.let(0)  # which frees its slot
        await stage.outcome(first)
        await letting_go
        assert gate.entered == [0]
        assert stage.committed() == 1


async def test_a_worker_that_dies_before_any_report_leaves_the_task_to_the_next_which_claims_it() -> None:
    stage = Stage()
    dying, next_gate = Gate(), Gate()
    async with stage.worker([dying.activity], start_grace_s=1e9) as running:
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: dying.entered == [0])
        await running.kill()
        assert stage.reports() == []
        async with stage.worker([next_gate.activity], start_grace_s=1e9) as other:
            await until(lambda: next_gate.entered == [0])
            (claim,) = stage.reports(dispatch)
            assert isinstance(claim, TaskReportedStarted)
            assert claim.holder == other.holder != running.holder
            next_gate.let(0)
            await stage.outcome(dispatch)
        dying.let(0)


async def test_a_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    from holdfast.contracts.topics import task_topic, worker_group
    from holdfast.log.protocol import TopicPartition

    stage = Stage()
    stage.log.group(worker_group("test")).committed[TopicPartition(task_topic("test"), 0)] = 500
    async with stage.worker([quick]):
        await stage.outcome(stage.dispatch("test.quick", 1))


async def test_a_partition_at_its_limit_does_not_stop_the_others_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first task cannot settle, so it reaches the limit and stays there; the reader goes on with the rest."""
    monkeypatch.setattr("holdfast.worker.intake.pause_after_s", 0.05)
    monkeypatch.setattr("holdfast.worker.offsets.ahead_max", 10)
    stage = Stage(partitions=2)
    gate = Gate()
    async with stage.worker([gate.activity, quick], start_grace_s=1e9) as running:
        stage.dispatch("test.gate", 0, partition=0)
        stuck = [stage.dispatch("test.quick", number, partition=0) for number in range(30)]
        await until(lambda: any(each.held for each in running.process.intakes[0]._partitions.values()))
        other = [stage.dispatch("test.quick", number, partition=1) for number in range(30)]
        for dispatch in other:
            await stage.outcome(dispatch)
        assert len([each for each in stuck if stage.outcomes(each)]) == 9
        gate.let(0)
        for dispatch in stuck:
            await stage.outcome(dispatch)
        await stage.until_committed(31, 0)


async def test_a_partition_that_is_taken_away_at_its_limit_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.worker.intake.pause_after_s", 1e9)
    monkeypatch.setattr("holdfast.worker.offsets.ahead_max", 10)
    monkeypatch.setattr("holdfast.worker.intake.revoke_wait_s", 0.01)
    stage = Stage(partitions=2)
    gate = Gate()
    async with stage.worker([gate.activity, quick], start_grace_s=1e9) as running:
        (intake,) = running.process.intakes
        stage.dispatch("test.gate", 0, partition=0)
        for number in range(30):
            stage.dispatch("test.quick", number, partition=0)
        await until(lambda: any(each.held for each in intake._partitions.values()))
        taken = next(each.tp for each in intake._partitions.values() if each.held)
        running.port.consumers[0].pause([taken])
        await intake.lost([taken])
        await stage.outcome(stage.dispatch("test.quick", 0, partition=1))
        gate.let(0)
