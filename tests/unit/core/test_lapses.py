"""Section 7, rules 7 and 8, and time-outs: leases that lapse and dispatches that vanish."""

import pytest

from holdfast.core import events as e
from holdfast.core import inputs as i
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import ONCE, Play, activity, names, workflow


def running(**fields: object) -> Play:
    play = Play(workflow(a=activity(**fields)))
    play.start()
    play.started("a", by="w1")
    return play


def test_an_expired_lease_times_the_attempt_out_with_unknown_outcome_and_begins_a_backoff() -> None:
    play = running()
    assert names(play.lease_expired("a")) == ["LEASE_EXPIRED", "TASK_TIMED_OUT", "TIMER_SCHEDULED"]
    timed_out = play.of(e.TaskTimedOut)[0]
    assert (timed_out.outcome, timed_out.final, timed_out.error.code) == (e.Outcome.UNKNOWN, False, "lease_expired")
    assert play.rows.leases == {}
    assert play.rows.task("a").status is T.TIMED_OUT


def test_the_next_attempt_after_an_expired_lease_has_a_new_fence() -> None:
    play = running()
    play.lease_expired("a")
    play.fire("retry:a")
    assert (play.dispatched("a").attempt, play.dispatched("a").fence) == (2, 2)


def test_an_expired_lease_on_the_last_attempt_is_the_end_of_the_task() -> None:
    play = running(retry=ONCE, compensate="undo_a")
    play.lease_expired("a")
    assert play.of(e.TaskTimedOut)[0].final
    assert play.status is W.COMPENSATING, "it may have had its effect"


def test_lease_lost_names_the_holder() -> None:
    play = running()
    play.lease_expired("a")
    assert [(m.path, m.fence, m.holder, m.reason) for m in play.stops] == [("a", 1, "w1", "lease_lost")]


def test_an_expiry_is_ignored_if_the_lease_was_renewed_since() -> None:
    play = running()
    play.heartbeat("a")
    assert play.lease_expired("a", renewals=0) == []
    assert names(play.lease_expired("a", renewals=1))[0] == "LEASE_EXPIRED"


def test_an_expiry_with_an_old_fence_or_of_a_task_that_does_not_run_is_ignored() -> None:
    play = running()
    play.lease_expired("a")
    assert play.lease_expired("a", fence=1) == [], "backing off"
    play.fire("retry:a")
    assert play.lease_expired("a", fence=1) == [], "reassigned"
    assert play.lease_expired("a", fence=2) == [], "queued: Kafka has it"
    play.started("a", by="w2")
    assert play.lease_expired("a", fence=1) == []
    play.completed("a", by="w2")
    assert play.lease_expired("a", fence=2) == [], "done"


def test_the_renewals_of_an_earlier_holder_do_not_count_for_the_next() -> None:
    play = running()
    play.heartbeat("a")
    play.heartbeat("a")
    play.lease_expired("a")
    play.fire("retry:a")
    play.started("a", by="w2")
    assert names(play.lease_expired("a", renewals=0))[0] == "LEASE_EXPIRED"


def test_a_time_out_ends_the_attempt_whatever_its_heartbeats_say() -> None:
    play = running(timeout_s=90)
    for _ in range(9):
        play.wait(10).heartbeat("a")
    assert names(play.timed_out("a", renewals=3)) == ["LEASE_EXPIRED", "TASK_TIMED_OUT", "TIMER_SCHEDULED"]
    assert play.of(e.LeaseLapsed)[0].kind is i.LapseKind.TIMEOUT
    assert play.of(e.TaskTimedOut)[0].error.code == "timeout"
    assert [m.holder for m in play.stops] == ["w1"]


def test_a_time_out_of_an_earlier_attempt_is_ignored() -> None:
    play = running()
    play.failed("a")
    play.fire("retry:a")
    play.started("a")
    assert play.timed_out("a", fence=1) == []


def test_attempts_that_timed_out_and_attempts_that_failed_count_together() -> None:
    play = running()
    play.lease_expired("a")
    play.fire("retry:a")
    play.failed("a")
    play.fire("retry:a")
    play.started("a")
    play.timed_out("a")
    assert play.status is W.FAILED
    assert [row.status for row in play.rows.tasks.values()] == [T.TIMED_OUT, T.FAILED, T.TIMED_OUT]


# --- lost dispatches


def test_a_lost_dispatch_goes_out_again_as_the_same_attempt_with_a_new_fence() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    assert names(play.dispatch_lost("a")) == ["TASK_DISPATCH_LOST", "TASK_SCHEDULED"]
    assert [(m.attempt, m.fence) for m in play.dispatches] == [(1, 1), (1, 2)]
    assert [x.reason for x in play.completed("a", fence=1)] == ["void_fence"]
    play.completed("a")
    assert play.status is W.COMPLETED


@pytest.mark.parametrize("word", ["started", "completed", "failed"])
def test_a_dispatch_that_was_heard_of_since_is_not_lost(word: str) -> None:
    play = Play(workflow(a=activity(), b=activity()))
    play.start()
    getattr(play, word)("a")
    assert play.dispatch_lost("a") == []


def test_a_dispatch_that_was_replaced_is_not_lost_again() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.dispatch_lost("a")
    assert play.dispatch_lost("a", fence=1) == []


def test_a_task_that_was_handed_back_has_no_dispatch_to_lose() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.handed_back("a", "no_handler")
    assert play.dispatch_lost("a", fence=1) == []


def test_a_lost_dispatch_does_not_restart_the_queue_timeout() -> None:
    play = Play(workflow(a=activity(queue_timeout_s=60)))
    play.start()
    due = play.rows.timers["queue:a"].due_at
    play.wait(20).dispatch_lost("a")
    assert play.rows.timers["queue:a"].due_at == due
    play.fire("queue:a")
    assert play.task("a").status is T.TIMED_OUT


def test_a_lost_dispatch_of_a_compensation_goes_out_again() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    play.failed_for_good("b")
    play.dispatch_lost("undo_a")
    play.completed("undo_a")
    assert play.status is W.COMPENSATED
