"""What must hold of a finished instance, worked out from its events alone and not from the kernel's own state."""

from collections import Counter

from holdfast.core import events as e
from holdfast.core.inputs import HandBackReason
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import SETTLED, Play


def check_finished(play: Play) -> None:
    play.check_history()
    assert play.state.finished, "no lost work"
    check_timers(play)
    check_attempts(play)
    check_rejections(play)
    check_nothing_scheduled_while_draining(play)
    done = [x.path for x in play.of(e.TaskCompleted) if play.definition.tasks[x.path].compensation]
    planned = [x.plan for x in play.of(e.CompensationTriggered)]
    match play.status:
        case W.COMPLETED:
            assert not planned
            assert {play.task(path).status for path in play.definition.forward} <= {T.COMPLETED, T.SKIPPED}
        case W.FAILED:
            assert not planned
            assert to_undo(play) == []
        case W.COMPENSATED:
            expected = to_undo(play)
            assert planned == [tuple(expected)]
            assert done == [play.definition.tasks[path].compensate for path in expected], "once each, newest first"
            check_dependencies(play, expected)
        case W.COMPENSATION_FAILED:
            left = play.of(e.CompensationFailed)[-1].left
            assert [*done, *(play.definition.tasks[path].compensate for path in left)] == [
                play.definition.tasks[path].compensate for path in to_undo(play)
            ]


def to_undo(play: Play) -> list[str]:
    """The tasks that completed, or may have, and have a compensation; the one that ended last comes first."""
    ended: dict[str, int] = {}
    undo: set[str] = set()
    held: set[int] = set()
    for number, event in enumerate(play.events):
        if isinstance(event, e.CompensationTriggered):
            break
        if isinstance(event, e.TaskStarted) and event.holder is not None:
            held.add(event.fence)
        if isinstance(event, e.TaskDispatchLost):
            lost = play.definition.tasks[event.path]
            if lost.compensate and lost.compensate_unknown:
                undo.add(event.path)  # Somebody may have run it and died before a word of it.
        if isinstance(event, SETTLED):
            ended[event.path] = number
            task = play.definition.tasks[event.path]
            if task.compensate and (_completed(event) or (_unknown(event, held) and task.compensate_unknown)):
                undo.add(event.path)
    return sorted(undo, key=lambda path: ended.get(path, 0), reverse=True)


def _completed(event: e.Event) -> bool:
    return isinstance(event, e.TaskCompleted)


def _unknown(event: e.Event, held: set[int]) -> bool:
    if isinstance(event, e.TaskHandedBack):
        return event.reason is HandBackReason.DRAINING and event.fence in held
    return getattr(event, "outcome", None) is e.Outcome.UNKNOWN


def check_dependencies(play: Play, order: list[str]) -> None:
    """A task is undone before everything that it was built on."""
    for place, path in enumerate(order):
        below = set(play.definition.tasks[path].after)
        assert not below & set(order[:place]), f"{path} is undone after something that it came after"


def check_timers(play: Play) -> None:
    due = {event.token: event.due_at for event in play.of(e.TimerScheduled)}
    gone = Counter(event.token for event in play.events if isinstance(event, e.TimerFired | e.TimerCancelled))
    assert gone == Counter(due.keys()), "each timer fires once or is cancelled once"
    for entry in play.recorded:
        if isinstance(entry.event, e.TimerFired):
            assert entry.occurred_at >= due[entry.event.token], "never early"


def check_attempts(play: Play) -> None:
    for path, task in play.definition.tasks.items():
        numbers = list(dict.fromkeys(event.attempt for event in play.of(e.TaskScheduled, path)))
        assert numbers == sorted(numbers)
        if not task.compensation:
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) <= task.retry.attempts_max
        assert len(play.of(e.TaskCompleted, path)) <= 1


def check_rejections(play: Play) -> None:
    recorded = Counter((event.path, event.fence) for event in play.of(e.ReportRejected))
    assert set(recorded.values()) <= {1}, "one rejection per task and fence"


def check_nothing_scheduled_while_draining(play: Play) -> None:
    draining = False
    for event in play.events:
        if isinstance(event, e.WorkflowFailing):
            draining = True
        elif isinstance(event, e.CompensationTriggered):
            draining = False
        assert not (draining and isinstance(event, e.TaskScheduled))
