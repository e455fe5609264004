"""A report is sent until Kafka has it."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.core.inputs import TaskReportedCompleted, TaskReportedFailed
from holdfast.log.memory_producer import MemoryProducer
from holdfast.log.protocol import Delivery, DeliveryError, Message, OnDeliveries
from tests.unit.worker.stage import Stage, until
from tests.unit.worker.test_offsets import Gate, quick

FATAL = DeliveryError(-150, "_FATAL", False, True, False, "this producer is fenced")
RETRIABLE = DeliveryError(-152, "_PURGE_QUEUE", True, False, False, "purged")
TOO_LARGE = DeliveryError(10, "MSG_SIZE_TOO_LARGE", False, False, True, "too large for this broker")
NOT_ALLOWED = DeliveryError(29, "TOPIC_AUTHORIZATION_FAILED", False, False, True, "not authorised")


class Failing(MemoryProducer):
    """Fails its first messages; a fatal error breaks it for good."""

    def __init__(self, stage: Stage, error: DeliveryError, times: int) -> None:
        super().__init__(stage.log)
        self.error, self.times = error, times
        self.broken: DeliveryError | None = None

    @property
    def fatal(self) -> DeliveryError | None:
        return self.broken

    def publish(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        if self.times == 0:
            super().publish(messages, done)
            return
        self.times -= 1
        self.broken = self.error if self.error.fatal else None
        self._outstanding += len(messages)
        self._report([Delivery(message.topic, -1, -1, self.error) for message in messages], done)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.reporter.resend_delay_s", 0.01)


async def run_one(error: DeliveryError, times: int) -> tuple[Stage, Any, Any]:
    stage = Stage()
    async with stage.worker([quick]) as running:
        first: list[MemoryProducer] = [Failing(stage, error, times)]
        running.engine.reporter._open = lambda: first.pop() if first else MemoryProducer(stage.log)
        dispatch = stage.dispatch("test.quick", 1)
        done = await stage.outcome(dispatch)
        await stage.until_committed(1)
    return stage, running.engine.reporter, done


async def test_a_report_that_failed_is_sent_again() -> None:
    _, reporter, done = await run_one(RETRIABLE, times=3)
    assert isinstance(done, TaskReportedCompleted)
    assert (reporter.resent, reporter.producers, reporter.unacknowledged) == (3, 1, 0)


async def test_after_a_fatal_error_a_new_producer_sends_what_was_not_acknowledged() -> None:
    _, reporter, done = await run_one(FATAL, times=1)
    assert isinstance(done, TaskReportedCompleted)
    assert reporter.producers == 2


async def test_a_broker_that_refuses_reports_makes_the_worker_unready_but_loses_nothing() -> None:
    stage = Stage()
    async with stage.worker([quick]) as running:
        refusing = Failing(stage, NOT_ALLOWED, times=1_000_000)
        running.engine.reporter._open = lambda: refusing
        dispatch = stage.dispatch("test.quick", 1)
        await until(lambda: "not authorised" in (running.process.problem() or ""))
        refusing.times = 0
        assert isinstance(await stage.outcome(dispatch), TaskReportedCompleted)
        await until(lambda: running.process.problem() is None)


async def test_a_result_that_the_broker_finds_too_large_ends_as_a_failure() -> None:
    _, _, done = await run_one(TOO_LARGE, times=1)
    assert isinstance(done, TaskReportedFailed)
    assert (done.error.code, done.retryable) == ("output_invalid", False)


async def test_a_started_that_failed_is_not_sent_after_the_outcome() -> None:
    stage = Stage()
    gate = Gate()
    async with stage.worker([gate.activity], start_grace_s=0.01) as running:
        failing = Failing(stage, RETRIABLE, times=1)
        running.engine.reporter._open = lambda: failing
        dispatch = stage.dispatch("test.gate", 0)
        await until(lambda: failing.times == 0)
        gate.let(0)
        await stage.outcome(dispatch)
        await until(lambda: running.engine.reporter.unacknowledged == 0)
    assert [type(r) for r in stage.reports(dispatch)] == [TaskReportedCompleted]


async def test_a_report_that_cannot_be_encoded_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.worker import reporter

    real = reporter.encode_report

    def encode(report: Any) -> bytes:
        if isinstance(report, TaskReportedCompleted) and report.output == b"13":
            raise ValueError("unlucky")
        return real(report)

    monkeypatch.setattr(reporter, "encode_report", encode)
    stage = Stage()
    async with stage.worker([quick]):
        dispatches = [stage.dispatch("test.quick", number) for number in (12, 13, 14)]
        kinds = [type(await stage.outcome(each)) for each in dispatches]
    assert kinds == [TaskReportedCompleted, TaskReportedFailed, TaskReportedCompleted]


async def test_a_producer_that_broke_while_nothing_was_sent_is_replaced_before_the_next_report() -> None:
    stage = Stage()
    async with stage.worker([quick]) as running:
        reporter = running.engine.reporter
        first = Failing(stage, FATAL, times=0)
        producers: list[MemoryProducer] = [first]
        reporter._open = lambda: producers.pop() if producers else MemoryProducer(stage.log)
        await stage.outcome(stage.dispatch("test.quick", 1))
        first.broken, first.times = FATAL, 1_000_000
        await stage.outcome(stage.dispatch("test.quick", 2))
        assert (reporter.producers, reporter.resent) == (2, 0)
