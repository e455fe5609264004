"""What the coordinator is told about an attempt that ended."""

import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.core.inputs import (
    HandBackReason,
    TaskHandBack,
    TaskReportedCompleted,
    TaskReportedFailed,
)
from holdfast.worker import ActivityContext, NonRetryable, RetryLater, activity
from tests.unit.worker.stage import Stage


class Order(BaseModel):
    amount: int


@dataclass
class Receipt:
    order: str
    amount: int


@activity("test.charge")
async def charge(ctx: ActivityContext, order: Order) -> Receipt:
    return Receipt(ctx.run_id, order.amount)


@activity("test.sync")
def sync_charge(order: Order) -> dict[str, int]:
    return {"amount": order.amount}


@activity("test.inline", run_in="loop")
def inline(ctx: ActivityContext) -> str:
    return ctx.effect_key


@activity("test.plain")
async def plain(value: Any) -> Any:
    return value


def failing(problem: BaseException) -> Any:
    @activity("test.fail")
    async def fail() -> None:
        raise problem

    return fail


@pytest.mark.parametrize("which", [charge, sync_charge])
async def test_a_result_is_reported_as_json(which: Any) -> None:
    stage = Stage()
    async with stage.worker([which]) as running:
        done = await stage.outcome(stage.dispatch(which.name, {"amount": 7}))
    assert isinstance(done, TaskReportedCompleted)
    assert json.loads(done.output)["amount"] == 7
    assert done.holder == running.holder


async def test_an_activity_may_take_nothing_but_its_context() -> None:
    stage = Stage()
    async with stage.worker([inline]):
        dispatch = stage.dispatch("test.inline", {"ignored": True}, path="pay", attempt=3)
        done = await stage.outcome(dispatch)
    assert json.loads(done.output) == f"{dispatch.instance_id}:1:pay"


async def test_input_that_does_not_fit_fails_for_good_and_says_why() -> None:
    stage = Stage()
    async with stage.worker([charge]):
        done = await stage.outcome(stage.dispatch("test.charge", {"amount": "much"}))
    assert isinstance(done, TaskReportedFailed)
    assert (done.error.code, done.retryable) == ("input_invalid", False)
    assert "amount" in done.error.message
    assert "valid integer" in done.error.message
    assert json.loads(done.error.details or b"")[0]["loc"] == ["amount"]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (object(), "object"),
        (float("nan"), "JSON"),
        ({"deep": [1.0, float("inf")]}, "JSON"),
        ("NUL \0 inside", "NUL"),
        ("lone \ud800 surrogate", "JSON"),
        ("x" * (1024 * 1024 + 1), "bytes"),
    ],
)
async def test_a_result_that_cannot_be_kept_fails_for_good_and_says_why(result: object, says: str) -> None:
    @activity("test.bad")
    async def bad() -> Any:
        return result

    stage = Stage()
    async with stage.worker([bad]):
        done = await stage.outcome(stage.dispatch("test.bad"))
    assert (done.error.code, done.retryable) == ("output_invalid", False)
    assert says in done.error.message


@pytest.mark.parametrize(
    "value", [None, "null", {"a": None, "NaN": "Infinity"}, [1.5, True], "\\u0000 as text", "日本"]
)
async def test_odd_but_good_values_come_through_unchanged(value: object) -> None:
    stage = Stage()
    async with stage.worker([plain]):
        done = await stage.outcome(stage.dispatch("test.plain", value))
    assert isinstance(done, TaskReportedCompleted)
    assert json.loads(done.output) == value


async def test_an_exception_is_a_failure_that_may_be_retried_and_shows_where_it_was() -> None:
    stage = Stage()
    async with stage.worker([failing(ValueError("no such card"))]):
        done = await stage.outcome(stage.dispatch("test.fail"))
    assert isinstance(done, TaskReportedFailed)
    assert (done.error.code, done.error.message, done.retryable) == ("ValueError", "no such card", True)
    assert "test_outcomes.py" in json.loads(done.error.details or b"")["traceback"][-1]


async def test_an_enormous_error_is_cut_to_size() -> None:
    stage = Stage()
    async with stage.worker([failing(ValueError("x" * 5_000_000 + "\0"))]):
        done = await stage.outcome(stage.dispatch("test.fail"))
    assert len(done.error.message) <= 2_000
    assert len(done.error.details or b"") < 10_000


async def test_non_retryable_fails_for_good_with_its_code_and_details() -> None:
    problem = NonRetryable("amount must be positive", code="bad_amount", details={"amount": -1})
    stage = Stage()
    async with stage.worker([failing(problem)]):
        done = await stage.outcome(stage.dispatch("test.fail"))
    assert (done.error.code, done.retryable) == ("bad_amount", False)
    assert json.loads(done.error.details or b"") == {"amount": -1}


async def test_retry_later_hands_the_attempt_back_with_its_delay() -> None:
    stage = Stage()
    async with stage.worker([failing(RetryLater(timedelta(seconds=90)))]):
        done = await stage.outcome(stage.dispatch("test.fail"))
    assert isinstance(done, TaskHandBack)
    assert (done.reason, done.delay_s) == (HandBackReason.RETRY_LATER, 90)


async def test_retry_later_that_counts_is_a_failure_with_its_delay() -> None:
    stage = Stage()
    async with stage.worker([failing(RetryLater(4.5, "busy", count=True))]):
        done = await stage.outcome(stage.dispatch("test.fail"))
    assert isinstance(done, TaskReportedFailed)
    assert (done.retryable, done.retry_in_s, done.error.message) == (True, 4.5, "busy")


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 400 * 86_400])
def test_retry_later_refuses_a_delay_that_makes_no_sense(delay: float) -> None:
    with pytest.raises(ValueError, match="RetryLater needs a delay"):
        RetryLater(delay)


@pytest.mark.parametrize("run_in", ["loop", "thread"])
@pytest.mark.parametrize("problem", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
async def test_an_activity_cannot_end_the_worker_by_an_exception(problem: BaseException, run_in: Any) -> None:
    def leave(ctx: ActivityContext) -> None:
        raise problem

    async def leave_async() -> None:
        raise problem

    which: Any = activity("test.leave")(leave_async if run_in == "loop" else leave)
    stage = Stage()
    async with stage.worker([which, plain]):
        done = await stage.outcome(stage.dispatch("test.leave"))
        assert isinstance(done, TaskReportedFailed)
        assert (done.error.code, done.retryable) == (type(problem).__name__, True)
        assert isinstance(await stage.outcome(stage.dispatch("test.plain", 1)), TaskReportedCompleted)


async def test_sys_exit_in_a_sync_activity_on_the_loop_is_a_failure_too() -> None:
    @activity("test.exit", run_in="loop")
    def leave() -> None:
        sys.exit("bye")

    stage = Stage()
    async with stage.worker([leave]):
        done = await stage.outcome(stage.dispatch("test.exit"))
    assert done.error.code == "SystemExit"


async def test_without_the_handler_the_task_is_handed_back() -> None:
    stage = Stage()
    async with stage.worker([plain]):
        done = await stage.outcome(stage.dispatch("test.of_a_newer_deploy"))
        assert isinstance(done, TaskHandBack)
        assert (done.reason, done.delay_s) == (HandBackReason.NO_HANDLER, None)
        await stage.until_committed(1)


async def test_the_trace_of_a_dispatch_travels_with_its_report() -> None:
    stage = Stage()
    async with stage.worker([plain]):
        done = await stage.outcome(stage.dispatch("test.plain", trace_id="ab" * 16, span_id="cd" * 8))
    assert done.origin.trace_id == "ab" * 16
