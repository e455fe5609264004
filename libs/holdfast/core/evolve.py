"""State from events: bookkeeping only. Rules live in `decide`; what this refuses is a move that the tables do not have.

A state may be changed in place, so whoever holds a cached one drops it when anything fails afterwards.
"""

from collections.abc import Callable, Iterable

from holdfast.core import events as e
from holdfast.core.errors import Corrupt
from holdfast.core.ids import TaskPath
from holdfast.core.inputs import HandBackReason
from holdfast.core.state import State, TaskState, Timer
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from holdfast.core.transitions import check_task_move, check_workflow_move


def evolve(state: State, event: e.Event) -> State:
    state.sequence += 1
    _EVOLVE[type(event)](state, event)
    return state


def fold(state: State, events: Iterable[e.Event]) -> State:
    for event in events:
        evolve(state, event)
    return state


def _move(state: State, target: W) -> None:
    if state.state is None:
        raise Corrupt(f"{state.key} has no first event")
    check_workflow_move(state.state, target)
    state.state = target


def _become(state: State, task: TaskState, status: T, *, retrying: bool = False) -> None:
    before = task.open
    check_task_move(task.status, status)
    task.status = status
    task.retrying = retrying
    state.open += task.open - before


def _end(state: State, task: TaskState, status: T, *, retrying: bool = False) -> None:
    """Every move out of QUEUED and RUNNING voids the fence."""
    _become(state, task, status, retrying=retrying)
    task.fence = 0
    task.holder = None
    task.ended_at = state.sequence


# --- the workflow


def _workflow_created(state: State, event: e.WorkflowCreated) -> None:
    if state.state is not None:
        raise Corrupt(f"{state.key} was created twice")
    state.state = W.CREATED
    state.input = event.input
    for path, task in state.definition.tasks.items():
        state.tasks[path] = TaskState(remaining=len(task.after))
    state.unfinished = len(state.definition.forward)


def _workflow_started(state: State, event: e.WorkflowStarted) -> None:
    _move(state, W.RUNNING)


def _workflow_completing(state: State, event: e.WorkflowCompleting) -> None:
    _move(state, W.COMPLETING)
    state.output = event.output


def _workflow_completed(state: State, event: e.WorkflowCompleted) -> None:
    _move(state, W.COMPLETED)


def _workflow_failing(state: State, event: e.WorkflowFailing) -> None:
    _move(state, W.FAILING)
    state.error = event.error
    state.cause = event.path or event.actor or event.cause
    state.by_request = event.cause is e.FailureCause.CANCELLED


def _workflow_failed(state: State, event: e.WorkflowFailed) -> None:
    _move(state, W.FAILED)


def _workflow_cancelled(state: State, event: e.WorkflowCancelled) -> None:
    _move(state, W.CANCELLED)


def _nothing(state: State, event: e.Event) -> None:
    """A fact for readers; what it leads to has events of its own."""


# --- tasks


def _task_scheduled(state: State, event: e.TaskScheduled) -> None:
    task = state.tasks[event.path]
    _become(state, task, T.QUEUED)
    task.attempt = event.attempt
    task.fence = state.fence = event.fence
    task.holder = None
    task.stopping = False
    task.input = event.input


def _task_started(state: State, event: e.TaskStarted) -> None:
    task = state.tasks[event.path]
    _become(state, task, T.RUNNING)
    task.attempt = event.attempt
    task.holder = event.holder
    task.renewals = 0
    task.expires_at = event.expires_at
    task.handed_back = 0
    task.handed_back_since = None
    if event.holder is not None:
        task.lease_fence = event.fence


def _task_completed(state: State, event: e.TaskCompleted) -> None:
    task = state.tasks[event.path]
    _end(state, task, T.COMPLETED)
    task.output = event.output
    task.error = None
    if state.definition.tasks[event.path].compensate is None:
        task.input = None  # Only a compensation would still want it.
    if state.definition.tasks[event.path].compensation:
        state.undone += 1
        return
    state.unfinished -= 1
    for path in state.definition.successors[event.path]:
        after = state.tasks[path]
        after.remaining -= 1
        after.alive += 1


def _task_skipped(state: State, event: e.TaskSkipped) -> None:
    task = state.tasks[event.path]
    _end(state, task, T.SKIPPED)
    state.unfinished -= 1
    for path in state.definition.successors[event.path]:
        state.tasks[path].remaining -= 1


def _task_failed(state: State, event: e.TaskFailed | e.TaskTimedOut) -> None:
    task = state.tasks[event.path]
    status = T.FAILED if type(event) is e.TaskFailed else T.TIMED_OUT
    _end(state, task, status, retrying=not event.final)
    task.attempt = event.attempt
    task.error = event.error
    task.handed_back = 0  # Somebody had the handler, or nobody did for too long: either way a row of hand-backs ends.
    task.handed_back_since = None
    if event.outcome is e.Outcome.UNKNOWN:
        task.unknown = True


def _task_handed_back(state: State, event: e.TaskHandedBack) -> None:
    task = state.tasks[event.path]
    if event.reason is HandBackReason.DRAINING and task.holder is not None:
        task.unknown = True  # It was interrupted in the middle: its effect may have happened.
    _end(state, task, T.QUEUED, retrying=True)
    task.handed_back = event.count
    # Only a missing handler is waited for; any other hand-back comes from a worker that has one.
    task.handed_back_since = event.since if event.reason is HandBackReason.NO_HANDLER else None


def _task_dispatch_lost(state: State, event: e.TaskDispatchLost) -> None:
    task = state.tasks[event.path]
    task.unknown = True  # Somebody may have run it and died before a word of it.
    _become(state, task, T.QUEUED, retrying=True)
    task.fence = 0


def _task_stop_requested(state: State, event: e.TaskStopRequested) -> None:
    state.tasks[event.path].stopping = True


def _task_cancelled(state: State, event: e.TaskCancelled) -> None:
    task = state.tasks[event.path]
    _end(state, task, T.CANCELLED)
    if event.outcome is e.Outcome.UNKNOWN:
        task.unknown = True


def _report_rejected(state: State, event: e.ReportRejected) -> None:
    task = state.tasks[event.path]
    task.rejected = (*task.rejected, event.fence)


# --- timers: `deadline` is the workflow's, `retry:charge` belongs to the task `charge`


def _timer_scheduled(state: State, event: e.TimerScheduled) -> None:
    _, colon, path = event.key.partition(":")
    if colon:
        state.tasks[TaskPath(path)].timer = event.token
    else:
        state.timers[event.key] = Timer(event.token, event.due_at)


def _timer_gone(state: State, event: e.TimerFired | e.TimerCancelled) -> None:
    _, colon, path = event.key.partition(":")
    if colon:
        state.tasks[TaskPath(path)].timer = 0
    else:
        state.timers.pop(event.key, None)


# --- compensation


def _compensation_triggered(state: State, event: e.CompensationTriggered) -> None:
    _move(state, W.COMPENSATING)
    state.plan = event.plan
    state.undone = 0


def _compensation_completed(state: State, event: e.CompensationCompleted) -> None:
    _move(state, W.COMPENSATED)


def _compensation_failed(state: State, event: e.CompensationFailed) -> None:
    _move(state, W.COMPENSATION_FAILED)
    state.error = event.error


def _compensation_resumed(state: State, event: e.CompensationResumed) -> None:
    _move(state, W.COMPENSATING)
    undone = state.definition.tasks[state.plan[state.undone]].compensate
    if undone is not None:
        task = state.tasks[undone]
        task.attempts_before = task.attempt  # Numbers go on, the count begins again.


_EVOLVE: dict[type[e.Event], Callable[..., None]] = {
    e.WorkflowCreated: _workflow_created,
    e.WorkflowStarted: _workflow_started,
    e.WorkflowCompleting: _workflow_completing,
    e.WorkflowCompleted: _workflow_completed,
    e.WorkflowFailing: _workflow_failing,
    e.WorkflowFailed: _workflow_failed,
    e.WorkflowCancelled: _workflow_cancelled,
    e.DeadlineExceeded: _nothing,
    e.TaskScheduled: _task_scheduled,
    e.TaskStarted: _task_started,
    e.TaskCompleted: _task_completed,
    e.TaskFailed: _task_failed,
    e.TaskTimedOut: _task_failed,
    e.TaskHandedBack: _task_handed_back,
    e.TaskDispatchLost: _task_dispatch_lost,
    e.TaskStopRequested: _task_stop_requested,
    e.TaskCancelled: _task_cancelled,
    e.TaskSkipped: _task_skipped,
    e.LeaseLapsed: _nothing,
    e.ReportRejected: _report_rejected,
    e.TimerScheduled: _timer_scheduled,
    e.TimerFired: _timer_gone,
    e.TimerCancelled: _timer_gone,
    e.CompensationTriggered: _compensation_triggered,
    e.CompensationCompleted: _compensation_completed,
    e.CompensationFailed: _compensation_failed,
    e.CompensationResumed: _compensation_resumed,
}
