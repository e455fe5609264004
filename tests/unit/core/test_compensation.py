"""What was done is undone, newest first, one after another; what cannot be undone waits for a person."""

import json
from datetime import timedelta

import pytest

from holdfast.core import events as e
from holdfast.core.outcomes import CommandRefused
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import FAILS, ONCE, Play, Says, activity, names, undo, workflow


def order(**refund: object) -> Play:
    """The saga of the README: reserve and charge have completed, shipping fails for good."""
    definition = workflow(
        reserve=activity(compensate="release"),
        charge=activity("reserve", compensate="refund", input=Says(lambda s: {"sum": s.input["amount"]})),
        ship=activity("charge", retry=ONCE),
        release=undo(),
        refund=undo(**refund),
    )
    play = Play(definition, input={"amount": 99})
    play.start()
    play.completed("reserve", {"shelf": 4})
    play.completed("charge", {"receipt": "r-1"})
    play.failed("ship")
    return play


def undone(play: Play) -> list[str]:
    return [x.path for x in play.of(e.TaskCompleted) if play.definition.tasks[x.path].compensation]


def test_compensation_runs_newest_first_one_after_another() -> None:
    play = order()
    assert play.status is W.COMPENSATING
    assert [m.path for m in play.dispatches] == ["reserve", "charge", "ship", "refund"]
    assert names(play.completed("refund")) == ["TASK_COMPLETED", "TASK_SCHEDULED"]
    assert names(play.completed("release")) == ["TASK_COMPLETED", "COMPENSATION_COMPLETED"]
    assert undone(play) == ["refund", "release"]
    assert play.status is W.COMPENSATED


def test_compensation_triggered_names_the_task_that_caused_it_and_the_plan() -> None:
    play = order()
    assert play.of(e.CompensationTriggered) == [e.CompensationTriggered("ship", ("charge", "reserve"))]


def test_the_input_of_a_compensation_is_what_is_known_of_the_task_it_undoes() -> None:
    play = order()
    assert json.loads(play.dispatched("refund").input) == {
        "input": {"sum": 99},
        "output": {"receipt": "r-1"},
        "outcome": "completed",
        "effect_key": f"{play.state.id}:1:charge",
    }
    play.completed("refund")
    assert json.loads(play.dispatched("release").input) == {
        "input": {"amount": 99},
        "output": {"shelf": 4},
        "outcome": "completed",
        "effect_key": f"{play.state.id}:1:reserve",
    }


def test_the_input_of_a_compensation_for_an_unknown_outcome_has_no_output() -> None:
    play = Play(workflow(a=activity(compensate="undo_a", retry=ONCE)), input=[1])
    play.start()
    play.started("a")
    play.lease_expired("a")
    fields = json.loads(play.dispatched("undo_a").input)
    assert fields == {"input": [1], "output": None, "outcome": "unknown", "effect_key": f"{play.state.id}:1:a"}


def test_a_compensation_may_have_an_input_expression_of_its_own() -> None:
    play = order(input=Says(lambda s: s.output("charge")["receipt"]))
    assert play.dispatched("refund").input == b'"r-1"'


def test_the_order_is_that_in_which_the_tasks_ended_and_not_that_of_the_definition() -> None:
    play = Play(
        workflow(
            a=activity(compensate="undo_a"),
            b=activity(compensate="undo_b"),
            c=activity(compensate="undo_c"),
            bad=activity("a", "b", "c"),
        )
    )
    play.start()
    for path in ("b", "c", "a"):
        play.completed(path)
    play.failed_for_good("bad")
    assert play.state.plan == ("a", "c", "b")


def test_a_task_that_was_retried_is_compensated_once() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.started("a")
    play.lease_expired("a")
    play.fire("retry:a")
    play.completed("a")
    play.failed_for_good("b")
    play.completed("undo_a")
    assert play.status is W.COMPENSATED
    assert undone(play) == ["undo_a"]


def test_skipped_tasks_and_tasks_without_a_compensation_are_not_in_the_plan() -> None:
    never = Says(lambda s: False)
    play = Play(
        workflow(
            a=activity(compensate="undo_a"),
            plain=activity(),
            off=activity(compensate="undo_off", when=never),
            bad=activity("a", "plain", "off"),
        )
    )
    play.start()
    play.completed("a")
    play.completed("plain")
    play.failed_for_good("bad")
    assert play.state.plan == ("a",)


# --- unknown outcomes


@pytest.mark.parametrize("how", ["lease_expired", "timed_out", "drain", "queue"])
def test_a_task_whose_outcome_is_unknown_is_compensated(how: str) -> None:
    play = _unknown(how)
    assert play.state.plan == ("a",)
    play.completed("undo_a")
    assert play.status is W.COMPENSATED


@pytest.mark.parametrize("how", ["lease_expired", "timed_out", "drain", "queue"])
def test_a_task_that_says_compensate_unknown_false_is_not(how: str) -> None:
    play = _unknown(how, compensate_unknown=False)
    assert play.status is W.FAILED


def _unknown(how: str, **fields: object) -> Play:
    play = Play(workflow(a=activity(compensate="undo_a", retry=ONCE, queue_timeout_s=60, **fields), bad=activity()))
    play.start()
    if how == "queue":
        play.fire("queue:a")
    else:
        play.started("a")
    if how in ("lease_expired", "timed_out"):
        getattr(play, how)("a")
    if play.status is W.RUNNING:
        play.failed_for_good("bad")
        play.fire("drain")
    else:
        play.stopped("bad", ran=False)
    return play


def test_compensate_unknown_false_still_compensates_what_completed() -> None:
    play = Play(workflow(a=activity(compensate="undo_a", compensate_unknown=False), b=activity("a")))
    play.start()
    play.completed("a")
    play.failed_for_good("b")
    assert play.state.plan == ("a",)


def test_an_unknown_attempt_stays_unknown_although_a_later_one_failed_for_sure() -> None:
    play = Play(workflow(a=activity(compensate="undo_a")))
    play.start()
    play.started("a")
    play.lease_expired("a")
    play.fire("retry:a")
    play.failed_for_good("a")
    assert play.state.plan == ("a",)


def test_an_unknown_attempt_that_backs_off_when_the_workflow_fails_is_compensated() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), bad=activity()))
    play.start()
    play.started("a")
    play.lease_expired("a")
    play.failed_for_good("bad")
    assert play.state.plan == ("a",)


def test_a_known_failure_that_backs_off_when_the_workflow_fails_is_not_compensated() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), bad=activity()))
    play.start()
    play.failed("a")
    play.failed_for_good("bad")
    assert play.status is W.FAILED


def test_a_task_that_completed_after_an_unknown_attempt_hands_over_its_output() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.started("a")
    play.lease_expired("a")
    play.fire("retry:a")
    play.completed("a", 7)
    play.failed_for_good("b")
    assert json.loads(play.dispatched("undo_a").input)["output"] == 7


# --- compensations that fail


def test_a_compensation_retries_with_its_own_policy() -> None:
    play = order()
    play.failed("refund")
    assert play.rows.timers["retry:refund"].due_at == play.now + timedelta(seconds=1)
    play.fire("retry:refund")
    assert play.dispatched("refund").attempt == 2
    assert json.loads(play.dispatched("refund").input)["output"] == {"receipt": "r-1"}
    play.completed("refund")
    play.completed("release")
    assert play.status is W.COMPENSATED


def test_a_compensation_whose_lease_expires_is_tried_again() -> None:
    play = order()
    play.started("refund")
    play.lease_expired("refund")
    play.fire("retry:refund")
    play.completed("refund")
    assert play.task("release").status is T.QUEUED


def test_a_compensation_that_fails_for_good_ends_in_compensation_failed_and_lists_what_is_left() -> None:
    play = order()
    play.failed("refund", retryable=False)
    failed = play.of(e.CompensationFailed)[0]
    assert (failed.path, failed.error.code, failed.left) == ("refund", "Oops", ("charge", "reserve"))
    assert play.status is W.COMPENSATION_FAILED
    assert play.rows.instance is not None
    assert play.rows.instance.finished_at == play.now


def test_what_is_left_does_not_list_what_was_undone_before() -> None:
    play = order()
    play.completed("refund")
    play.failed("release", retryable=False)
    assert play.of(e.CompensationFailed)[0].left == ("reserve",)


def test_resume_gives_the_failed_compensation_fresh_attempts_and_numbers_go_on() -> None:
    play = order(retry=ONCE)
    play.failed("refund")
    assert play.status is W.COMPENSATION_FAILED
    assert names(play.wait(60).resume("bank is back")) == ["COMPENSATION_RESUMED", "TASK_SCHEDULED"]
    assert play.status is W.COMPENSATING
    assert (play.dispatched("refund").attempt, play.dispatched("refund").fence) == (2, 5)
    assert play.rows.instance is not None
    assert play.rows.instance.finished_at is None
    play.completed("refund")
    play.completed("release")
    assert undone(play) == ["refund", "release"]
    assert play.status is W.COMPENSATED
    assert play.rows.instance.finished_at == play.now


def test_the_attempts_of_before_a_resume_do_not_count_and_the_backoff_begins_anew() -> None:
    play = order()
    for _ in range(2):
        play.failed("refund")
        play.fire("retry:refund")
    play.failed("refund")
    play.resume()
    play.failed("refund")
    assert play.status is W.COMPENSATING, "one of three"
    assert play.rows.timers["retry:refund"].due_at == play.now + timedelta(seconds=1)
    play.fire("retry:refund")
    assert play.dispatched("refund").attempt == 5


def test_a_resumed_compensation_can_fail_again_and_be_resumed_again() -> None:
    play = order(retry=ONCE)
    for _ in range(3):
        play.failed("refund")
        assert play.status is W.COMPENSATION_FAILED
        play.resume()
    play.completed("refund")
    play.completed("release")
    assert play.status is W.COMPENSATED
    assert [row.attempt for row in play.rows.tasks.values() if row.path == "refund"] == [1, 2, 3, 4]


def test_resume_goes_on_with_what_is_left_and_repeats_nothing() -> None:
    play = order()
    play.completed("refund")
    play.failed("release", retryable=False)
    play.resume()
    play.completed("release")
    assert play.status is W.COMPENSATED
    assert undone(play) == ["refund", "release"]


def test_resume_is_refused_while_the_workflow_runs() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    with pytest.raises(CommandRefused) as refusal:
        play.resume()
    assert refusal.value.reason == "not_resumable"


def test_resume_is_refused_while_compensating() -> None:
    play = order()
    with pytest.raises(CommandRefused):
        play.resume()


def test_a_compensation_whose_input_cannot_be_evaluated_ends_in_compensation_failed_also_after_a_resume() -> None:
    play = order(input=FAILS)
    assert play.status is W.COMPENSATION_FAILED
    assert [m.path for m in play.dispatches] == ["reserve", "charge", "ship"]
    play.resume()
    assert play.status is W.COMPENSATION_FAILED
    assert [x.attempt for x in play.of(e.TaskFailed, "refund")] == [1, 2]


def test_a_compensation_that_timed_out_may_fail_in_its_expression_when_it_is_resumed() -> None:
    play = order(retry=ONCE, input=Says(lambda s: 1 / (s.status("refund") is T.PENDING)))
    play.started("refund")
    play.timed_out("refund")
    assert play.status is W.COMPENSATION_FAILED
    play.resume()
    assert play.status is W.COMPENSATION_FAILED
    assert play.of(e.CompensationFailed)[-1].error.code == "expression_failed"


def test_a_late_result_of_a_forward_task_changes_nothing_while_compensating() -> None:
    play = order()
    assert names(play.completed("ship")) == ["REPORT_REJECTED"]
    assert play.status is W.COMPENSATING


def test_a_late_result_of_a_compensation_that_failed_for_good_is_refused() -> None:
    play = order(retry=ONCE)
    play.started("refund")
    play.lease_expired("refund")
    assert names(play.completed("refund")) == ["REPORT_REJECTED"]
    assert play.status is W.COMPENSATION_FAILED
