"""Kafka looks after a task until a report about it is acknowledged; not before may its offset be committed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.contracts.dlq import dlq_errors
from holdfast.contracts.topics import DLQ, task_topic
from holdfast.core.inputs import TaskReportedCompleted, TaskReportedStarted
from holdfast.log.protocol import TopicPartition
from holdfast.worker import ActivityContext, activity
from holdfast.worker.offsets import Entry, Partition, ahead_max
from tests.unit.worker.stage import Stage, until


class Gate:
    """An activity that waits until the test lets it go on."""

    def __init__(self, name: str = "test.gate") -> None:
        self.entered: list[int] = []
        self.open: dict[int, asyncio.Event] = {}
        self.activity: Any = activity(name)(self._run)

    async def _run(self, ctx: ActivityContext, number: int) -> int:
        self.entered.append(number)
        await self.open.setdefault(number, asyncio.Event()).wait()
        return number

    def let(self, number: int) -> None:
        self.open.setdefault(number, asyncio.Event()).set()


@activity("test.quick")
async def quick(value: int) -> int:
    return value


def partition(committed: int = 0, end: int = 0, on_progress: Callable[[Partition], None] = lambda _: None) -> Partition:
    return Partition(TopicPartition("t", 0), committed, end, on_progress)


def test_the_watermark_stops_at_the_first_record_that_is_not_settled() -> None:
    seen: list[int] = []
    part = partition(on_progress=lambda p: seen.append(p.next))
    entries = [Entry(part, offset) for offset in (0, 1, 2, 5)]
    part.entries.extend(entries)
    for index in (2, 1):
        part.settle(entries[index])
    assert part.next == 0
    part.settle(entries[0])
    assert part.next == 3
    part.settle(entries[3])
    assert part.next == 6
    assert seen == [3, 6]


def test_a_partition_that_was_taken_away_makes_no_progress() -> None:
    seen: list[int] = []
    part = partition(on_progress=lambda p: seen.append(p.next))
    entry = Entry(part, 0)
    part.entries.append(entry)
    part.lost = True
    part.settle(entry)
    assert seen == []


@pytest.mark.parametrize(("committed", "end", "below"), [(0, 0, 0), (10, 15, 15), (10, 5_000, 1_010)])
def test_caution_ends_at_the_end_or_a_thousand_ahead(committed: int, end: int, below: int) -> None:
    assert partition(committed, end).cautious_below == below


async def test_an_offset_is_committed_only_when_its_report_is_acknowledged() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity]):
        stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        stage.slow.on = True
        gate.let(0)
        await until(lambda: stage.slow.kept)  # the report is on its way
        await asyncio.sleep(0.15)  # longer than the interval between two commits
        assert stage.committed() == 0
        stage.slow.release()
        await stage.until_committed(1)
    assert len(stage.reports()) == 1


async def test_a_slow_task_holds_back_the_offsets_of_those_behind_it_until_it_says_started() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity, quick], start_grace_s=1e9):
        first = stage.dispatch("test.gate", 0)
        second = stage.dispatch("test.quick", 1)
        await stage.outcome(second)
        await asyncio.sleep(0.15)  # longer than the interval between two commits
        assert stage.committed() == 0
        gate.let(0)
        await stage.outcome(first)
        await stage.until_committed(2)


async def test_a_commit_covers_what_is_settled_and_nothing_behind_it() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity, quick], start_grace_s=1e9):
        for number in (0, 1):
            stage.dispatch("test.quick", number)
        stage.dispatch("test.gate", 2)
        stage.dispatch("test.quick", 3)
        await until(lambda: stage.committed() >= 2 and len(stage.outcomes()) == 3)
        await asyncio.sleep(0.15)  # longer than the interval between two commits
        assert stage.committed() == 2
        gate.let(2)
        await stage.until_committed(4)


async def test_a_long_task_says_started_after_the_grace_and_frees_its_offset() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=0.01) as running:
        dispatch = stage.dispatch("test.gate", 0)
        started = await stage.report(dispatch, TaskReportedStarted)
        assert started.holder == running.holder
        assert started.address
        await stage.until_committed(1)
        gate.let(0)
        await stage.outcome(dispatch)
    assert [type(r) for r in stage.reports(dispatch)] == [TaskReportedStarted, TaskReportedCompleted]


async def test_a_quick_task_sends_one_report() -> None:
    stage = Stage()
    async with stage.worker([quick]):
        dispatches = [stage.dispatch("test.quick", n) for n in range(50)]
        await stage.until_committed(50)
    assert [type(r) for r in stage.reports()] == [TaskReportedCompleted] * len(dispatches)


async def test_what_lay_there_at_the_assignment_is_claimed_before_it_runs() -> None:
    stage = Stage()
    gate = Gate()
    before = stage.dispatch("test.gate", 0)
    async with stage.worker([gate.activity], start_grace_s=1e9):
        await until(lambda: gate.entered == [0])
        assert [type(r) for r in stage.reports(before)] == [TaskReportedStarted]
        after = stage.dispatch("test.gate", 1)
        await until(lambda: gate.entered == [0, 1])
        assert stage.reports(after) == []
        gate.let(0)
        gate.let(1)
        await stage.until_committed(2)
    assert [type(r) for r in stage.reports(before)] == [TaskReportedStarted, TaskReportedCompleted]


async def test_a_claimed_task_does_not_run_while_kafka_has_not_acknowledged_its_claim() -> None:
    stage = Stage()
    gate = Gate()
    stage.dispatch("test.gate", 0)
    stage.slow.on = True
    async with stage.worker([gate.activity]):
        await until(lambda: stage.slow.kept)  # the claim is on its way
        await asyncio.sleep(0.02)
        assert gate.entered == []
        assert stage.committed() == 0
        stage.slow.release()
        await until(lambda: gate.entered == [0])
        gate.let(0)
        await stage.until_committed(1)


async def test_a_worker_never_runs_more_than_a_thousand_ahead_of_the_committed_offset() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity, quick], start_grace_s=1e9, concurrency=10):
        stage.dispatch("test.gate", 0)
        for number in range(1, ahead_max + 200):
            stage.dispatch("test.quick", number)
        await until(lambda: len(stage.outcomes()) >= ahead_max - 1, lambda: len(stage.outcomes()))
        await asyncio.sleep(0.05)
        assert len(stage.outcomes()) == ahead_max - 1  # offsets 1 to 999; 1,000 is a thousand ahead of 0
        gate.let(0)
        await stage.until_committed(ahead_max + 200)


async def test_what_settles_while_a_commit_is_on_its_way_is_committed_too() -> None:
    stage = Stage()
    async with stage.worker([quick]) as running:
        (consumer,) = running.port.consumers
        commit, asked, answer = consumer.commit, asyncio.Event(), asyncio.Event()

        async def slow_commit(offsets: Any, *, wait: bool = False) -> None:
            asked.set()
            await answer.wait()
            await commit(offsets, wait=wait)

        consumer.commit = slow_commit  # type: ignore[method-assign]
        stage.dispatch("test.quick", 0)
        await asked.wait()
        await stage.outcome(stage.dispatch("test.quick", 1))
        await until(lambda: running.engine.reporter.unacknowledged == 0)
        answer.set()
        await stage.until_committed(2)


async def test_a_gap_in_the_offsets_does_not_stop_the_line() -> None:
    stage = Stage()
    async with stage.worker([quick]):
        part = stage.log.topics[task_topic("test")].partitions[0]
        part.start = 5_000  # as if everything before had been deleted after the assignment
        done = stage.dispatch("test.quick", 1)
        await stage.outcome(done)
        await stage.until_committed(5_001)


async def test_a_second_delivery_is_not_run_again_and_its_offset_passes() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=1e9):
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: gate.entered == [0])
        stage.send(dispatch)  # while the first runs and has not reported
        other = stage.dispatch("test.gate", 1)
        await until(lambda: gate.entered == [0, 1])
        gate.let(1)
        await stage.outcome(other)
        assert stage.committed() == 0
        gate.let(0)
        await stage.until_committed(3)
        stage.send(dispatch)  # and once more, after its report
        await stage.until_committed(4)
    assert gate.entered == [0, 1]
    assert len(stage.reports()) == 2


async def test_a_malformed_task_goes_to_the_dlq_and_the_next_one_runs() -> None:
    stage = Stage()
    async with stage.worker([quick]) as running:
        stage.write(task_topic("test"), b"no avro at all", 0)
        await stage.outcome(stage.dispatch("test.quick", 1))
        await stage.until_committed(2)
        assert running.engine.stats.malformed == 1
    (letter,) = stage.records(DLQ)
    assert letter.value == b"no avro at all"
    told = dlq_errors(letter.headers)
    assert (told["topic"], told["offset"], told["group"]) == (task_topic("test"), "0", "holdfast.worker.test")


async def test_no_more_than_the_concurrency_runs_at_once_and_the_rest_stays_in_kafka() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], concurrency=3) as running:
        for number in range(10):
            stage.dispatch("test.gate", number)
        await until(lambda: len(gate.entered) == 3)
        await asyncio.sleep(0.02)
        assert gate.entered == [0, 1, 2]
        assert running.process.intakes[0].pending == 0
        gate.let(1)
        await until(lambda: gate.entered == [0, 1, 2, 3])
        for number in range(10):
            gate.let(number)
        await stage.until_committed(10)


async def test_what_was_read_for_a_slot_that_another_queue_took_waits() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], concurrency=1) as running:
        for number in range(3):
            stage.dispatch("test.gate", number)
        (intake,) = running.process.intakes
        intake._take(stage.records(task_topic("test")))
        await until(lambda: gate.entered)
        await asyncio.sleep(0.02)
        assert gate.entered == [0]
        assert intake.pending >= 2
        for number in range(3):
            gate.let(number)
        await until(lambda: gate.entered == [0, 1, 2])


async def test_queues_share_the_concurrency_and_none_starves() -> None:
    stage = Stage("busy", "calm")
    most = now = 0

    async def count(number: int) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    busy: Any = activity("busy.work")(count)
    calm: Any = activity("calm.work")(count)
    async with stage.worker([busy, calm], concurrency=2):
        for number in range(300):
            stage.dispatch("busy.work", number, queue="busy")
        calm_one = stage.dispatch("calm.work", 1, queue="calm")
        await stage.outcome(calm_one)
        ahead = len(stage.outcomes())
        await until(lambda: len(stage.outcomes()) == 301)
    assert most == 2
    assert ahead < 50
