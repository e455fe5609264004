"""FAILING means draining: what waits is cancelled, what runs is told to stop, and late results still count."""

from datetime import timedelta

import pytest

from holdfast.core import events as e
from holdfast.core.outcomes import CommandRefused
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import ONCE, Play, activity, names, sleep, workflow


def draining(**fields: object) -> Play:
    """`bad` has failed for good while `slow` runs with worker 1 and `queued` is with Kafka."""
    play = Play(
        workflow(
            bad=activity(),
            slow=activity(compensate="undo_slow", **fields),
            queued=activity(compensate="undo_queued", **fields),
            later=activity("slow"),
        )
    )
    play.start()
    play.started("slow", by="w1")
    play.failed_for_good("bad")
    assert play.status is W.FAILING
    return play


def test_a_task_that_failed_for_good_moves_the_workflow_to_failing_and_names_it() -> None:
    play = draining()
    failing = play.of(e.WorkflowFailing)[0]
    assert (failing.cause, failing.path, failing.error.code) == (e.FailureCause.TASK, "bad", "Oops")


def test_queued_and_running_activities_are_told_to_stop() -> None:
    play = draining()
    stops = {m.path: (m.fence, m.holder, m.reason) for m in play.stops}
    assert stops == {
        "slow": (play.fence("slow"), "w1", "workflow_failing"),
        "queued": (play.fence("queued"), None, "workflow_failing"),
    }


def test_sleeps_backoffs_and_queue_timeouts_are_cancelled_at_once() -> None:
    play = Play(
        workflow(
            bad=activity(),
            nap=sleep(600),
            backing_off=activity(),
            queued=activity(queue_timeout_s=60),
        )
    )
    play.start()
    play.failed("backing_off")
    play.failed_for_good("bad")
    assert set(play.rows.timers) == {"drain"}
    assert play.task("nap").status is T.CANCELLED
    assert play.task("backing_off").status is T.CANCELLED
    assert play.task("queued").status is T.QUEUED, "its result still counts"


def test_with_nothing_in_flight_the_drain_is_over_at_once() -> None:
    play = Play(workflow(bad=activity(retry=ONCE), nap=sleep(600)))
    play.start()
    assert names(play.failed("bad"))[-1] == "WORKFLOW_FAILED"
    assert play.of(e.TimerScheduled, None)[-1].key == "sleep:nap", "no drain timer was needed"


def test_nothing_new_is_scheduled_while_draining() -> None:
    play = draining()
    play.completed("slow")
    assert play.task("later").status is T.PENDING
    assert [m.path for m in play.dispatches] == ["bad", "slow", "queued"]


def test_a_failure_while_draining_is_the_last_one() -> None:
    play = draining()
    play.failed("slow", by="w1")
    assert play.of(e.TaskFailed, "slow")[0].final
    assert "retry:slow" not in play.rows.timers


def test_a_second_failure_does_not_fail_the_workflow_again() -> None:
    play = draining()
    play.failed_for_good("slow")
    play.failed_for_good("queued")
    assert len(play.of(e.WorkflowFailing)) == 1
    assert play.state.error is not None
    assert play.state.cause == "bad"
    assert play.status is W.FAILED


def test_a_result_that_comes_while_draining_counts_so_the_task_is_compensated_too() -> None:
    play = draining()
    play.stopped("queued", ran=False)
    play.completed("slow", {"id": 1}, by="w1")
    assert play.status is W.COMPENSATING
    assert play.of(e.CompensationTriggered)[0].plan == ("slow",)
    assert b'"outcome":"completed"' in play.dispatched("undo_slow").input


def test_a_started_while_draining_is_answered_with_a_stop() -> None:
    play = draining()
    assert names(play.started("queued", by="w2")) == ["TASK_STARTED", "TASK_STOP_REQUESTED"]
    assert [(m.path, m.fence, m.holder) for m in play.stops] == [("queued", play.fence("queued"), "w2")]


def test_a_first_heartbeat_while_draining_is_answered_with_a_stop_too() -> None:
    play = draining()
    play.heartbeat("queued", by="w2")
    assert [m.holder for m in play.stops] == ["w2"]
    assert play.heartbeat("queued", by="w2") is not None
    assert play.stops == [], "once is enough"


def test_an_acknowledged_stop_of_something_that_ran_has_an_unknown_outcome() -> None:
    play = draining()
    play.stopped("slow", ran=True, by="w1")
    assert play.of(e.TaskCancelled, "slow")[0].outcome is e.Outcome.UNKNOWN
    play.stopped("queued", ran=False)
    assert play.of(e.TaskCancelled, "queued")[0].outcome is e.Outcome.NOT_RUN
    assert play.of(e.CompensationTriggered)[0].plan == ("slow",)


def test_a_lost_dispatch_is_settled_while_draining_and_not_sent_again() -> None:
    play = draining()
    assert names(play.dispatch_lost("queued")) == ["TASK_DISPATCH_LOST", "TASK_CANCELLED"]
    assert play.task("queued").status is T.CANCELLED
    assert [m.path for m in play.dispatches].count("queued") == 1


def test_a_lease_that_expires_while_draining_settles_the_task_with_unknown_outcome() -> None:
    play = draining()
    play.lease_expired("slow")
    assert play.of(e.TaskTimedOut)[0].final
    play.stopped("queued", ran=False)
    assert play.of(e.CompensationTriggered)[0].plan == ("slow",)


def test_an_attempt_that_times_out_while_draining_is_settled() -> None:
    play = draining()
    play.timed_out("slow")
    assert play.task("slow").status is T.TIMED_OUT


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("no_handler", e.Outcome.NOT_RUN),
        ("retry_later", e.Outcome.FAILED),
        ("draining", e.Outcome.UNKNOWN),
    ],
)
def test_what_is_handed_back_while_draining_is_over(reason: str, outcome: e.Outcome) -> None:
    play = draining()
    play.handed_back("slow", reason)
    assert play.of(e.TaskCancelled, "slow")[0].outcome is outcome
    assert play.of(e.TaskHandedBack) == []


def test_the_drain_ends_with_the_last_result_and_its_timer_is_cancelled() -> None:
    play = draining()
    play.failed_for_good("slow")
    assert play.status is W.FAILING
    play.failed_for_good("queued")
    assert play.status is W.FAILED
    assert play.of(e.TimerCancelled)[-1].key == "drain"


def test_after_the_drain_timeout_the_rest_is_fenced_off_with_unknown_outcome() -> None:
    play = draining()
    play.fire("drain")
    cancelled = {x.path: (x.outcome, x.tell) for x in play.of(e.TaskCancelled)}
    assert cancelled == {"slow": (e.Outcome.UNKNOWN, True), "queued": (e.Outcome.UNKNOWN, True)}
    assert {(m.path, m.reason) for m in play.stops} == {("slow", "drain_timeout"), ("queued", "drain_timeout")}
    assert play.status is W.COMPENSATING
    assert set(play.state.plan) == {"slow", "queued"}
    assert [x.reason for x in play.completed("slow", by="w1")] == ["settled"], "too late"


def test_the_drain_timeout_is_one_lease_by_default_the_longest_in_flight() -> None:
    play = Play(workflow(bad=activity(lease_s=99), a=activity(lease_s=20), b=activity(lease_s=40)))
    play.start()
    play.failed_for_good("bad")
    assert play.rows.timers["drain"].due_at == play.now + timedelta(seconds=40)


def test_the_drain_timeout_can_be_set() -> None:
    play = Play(workflow(drain_timeout_s=7, bad=activity(), a=activity()))
    play.start()
    play.failed_for_good("bad")
    assert play.rows.timers["drain"].due_at == play.now + timedelta(seconds=7)


def test_a_drain_timeout_that_comes_after_the_drain_is_stale() -> None:
    play = draining()
    token = play.rows.timers["drain"].token
    play.failed_for_good("slow")
    play.failed_for_good("queued")
    assert play.fire("drain", token=token) == []


def test_something_to_compensate_leads_to_compensating_nothing_to_failed() -> None:
    for compensate, end in (("undo_a", W.COMPENSATING), (None, W.FAILED)):
        play = Play(workflow(a=activity(compensate=compensate), b=activity("a")))
        play.start()
        play.completed("a")
        play.failed_for_good("b")
        assert play.status is end


def test_a_task_that_failed_with_a_known_outcome_is_not_compensated_itself() -> None:
    play = Play(workflow(a=activity(compensate="undo_a")))
    play.start()
    play.started("a")
    play.failed_for_good("a")
    assert play.status is W.FAILED


# --- cancel


def test_cancel_is_at_once_and_tells_what_runs_to_stop() -> None:
    play = Play(workflow(deadline_s=99, a=activity(), b=activity(), nap=sleep(60), c=activity("a")))
    play.start()
    play.started("a", by="w1")
    events = play.cancel(reason="no longer wanted")
    assert events[-1] == e.WorkflowCancelled("no longer wanted")
    assert play.status is W.CANCELLED
    assert {(m.path, m.fence, m.reason) for m in play.stops} == {
        ("a", 1, "workflow_cancelled"),
        ("b", 2, "workflow_cancelled"),
    }
    outcomes = {x.path: x.outcome for x in play.of(e.TaskCancelled)}
    assert outcomes == {"a": e.Outcome.UNKNOWN, "b": e.Outcome.UNKNOWN, "nap": e.Outcome.NOT_RUN}
    assert [x.reason for x in play.completed("a", by="w1")] == ["settled"]


def test_cancel_during_a_backoff_takes_the_timer_away() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.failed("a")
    play.cancel()
    assert play.rows.timers == {}
    assert play.stops == [], "nobody runs it"


def test_cancel_without_compensate_undoes_nothing() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    play.cancel()
    assert play.of(e.CompensationTriggered) == []


def test_cancel_with_compensate_drains_then_compensates_and_names_the_person() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    play.started("b", by="w1")
    play.cancel(compensate=True)
    assert play.status is W.FAILING
    play.stopped("b", by="w1")
    assert play.of(e.CompensationTriggered) == [e.CompensationTriggered("alice", ("a",))]
    play.completed("undo_a")
    assert play.status is W.COMPENSATED


def test_cancel_with_compensate_and_nothing_to_undo_ends_compensated() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.cancel(compensate=True)
    play.stopped("a", ran=False)
    assert play.status is W.COMPENSATED


@pytest.mark.parametrize("compensate", [False, True])
def test_cancel_is_refused_while_failing(compensate: bool) -> None:
    play = draining()
    with pytest.raises(CommandRefused) as refusal:
        play.cancel(compensate=compensate)
    assert refusal.value.reason == "failing"


def test_cancel_with_force_ends_the_drain_without_compensation() -> None:
    play = draining()
    play.cancel(force=True)
    assert play.status is W.CANCELLED
    assert play.of(e.CompensationTriggered) == []


@pytest.mark.parametrize("force", [False, True])
def test_cancel_is_refused_while_compensating_also_with_force(force: bool) -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    play.failed_for_good("b")
    with pytest.raises(CommandRefused) as refusal:
        play.cancel(force=force)
    assert refusal.value.reason == "compensating"
