"""Section 7, rule 10: the same attempt goes to somebody else under a new fence."""

from datetime import timedelta

from holdfast.core import events as e
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import START, Play, activity, names, workflow


def one_task(**fields: object) -> Play:
    play = Play(workflow(a=activity(**fields)))
    play.start()
    return play


def hand_back_for(play: Play, path: str, seconds: float) -> None:
    """No worker has the handler for so long: the task is handed back whenever it is dispatched."""
    begin = play.now
    while play.now < begin + timedelta(seconds=seconds):
        play.handed_back(path, "no_handler")
        assert f"retry:{path}" in play.rows.timers
        play.fire(f"retry:{path}")


def test_a_task_without_a_handler_is_dispatched_again_after_a_backoff_as_the_same_attempt_with_a_new_fence() -> None:
    play = one_task()
    assert names(play.handed_back("a", "no_handler")) == ["TASK_HANDED_BACK", "TIMER_SCHEDULED"]
    assert play.rows.timers["retry:a"].due_at == START + timedelta(seconds=1)
    assert names(play.fire("retry:a")) == ["TIMER_FIRED", "TASK_SCHEDULED"]
    assert [(m.attempt, m.fence) for m in play.dispatches] == [(1, 1), (1, 2)]
    play.completed("a")
    assert play.status is W.COMPLETED
    assert len(play.rows.tasks) == 1


def test_the_backoff_of_hand_backs_grows_to_its_cap() -> None:
    play = one_task()
    delays = []
    for _ in range(5):
        play.handed_back("a", "no_handler")
        delays.append((play.rows.timers["retry:a"].due_at - play.now).total_seconds())
        play.fire("retry:a")
    assert delays == [1, 2, 4, 5, 5]


def test_no_handler_for_a_minute_fails_the_task_without_a_retry() -> None:
    play = one_task(compensate="undo_a")
    hand_back_for(play, "a", 60)
    play.handed_back("a", "no_handler")
    failed = play.of(e.TaskFailed)[0]
    assert (failed.error.code, failed.final, failed.outcome) == ("no_handler_registered", True, e.Outcome.NOT_RUN)
    assert failed.attempt == 1
    assert play.status is W.FAILED, "nothing ran, so nothing is undone"


def test_no_handler_for_less_than_a_minute_fails_nothing() -> None:
    play = one_task()
    hand_back_for(play, "a", 50)
    play.completed("a")
    assert play.status is W.COMPLETED


def test_a_worker_that_starts_it_ends_the_row_of_hand_backs() -> None:
    play = one_task()
    hand_back_for(play, "a", 50)
    play.started("a")
    play.handed_back("a", "draining")
    play.wait(30).handed_back("a", "no_handler")
    assert play.of(e.TaskFailed) == []
    assert play.of(e.TaskHandedBack)[-1].since == play.now


def test_a_failed_attempt_ends_the_row_of_hand_backs() -> None:
    play = one_task()
    hand_back_for(play, "a", 50)
    play.failed("a")  # somebody has the handler, and was too fast for a `started`
    play.wait(60).fire("retry:a")
    play.handed_back("a", "no_handler")
    assert play.of(e.TaskFailed)[-1].error.code == "Oops"
    assert (play.of(e.TaskHandedBack)[-1].since, play.of(e.TaskHandedBack)[-1].count) == (play.now, 1)


def test_a_hand_back_for_another_reason_does_not_count_towards_the_minute() -> None:
    play = one_task()
    play.handed_back("a", "retry_later", 100)
    play.fire("retry:a")
    play.handed_back("a", "no_handler")
    assert play.of(e.TaskFailed) == []
    assert play.of(e.TaskHandedBack)[-1].since == play.now


def test_a_resumed_compensation_gets_its_minute_again() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    play.failed_for_good("b")
    hand_back_for(play, "undo_a", 60)
    play.handed_back("undo_a", "no_handler")
    assert play.status is W.COMPENSATION_FAILED
    play.wait(3_600).resume()
    play.handed_back("undo_a", "no_handler")
    assert play.status is W.COMPENSATING


def test_a_draining_worker_hands_back_and_the_task_goes_out_again_at_once() -> None:
    play = one_task()
    play.started("a", by="w1")
    assert names(play.handed_back("a", "draining", by="w1")) == ["TASK_HANDED_BACK", "TASK_SCHEDULED"]
    assert [(m.attempt, m.fence) for m in play.dispatches] == [(1, 1), (1, 2)]
    assert play.rows.leases == {}
    play.started("a", by="w2")
    assert play.task("a").holder == "w2"


def test_what_a_draining_worker_had_begun_may_have_had_its_effect() -> None:
    play = one_task(compensate="undo_a")
    play.started("a")
    play.handed_back("a", "draining")
    play.failed_for_good("a")
    assert play.of(e.CompensationTriggered)[0].plan == ("a",)


def test_what_a_draining_worker_had_not_begun_had_none() -> None:
    play = one_task(compensate="undo_a")
    play.handed_back("a", "draining")
    play.failed_for_good("a")
    assert play.status is W.FAILED


def test_retry_later_that_does_not_count_keeps_the_attempt_and_takes_the_delay_asked_for() -> None:
    play = one_task()
    for _ in range(10):
        play.started("a")
        play.handed_back("a", "retry_later", 45)
        assert play.rows.timers["retry:a"].due_at == play.now + timedelta(seconds=45)
        play.fire("retry:a")
    assert play.dispatched("a").attempt == 1
    assert play.dispatched("a").fence == 11


def test_retry_later_without_a_delay_goes_out_at_once() -> None:
    play = one_task()
    assert names(play.handed_back("a", "retry_later", 0)) == ["TASK_HANDED_BACK", "TASK_SCHEDULED"]


def test_a_hand_back_takes_the_queue_timeout_along_and_the_next_dispatch_has_a_new_one() -> None:
    play = one_task(queue_timeout_s=60)
    token = play.rows.timers["queue:a"].token
    play.wait(30).handed_back("a", "no_handler")
    assert set(play.rows.timers) == {"retry:a"}
    play.fire("retry:a")
    assert play.rows.timers["queue:a"].due_at == play.now + timedelta(seconds=60)
    assert play.fire("queue:a", token=token) == []


def test_a_handed_back_task_whose_workflow_fails_meanwhile_is_cancelled_at_once() -> None:
    play = Play(workflow(a=activity(), b=activity()))
    play.start()
    play.handed_back("a", "no_handler")
    play.failed_for_good("b")
    assert play.status is W.FAILED
    assert play.task("a").status is T.CANCELLED


def test_a_compensation_without_a_handler_is_handed_back_like_any_task() -> None:
    play = Play(workflow(a=activity(compensate="undo_a"), b=activity("a")))
    play.start()
    play.completed("a")
    play.failed_for_good("b")
    play.handed_back("undo_a", "no_handler")
    play.fire("retry:undo_a")
    play.started("undo_a")
    play.handed_back("undo_a", "draining")
    play.completed("undo_a")
    assert play.status is W.COMPENSATED
    assert [m.attempt for m in play.dispatches if m.path == "undo_a"] == [1, 1, 1]
