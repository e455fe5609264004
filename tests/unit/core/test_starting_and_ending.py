"""Starting, delaying, completing, deadlines, and commands that come too early, too late or twice."""

from datetime import timedelta

import pytest

from holdfast.core import events as e
from holdfast.core import inputs as i
from holdfast.core import limits
from holdfast.core.decide import decide
from holdfast.core.ids import TaskPath
from holdfast.core.outcomes import CommandDuplicate, CommandIgnored, CommandRefused
from holdfast.core.state import State
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import CLIENT, FAILS, ONCE, RECOVERY, START, Play, Says, activity, names, sleep, workflow


def test_a_start_creates_starts_and_dispatches_what_has_no_predecessor() -> None:
    play = Play(workflow(a=activity(), b=activity(), c=activity("a", "b")), input={"amount": 3})
    assert names(play.start()) == ["WORKFLOW_CREATED", "WORKFLOW_STARTED", "TASK_SCHEDULED", "TASK_SCHEDULED"]
    assert [(m.path, m.attempt, m.fence) for m in play.dispatches] == [("a", 1, 1), ("b", 1, 2)]
    assert play.dispatches[0].input == b'{"amount": 3}'
    assert play.rows.instance is not None
    assert play.rows.instance.state is W.RUNNING
    assert play.rows.instance.created_at == START


def test_a_dispatch_carries_the_trace_of_what_caused_it() -> None:
    play = Play(workflow(a=activity(), b=activity("a")))
    play.start()
    play.completed("a")
    assert [(m.trace_id, m.span_id) for m in play.dispatches] == [("trace-1", "span-1"), ("trace-2", "span-2")]


def test_a_second_start_is_a_duplicate_whatever_the_state() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    with pytest.raises(CommandDuplicate):
        play.start()
    play.completed("a")
    with pytest.raises(CommandDuplicate):
        play.start()
    assert len(play.of(e.WorkflowCreated)) == 1


def test_a_start_of_an_unknown_workflow_is_refused() -> None:
    play = Play(workflow(a=activity()))
    with pytest.raises(CommandRefused) as refusal:
        decide(None, i.StartWorkflow(play.key, CLIENT, play.input), START)
    assert refusal.value.reason == "unknown_workflow"


@pytest.mark.parametrize("kind", [i.CancelWorkflow, i.ResumeWorkflow])
def test_a_command_to_an_unknown_instance_is_refused(kind: type[i.CancelWorkflow | i.ResumeWorkflow]) -> None:
    play = Play(workflow(a=activity()))
    for state in (None, State.empty(play.key, play.definition)):
        with pytest.raises(CommandRefused) as refusal:
            decide(state, kind(play.key, CLIENT), START)
        assert refusal.value.reason == "unknown_instance"


def test_reports_and_ticks_for_an_unknown_instance_change_nothing() -> None:
    play = Play(workflow(a=activity()))
    assert play.completed("a", fence=1) == []
    assert play.dispatch_lost("a", fence=1) == []
    assert decide(None, i.TimerDue(play.key, RECOVERY, "deadline", 1), START) == []


def test_every_command_to_a_finished_instance_is_ignored() -> None:
    for end in (W.COMPLETED, W.FAILED, W.CANCELLED, W.COMPENSATED):
        play = _finished(end)
        for command in (play.cancel, lambda play=play: play.cancel(compensate=True), play.resume):
            with pytest.raises(CommandIgnored) as answer:
                command()
            assert answer.value.reason == "finished"


def _finished(end: W) -> Play:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a", retry=ONCE)))
    play.start()
    if end is W.CANCELLED:
        play.cancel()
    elif end is W.FAILED:
        play.failed_for_good("a")
    else:
        play.completed("a")
        _ = play.completed("b") if end is W.COMPLETED else play.failed("b")
        _ = play.completed("undo_a") if end is W.COMPENSATED else None
    assert play.status is end
    return play


def test_a_cancel_that_compensates_counts_as_accepted_and_yields_events_even_with_nothing_to_undo() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    assert play.cancel(compensate=True)


# --- run_at


def test_run_at_delays_the_start_until_its_timer_is_due() -> None:
    play = Play(workflow(deadline_s=60, a=activity()))
    due = START + timedelta(hours=1)
    assert names(play.start(run_at=due)) == ["WORKFLOW_CREATED", "TIMER_SCHEDULED"]
    assert play.status is W.CREATED
    assert play.rows.timers["start"].due_at == due
    assert names(play.fire("start"))[:2] == ["TIMER_FIRED", "WORKFLOW_STARTED"]
    assert play.rows.timers["deadline"].due_at == due + timedelta(seconds=60), "the deadline counts from RUNNING"


def test_a_run_at_in_the_past_starts_at_once() -> None:
    play = Play(workflow(a=activity()))
    play.start(run_at=START)
    assert play.status is W.RUNNING


def test_a_second_start_while_the_first_waits_is_a_duplicate() -> None:
    play = Play(workflow(a=activity()))
    play.start(run_at=START + timedelta(hours=1))
    with pytest.raises(CommandDuplicate):
        play.start()


@pytest.mark.parametrize("compensate", [False, True])
def test_a_cancel_before_the_start_cancels_and_takes_the_timer_away(compensate: bool) -> None:
    play = Play(workflow(a=activity()))
    play.start(run_at=START + timedelta(hours=1))
    play.cancel(compensate=compensate)
    assert play.status is W.CANCELLED
    assert play.dispatches == []
    assert play.fire("start", token=play.of(e.TimerScheduled)[0].token) == []


# --- completing


def test_a_workflow_completes_when_every_task_has() -> None:
    play = Play(workflow(output=Says(lambda s: {"sum": s.output("a") + s.output("b")}), a=activity(), b=activity("a")))
    play.start()
    play.completed("a", 1)
    assert play.status is W.RUNNING
    assert names(play.completed("b", 2)) == ["TASK_COMPLETED", "WORKFLOW_COMPLETING", "WORKFLOW_COMPLETED"]
    assert play.state.output == b'{"sum": 3}'
    assert play.rows.instance is not None
    assert play.rows.instance.finished_at == play.now


def test_a_workflow_without_an_output_expression_completes_with_null() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.completed("a", {"big": "thing"})
    assert play.state.output == b"null"


def test_an_output_that_cannot_be_evaluated_fails_the_workflow_while_it_can_still_be_compensated() -> None:
    play = Play(workflow(output=FAILS, a=activity(compensate="undo_a")))
    play.start()
    play.completed("a")
    assert play.of(e.WorkflowCompleting) == []
    assert play.status is W.COMPENSATING
    assert play.of(e.WorkflowFailing)[0].cause is e.FailureCause.OUTPUT
    assert play.of(e.CompensationTriggered)[0].cause == "output"
    play.completed("undo_a")
    assert play.status is W.COMPENSATED


def test_an_output_that_cannot_be_evaluated_with_nothing_to_undo_is_failed() -> None:
    play = Play(workflow(output=FAILS, a=activity()))
    play.start()
    play.completed("a")
    assert play.status is W.FAILED
    assert play.state.error is not None
    assert play.state.error.code == "expression_failed"


def test_a_finished_instance_keeps_its_end_time_when_a_late_report_is_recorded() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.completed("a")
    end = play.now
    play.wait(5).failed("a")
    assert len(play.of(e.ReportRejected)) == 1
    assert play.rows.instance is not None
    assert play.rows.instance.finished_at == end
    assert play.rows.instance.updated_at == play.now


# --- deadline


def test_the_deadline_passes_through_failing_like_any_failure() -> None:
    play = Play(workflow(deadline_s=60, a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    events = play.fire("deadline")
    assert names(events)[:3] == ["TIMER_FIRED", "DEADLINE_EXCEEDED", "WORKFLOW_FAILING"]
    assert play.status is W.FAILING
    assert play.of(e.DeadlineExceeded)[0].deadline_at == START + timedelta(seconds=60)
    play.stopped("b", ran=False)
    assert play.of(e.CompensationTriggered)[0] == e.CompensationTriggered("deadline", (TaskPath("a"),))
    play.completed("undo_a")
    assert play.status is W.COMPENSATED
    assert play.state.error is not None
    assert play.state.error.code == "deadline_exceeded"


def test_the_deadline_means_nothing_once_failing_has_begun() -> None:
    play = Play(workflow(deadline_s=60, a=activity(), b=activity()))
    play.start()
    token = play.rows.timers["deadline"].token
    play.failed_for_good("a")
    assert play.status is W.FAILING
    assert "deadline" not in play.rows.timers
    assert play.fire("deadline", token=token) == []


def test_a_deadline_that_a_completed_workflow_no_longer_needs_is_cancelled() -> None:
    play = Play(workflow(deadline_s=60, a=activity()))
    play.start()
    token = play.rows.timers["deadline"].token
    play.completed("a")
    assert play.of(e.TimerCancelled) == [e.TimerCancelled("deadline", token)]
    assert play.fire("deadline", token=token) == []


# --- limits


def test_a_history_without_end_fails_while_it_can_still_be_compensated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.lifecycle.events_per_execution_max", 6)
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a"), c=activity("b")))
    play.start()
    play.completed("a")
    assert play.status is W.RUNNING
    play.completed("b")
    assert play.of(e.WorkflowFailing)[0].cause is e.FailureCause.LIMIT
    assert [m.path for m in play.dispatches] == ["a", "b", "undo_a"], "c was cancelled in the decision that made it"
    play.failed("undo_a")
    play.fire("retry:undo_a")
    play.completed("undo_a")
    assert play.status is W.COMPENSATED


def test_the_limit_on_events_is_that_of_the_architecture() -> None:
    assert limits.events_per_execution_max == 50_000


# --- sleep


def test_a_sleep_completes_when_its_timer_is_due_and_not_before() -> None:
    play = Play(workflow(nap=sleep(600), a=activity("nap")))
    assert names(play.start())[2:] == ["TASK_STARTED", "TIMER_SCHEDULED"]
    assert play.rows.timers["sleep:nap"].due_at == START + timedelta(seconds=600)
    assert play.dispatches == []
    assert names(play.fire("sleep:nap")) == ["TIMER_FIRED", "TASK_COMPLETED", "TASK_SCHEDULED"]
    play.completed("a")
    assert play.status is W.COMPLETED


def test_a_tick_that_comes_twice_counts_once() -> None:
    play = Play(workflow(nap=sleep(600), a=activity("nap")))
    play.start()
    token = play.rows.timers["sleep:nap"].token
    play.fire("sleep:nap")
    assert play.fire("sleep:nap", token=token) == []


def test_a_tick_with_another_token_or_for_something_unknown_changes_nothing() -> None:
    play = Play(workflow(deadline_s=5, nap=sleep(600), a=activity(queue_timeout_s=9)))
    play.start()
    nap, queue = play.rows.timers["sleep:nap"].token, play.rows.timers["queue:a"].token
    strange = [
        ("sleep:nap", nap + 1),
        ("sleep:gone", nap),
        ("drain", 1),
        ("deadline", nap),
        ("what", 1),
        ("x:nap", nap),
    ]
    crossed = [("retry:nap", nap), ("queue:nap", nap), ("sleep:a", queue), ("retry:a", queue)]
    for key, token in [*strange, *crossed]:
        assert play.fire(key, token=token) == [], key


def test_a_worker_cannot_report_for_a_sleep() -> None:
    play = Play(workflow(nap=sleep(600)))
    play.start()
    assert [type(event) for event in play.completed("nap", fence=0)] == [e.ReportRejected]
    assert play.lease_expired("nap", fence=0) == []
    assert play.task("nap").status.value == "RUNNING"
