"""Section 7, rules 4 and 5: whose word counts. The fence decides; time never does."""

from datetime import timedelta

import pytest

from holdfast.core import events as e
from holdfast.core.ids import TaskPath
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import START, Play, activity, names, workflow

OTHER_WORDS = ["completed", "failed", "started", "stopped"]


def one_task(**fields: object) -> Play:
    play = Play(workflow(a=activity(**fields), z=activity("a")))
    play.start()
    return play


def reassigned() -> Play:
    """Worker 1 lost its lease and the second attempt is out."""
    play = one_task()
    play.started("a", by="w1")
    play.lease_expired("a")
    play.fire("retry:a")
    assert (play.task("a").attempt, play.task("a").fence) == (2, 2)
    return play


# --- started and the lease


def test_started_makes_the_lease_with_holder_address_fence_and_expiry() -> None:
    play = one_task(lease_s=30, timeout_s=90)
    play.started("a", by="w1")
    lease = play.rows.leases[TaskPath("a")]
    assert (lease.holder, lease.address, lease.fence, lease.attempt, lease.lease_s) == ("w1", "host:1", 1, 1, 30)
    assert (lease.since, lease.expires_at) == (START, START + timedelta(seconds=30))
    assert lease.timeout_at == START + timedelta(seconds=90)
    assert play.rows.task("a").holder == "w1"


def test_a_fast_task_sends_one_report_and_never_has_a_lease() -> None:
    play = one_task()
    assert names(play.completed("a", 5)) == ["TASK_COMPLETED", "TASK_SCHEDULED"]
    assert play.rows.leases == {}
    assert play.rows.task("a").started_at is None


def test_the_end_of_an_attempt_ends_its_lease() -> None:
    play = one_task()
    play.started("a")
    play.completed("a")
    assert play.rows.leases == {}


def test_a_second_started_of_the_same_holder_changes_nothing() -> None:
    play = one_task()
    play.started("a", by="w1")
    assert play.started("a", by="w1") == []


def test_a_second_delivery_that_starts_elsewhere_is_rejected_and_told_by_name_to_stop() -> None:
    play = one_task()
    play.started("a", by="w1")
    assert play.started("a", by="w2") == [
        e.ReportRejected(TaskPath("a"), 1, "w2", "started", "not_the_holder", tell=True)
    ]
    assert [(m.path, m.fence, m.holder, m.reason) for m in play.stops] == [("a", 1, "w2", "lease_lost")]
    assert play.rows.leases[TaskPath("a")].holder == "w1"


def test_a_heartbeat_with_the_current_fence_and_no_lease_counts_as_started() -> None:
    play = one_task()
    renewal = play.heartbeat("a", by="w1")
    assert play.of(e.TaskStarted)[0].holder == "w1"
    assert play.rows.leases[TaskPath("a")].holder == "w1"
    assert renewal is not None


def test_a_heartbeat_renews_the_lease_without_an_event() -> None:
    play = one_task(lease_s=30)
    play.started("a")
    before = len(play.events)
    renewal = play.wait(10).heartbeat("a")
    assert len(play.events) == before
    assert renewal is not None
    assert (renewal.path, renewal.fence, renewal.renewals) == ("a", 1, 1)
    assert renewal.expires_at == play.now + timedelta(seconds=30)
    assert play.task("a").renewals == 1


def test_a_heartbeat_that_does_not_count_renews_nothing_and_is_never_recorded() -> None:
    play = reassigned()
    before = len(play.events)
    assert play.heartbeat("a", by="w1", fence=1) is None
    play.started("a", by="w2")
    assert play.heartbeat("a", by="w1", fence=2) is None, "another one holds it"
    play.completed("a", by="w2")
    assert play.heartbeat("a", by="w2", fence=2) is None
    assert play.of(e.ReportRejected) == []
    assert len(play.events) == before + 3


# --- void fences


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_a_report_with_an_old_fence_changes_nothing_but_is_recorded(word: str) -> None:
    play = reassigned()
    events = getattr(play, word)("a", by="w1", fence=1)
    assert [(type(x), x.fence, x.holder, x.reason) for x in events] == [(e.ReportRejected, 1, "w1", "void_fence")]
    assert (play.task("a").status, play.task("a").fence) == (T.QUEUED, 2)


def test_a_hand_back_with_an_old_fence_changes_nothing_but_is_recorded() -> None:
    play = reassigned()
    assert names(play.handed_back("a", "draining", fence=1)) == ["REPORT_REJECTED"]
    assert play.task("a").fence == 2


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_a_report_after_the_attempt_was_settled_changes_nothing_but_is_recorded(word: str) -> None:
    play = one_task()
    play.completed("a", 1)
    assert [x.reason for x in getattr(play, word)("a", by="w2", fence=1)] == ["settled"]
    assert play.task("a").output == b"1"


def test_a_completion_during_the_backoff_is_refused_because_the_failure_voided_the_fence() -> None:
    play = one_task()
    play.failed("a")
    assert [x.reason for x in play.completed("a", fence=1)] == ["settled"]


def test_a_completion_after_a_hand_back_is_refused_while_nothing_is_out() -> None:
    play = one_task()
    play.handed_back("a", "no_handler")
    assert [x.reason for x in play.completed("a", fence=1)] == ["void_fence"]


def test_a_report_of_another_execution_is_refused() -> None:
    play = one_task()
    assert [x.reason for x in play.completed("a", execution=2)] == ["old_execution"]
    assert play.task("a").status is T.QUEUED


def test_a_report_for_a_task_that_does_not_exist_changes_nothing() -> None:
    play = one_task()
    assert play.completed("nobody", fence=1) == []
    assert play.lease_expired("nobody", fence=1, renewals=0) == []
    assert play.dispatch_lost("nobody", fence=1) == []


def test_a_report_for_a_task_whose_turn_has_not_come_is_refused() -> None:
    play = one_task()
    assert [x.reason for x in play.completed("z", fence=0)] == ["settled"]
    assert play.task("z").status is T.PENDING


def test_a_fence_that_was_never_given_out_is_refused() -> None:
    play = one_task()
    assert [x.reason for x in play.completed("a", fence=99)] == ["void_fence"]


def test_the_fence_of_another_task_is_refused() -> None:
    play = Play(workflow(a=activity(), b=activity()))
    play.start()
    assert names(play.completed("a", fence=play.fence("b"))) == ["REPORT_REJECTED"]


def test_there_is_one_rejection_on_record_per_task_and_fence() -> None:
    play = reassigned()
    assert names(play.completed("a", by="w1", fence=1)) == ["REPORT_REJECTED"]
    assert play.completed("a", by="w1", fence=1) == []
    assert play.failed("a", by="w3", fence=1) == []
    play.completed("a", by="w2")
    assert names(play.completed("a", by="w1", fence=2)) == ["REPORT_REJECTED"]
    assert play.completed("a", by="w1", fence=2) == []
    assert names(play.completed("z", by="w1", fence=1)) == ["REPORT_REJECTED"], "another task, its own record"


def test_a_late_result_of_a_cancelled_workflow_is_refused_and_recorded() -> None:
    play = one_task()
    play.started("a")
    play.cancel()
    assert names(play.completed("a")) == ["REPORT_REJECTED"]
    assert play.status is W.CANCELLED


# --- holders


def test_a_completion_with_the_current_fence_counts_whoever_sends_it() -> None:
    play = one_task()
    play.started("a", by="w1")
    play.completed("a", "done", by="w2")
    assert play.task("a").status is T.COMPLETED
    assert play.task("a").output == b'"done"'
    assert play.rows.leases == {}


def test_finished_work_counts_although_the_lease_has_run_out_as_long_as_nobody_said_so() -> None:
    play = one_task(lease_s=30)
    play.started("a")
    play.wait(3_600).completed("a")
    assert play.task("a").status is T.COMPLETED


@pytest.mark.parametrize("word", ["failed", "stopped"])
def test_a_failure_or_acknowledgement_by_somebody_who_does_not_hold_the_task_is_refused(word: str) -> None:
    play = one_task()
    play.started("a", by="w1")
    assert [x.reason for x in getattr(play, word)("a", by="w2")] == ["not_the_holder"]
    assert (play.task("a").status, play.task("a").holder) == (T.RUNNING, "w1")


def test_a_hand_back_by_somebody_who_does_not_hold_the_task_is_refused() -> None:
    play = one_task()
    play.started("a", by="w1")
    assert [x.reason for x in play.handed_back("a", "draining", by="w2")] == ["not_the_holder"]


@pytest.mark.parametrize("word", ["failed", "stopped"])
def test_a_failure_counts_from_anybody_while_there_is_no_holder(word: str) -> None:
    play = one_task()
    getattr(play, word)("a", by="w2")
    assert play.task("a").status is T.FAILED


def test_a_worker_that_stops_without_being_asked_has_only_ended_an_attempt() -> None:
    play = one_task(compensate="undo_a")
    play.started("a")
    play.stopped("a", ran=True)
    assert play.of(e.TaskFailed)[0].outcome is e.Outcome.UNKNOWN
    assert "retry:a" in play.rows.timers
    play.fire("retry:a")
    play.stopped("a", ran=False)
    assert play.of(e.TaskFailed)[1].outcome is e.Outcome.NOT_RUN
