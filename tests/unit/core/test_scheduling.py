"""Which tasks run, in which order, with which input, and which are skipped."""

from datetime import timedelta

from holdfast.core import events as e
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import FAILS, NO, NO_JITTER, START, YES, Play, Says, activity, names, sleep, workflow


def test_a_task_waits_for_all_of_its_predecessors() -> None:
    play = Play(workflow(a=activity(), b=activity(), join=activity("a", "b")))
    play.start()
    assert names(play.completed("b")) == ["TASK_COMPLETED"]
    assert names(play.completed("a")) == ["TASK_COMPLETED", "TASK_SCHEDULED"]
    assert play.dispatched("join").fence == 3


def test_a_diamond_runs_both_arms_side_by_side_and_joins_once() -> None:
    play = Play(workflow(a=activity(), left=activity("a"), right=activity("a"), join=activity("left", "right")))
    play.start()
    play.completed("a")
    assert play.state.open == 2
    play.completed("left")
    play.completed("right")
    play.completed("join")
    assert play.status is W.COMPLETED
    assert [m.path for m in play.dispatches] == ["a", "left", "right", "join"]


def test_an_input_expression_sees_the_input_and_the_outputs_of_tasks() -> None:
    expression = Says(lambda s: {"order": s.input["id"], "paid": s.output("a")["sum"], "was": s.status("a")})
    play = Play(workflow(a=activity(), b=activity("a", input=expression)), input={"id": 7})
    play.start()
    play.completed("a", {"sum": 99})
    assert play.dispatched("b").input == b'{"order": 7, "paid": 99, "was": "COMPLETED"}'


def test_without_an_input_expression_a_task_gets_the_workflows_input_and_the_event_does_not_repeat_it() -> None:
    play = Play(workflow(a=activity()), input={"id": 7})
    play.start()
    assert play.dispatched("a").input == b'{"id": 7}'
    assert play.of(e.TaskScheduled)[0].input is None


def test_a_retry_gets_the_input_that_the_first_attempt_had() -> None:
    play = Play(workflow(a=activity(input=Says(lambda s: [1, 2]))))
    play.start()
    play.failed("a")
    play.fire("retry:a")
    assert [m.input for m in play.dispatches] == [b"[1, 2]", b"[1, 2]"]


def test_a_dispatch_carries_what_the_worker_needs() -> None:
    play = Play(workflow(a=activity(lease_s=12, timeout_s=34, activity="payment.charge", queue="payment")))
    play.start()
    message = play.dispatched("a")
    assert (message.activity, message.queue, message.lease_s, message.timeout_s) == (
        "payment.charge",
        "payment",
        12,
        34,
    )
    assert (message.instance, message.instance_id, message.execution) == (play.key, play.state.id, 1)


# --- when


def test_a_task_whose_condition_is_false_is_skipped_and_its_successors_are_too() -> None:
    play = Play(workflow(a=activity(when=NO), b=activity("a"), c=activity("b")))
    events = play.start()
    assert [(x.path, x.reason) for x in events if isinstance(x, e.TaskSkipped)] == [
        ("a", "condition_false"),
        ("b", "predecessors_skipped"),
        ("c", "predecessors_skipped"),
    ]
    assert play.status is W.COMPLETED
    assert play.rows.task("c").status is T.SKIPPED


def test_a_task_whose_condition_holds_runs() -> None:
    play = Play(workflow(a=activity(when=Says(lambda s: s.input["amount"] > 10))), input={"amount": 11})
    play.start()
    assert play.task("a").status is T.QUEUED


def test_one_predecessor_that_completed_is_enough_for_a_task_to_run() -> None:
    play = Play(workflow(a=activity(when=NO), b=activity(), c=activity("a", "b")))
    play.start()
    play.completed("b")
    assert play.task("c").status is T.QUEUED


def test_it_makes_no_difference_whether_the_skipped_predecessor_ends_last() -> None:
    play = Play(workflow(a=activity(), b=activity("a", when=NO), c=activity("a", "b")))
    play.start()
    play.completed("a")
    assert play.task("b").status is T.SKIPPED
    assert play.task("c").status is T.QUEUED
    assert len(play.of(e.TaskScheduled, "c")) == 1


def test_a_task_that_says_run_if_skipped_runs_although_all_its_predecessors_were_skipped() -> None:
    play = Play(workflow(a=activity(when=NO), b=activity("a", run_if_skipped=True)))
    play.start()
    assert play.task("b").status is T.QUEUED


def test_a_task_that_says_run_if_skipped_still_asks_its_own_condition() -> None:
    play = Play(workflow(a=activity(when=NO), b=activity("a", run_if_skipped=True, when=NO)))
    play.start()
    assert play.of(e.TaskSkipped, "b")[0].reason == "condition_false"


def test_the_condition_is_asked_when_the_task_is_ready_and_not_before() -> None:
    big = Says(lambda s: s.output("a") > 5)
    play = Play(workflow(a=activity(), b=activity("a", when=big), nap=sleep(5, "b", when=YES)))
    play.start()
    play.completed("a", 6)
    assert play.task("b").status is T.QUEUED


def test_a_chain_of_skipped_tasks_may_be_as_long_as_the_definition() -> None:
    tasks = {f"t{n}": activity(f"t{n - 1}") for n in range(1, 500)}
    play = Play(workflow(t0=activity(when=NO), **tasks), checks=False)
    play.start()
    assert play.status is W.COMPLETED


# --- expressions that fail


def test_a_condition_that_fails_fails_its_task_without_a_retry() -> None:
    play = Play(workflow(a=activity(), b=activity("a", when=FAILS)))
    play.start()
    play.completed("a")
    failed = play.of(e.TaskFailed, "b")[0]
    assert (failed.attempt, failed.fence, failed.final, failed.outcome) == (1, 0, True, e.Outcome.NOT_RUN)
    assert failed.error.code == "expression_failed"
    assert play.status is W.FAILED
    assert play.rows.task("b").status is T.FAILED


def test_an_input_that_fails_fails_its_task_and_compensates_the_others_but_not_itself() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a", input=FAILS, compensate="undo_b")))
    play.start()
    play.completed("a")
    assert play.of(e.CompensationTriggered)[0] == e.CompensationTriggered("b", ("a",))
    assert [m.path for m in play.dispatches] == ["a", "undo_a"]


def test_a_task_cancelled_in_the_decision_that_scheduled_it_is_never_dispatched() -> None:
    play = Play(workflow(a=activity(queue_timeout_s=60), nap=sleep(5), b=activity(when=FAILS), c=activity()))
    events = play.start()
    assert play.messages == []
    assert play.status is W.FAILED
    cancelled = [(x.path, x.outcome, x.tell) for x in events if isinstance(x, e.TaskCancelled)]
    assert cancelled == [("a", e.Outcome.NOT_RUN, False), ("nap", e.Outcome.NOT_RUN, False)]
    assert play.task("c").status is T.PENDING, "nothing new is scheduled"


def test_a_task_that_was_never_dispatched_is_not_compensated() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity(when=FAILS)))
    play.start()
    assert play.status is W.FAILED
    assert play.messages == []


def test_a_task_dispatched_by_an_earlier_decision_is_told_to_stop_when_an_expression_fails_later() -> None:
    play = Play(workflow(a=activity(), long=activity(), b=activity("a", when=FAILS)))
    play.start()
    play.completed("a")
    assert play.status is W.FAILING
    assert [(m.path, m.fence) for m in play.stops] == [("long", play.fence("long"))]


# --- retries


def test_a_failure_is_tried_again_after_its_backoff_as_the_next_attempt_with_a_new_fence() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    assert names(play.failed("a")) == ["TASK_FAILED", "TIMER_SCHEDULED"]
    assert play.rows.timers["retry:a"].due_at == START + timedelta(seconds=1)
    assert names(play.fire("retry:a")) == ["TIMER_FIRED", "TASK_SCHEDULED"]
    assert (play.dispatched("a").attempt, play.dispatched("a").fence) == (2, 2)
    play.failed("a")
    assert play.rows.timers["retry:a"].due_at == play.now + timedelta(seconds=2)


def test_after_the_last_attempt_the_task_has_failed_for_good() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    for _ in range(2):
        play.failed("a")
        play.fire("retry:a")
    play.failed("a")
    assert [x.final for x in play.of(e.TaskFailed)] == [False, False, True]
    assert play.status is W.FAILED
    assert [row.attempt for row in play.rows.tasks.values()] == [1, 2, 3]
    assert {row.status for row in play.rows.tasks.values()} == {T.FAILED}


def test_a_non_retryable_error_ends_the_task_at_once() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.failed("a", retryable=False)
    assert play.of(e.TaskFailed)[0].final
    assert play.status is W.FAILED


def test_retry_later_that_counts_sets_its_own_delay_and_takes_an_attempt() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.failed("a", retry_in_s=77)
    assert play.rows.timers["retry:a"].due_at == START + timedelta(seconds=77)
    play.fire("retry:a")
    assert play.dispatched("a").attempt == 2


def test_retry_later_that_counts_ends_with_the_attempts() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    for _ in range(2):
        play.failed("a", retry_in_s=1)
        play.fire("retry:a")
    play.failed("a", retry_in_s=1)
    assert play.status is W.FAILED


def test_the_error_of_each_attempt_is_kept_in_its_row() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.failed("a")
    play.fire("retry:a")
    play.completed("a")
    assert play.rows.task("a", 1).error is not None
    assert play.rows.task("a", 2).error is None
    assert play.task("a").error is None


# --- queue time-out


def test_waiting_in_the_queue_counts_against_the_queue_timeout() -> None:
    play = Play(workflow(a=activity(queue_timeout_s=60, compensate="undo_a")))
    play.start()
    assert play.rows.timers["queue:a"].due_at == START + timedelta(seconds=60)
    assert names(play.fire("queue:a")) == ["TIMER_FIRED", "TASK_TIMED_OUT", "TIMER_SCHEDULED"]
    assert play.of(e.TaskTimedOut)[0].outcome is e.Outcome.UNKNOWN, "somebody may have run it within its grace"
    assert [(m.path, m.fence, m.holder) for m in play.stops] == [("a", 1, None)], "whoever meets it need not begin"


def test_a_started_task_no_longer_has_a_queue_timeout() -> None:
    play = Play(workflow(a=activity(queue_timeout_s=60)))
    play.start()
    token = play.rows.timers["queue:a"].token
    assert names(play.started("a")) == ["TIMER_CANCELLED", "TASK_STARTED"]
    assert play.fire("queue:a", token=token) == []


def test_a_task_that_completed_in_one_word_no_longer_has_a_queue_timeout() -> None:
    play = Play(workflow(a=activity(queue_timeout_s=60), b=activity("a")))
    play.start()
    play.completed("a")
    assert play.rows.timers == {}


def test_every_attempt_has_its_own_queue_timeout() -> None:
    play = Play(workflow(a=activity(queue_timeout_s=60, retry=NO_JITTER)))
    play.start()
    play.wait(50).failed("a")
    play.fire("retry:a")
    assert play.rows.timers["queue:a"].due_at == play.now + timedelta(seconds=60)
    play.fire("queue:a")
    play.fire("retry:a")
    play.fire("queue:a")
    assert play.status is W.FAILED
    assert play.state.error is not None
    assert play.state.error.code == "queue_timeout"
