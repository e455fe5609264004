"""Rows as people and recovery read them. That one go gives the rows of many commits, the harness checks everywhere."""

from datetime import timedelta

import pytest

from holdfast.core import events as e
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.errors import Corrupt
from holdfast.core.evolve import evolve, fold
from holdfast.core.ids import TaskPath
from holdfast.core.project import changes_for, project, record
from holdfast.core.state import State
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import CLIENT, START, Play, activity, sleep, workflow


def test_the_row_of_an_attempt_tells_when_it_was_queued_started_and_ended() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.wait(1).started("a", by="w1")
    play.wait(2).completed("a")
    row = play.rows.task("a")
    assert (row.queued_at, row.started_at, row.ended_at) == (
        START,
        START + timedelta(seconds=1),
        START + timedelta(seconds=3),
    )
    assert (row.status, row.holder, row.fence, row.queue, row.activity) == (T.COMPLETED, "w1", 1, "area", "area.a")


def test_the_row_of_a_dispatch_that_went_out_again_has_its_new_fence_and_time() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.wait(5).dispatch_lost("a")
    row = play.rows.task("a")
    assert (row.attempt, row.fence, row.queued_at, row.status) == (1, 2, play.now, T.QUEUED)


def test_the_row_of_an_attempt_that_was_handed_back_has_not_ended() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.started("a")
    play.wait(5).handed_back("a", "no_handler")
    row = play.rows.task("a")
    assert (row.status, row.ended_at, row.attempt) == (T.PENDING, None, 1)


def test_the_row_of_an_instance_tells_what_it_waits_for() -> None:
    play = Play(workflow(a=activity(), nap=sleep(5, "a")))
    waits = []
    play.start(run_at=START + timedelta(seconds=1))
    for step in (lambda: play.fire("start"), lambda: play.completed("a"), lambda: play.fire("sleep:nap")):
        assert play.rows.instance is not None
        waits.append(play.rows.instance.awaiting)
        step()
    assert waits == ["timer", "tasks", "tasks"]
    assert play.rows.instance is not None
    assert play.rows.instance.awaiting is None


def test_the_row_of_an_instance_has_its_sequence_its_fence_and_its_error() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    play.failed_for_good("a")
    row = play.rows.instance
    assert row is not None
    assert (row.state, row.sequence, row.fence, row.execution, row.version) == (W.FAILED, len(play.events), 1, 1, 1)
    assert row.error is not None
    assert row.error.code == "Oops"


def test_expected_sequence_is_the_one_before_the_first_event_of_a_batch() -> None:
    play = Play(workflow(a=activity()))
    assert changes_for(play.state, START).expected_sequence == 0
    play.start()
    assert changes_for(play.state, START).expected_sequence == 3


def test_a_dispatch_and_its_cancellation_in_one_batch_send_no_dispatch() -> None:
    play = Play(workflow(a=activity()))
    changes = changes_for(play.state, START)
    play.start()
    play.cancel()
    project(play.state, play.recorded, changes)
    assert not [message for message in changes.messages if isinstance(message, Dispatch)]
    assert [message.fence for message in changes.messages if isinstance(message, Cancellation)] == [1]


def test_events_are_recorded_with_gapless_places_who_and_when() -> None:
    state = State.empty(Play(workflow(a=activity())).key, workflow(a=activity()))
    created = e.WorkflowCreated("tests", "play", 1, "run-1", b"{}")
    recorded = record(state, [created, e.WorkflowStarted()], START, CLIENT)
    assert [(x.sequence, x.execution, x.occurred_at, x.origin) for x in recorded] == [
        (1, 1, START, CLIENT),
        (2, 1, START, CLIENT),
    ]
    fold(state, [created, e.WorkflowStarted()])
    assert record(state, [e.WorkflowStarted()], START, CLIENT)[0].sequence == 3


# --- evolve refuses what the tables do not have


def test_history_begins_with_its_creation() -> None:
    play = Play(workflow(a=activity()))
    with pytest.raises(Corrupt, match="no first event"):
        evolve(play.state, e.WorkflowStarted())


def test_an_instance_is_created_once() -> None:
    play = Play(workflow(a=activity()))
    play.start()
    with pytest.raises(Corrupt, match="created twice"):
        evolve(play.state, play.events[0])


@pytest.mark.parametrize(
    "event",
    [
        e.WorkflowStarted(),
        e.WorkflowCompleted(),
        e.CompensationCompleted(),
        e.TaskCompleted(TaskPath("b"), 1, 1, b"null"),
        e.TaskTimedOut(TaskPath("b"), 1, 1, error=None, final=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_move_that_the_tables_do_not_have_is_refused_when_history_is_read(event: e.Event) -> None:
    play = Play(workflow(a=activity(), b=activity("a")))
    play.start()
    with pytest.raises(Corrupt, match="illegal"):
        evolve(play.state, event)
