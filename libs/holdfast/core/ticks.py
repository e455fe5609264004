"""What recovery says: a timer is due, a lease has lapsed, a dispatch has vanished. Stale ticks change nothing."""

from holdfast.core import events as e
from holdfast.core import failures, lifecycle, scheduling
from holdfast.core.draft import Draft, timer_key
from holdfast.core.ids import NULL, TaskPath
from holdfast.core.inputs import DispatchLost, Error, LapseKind, LeaseExpired, TimerDue
from holdfast.core.transitions import TaskStatus
from holdfast.core.transitions import WorkflowState as W


def timer_due(draft: Draft, tick: TimerDue) -> None:
    kind, colon, path = tick.key.partition(":")
    if colon:
        _task_timer_due(draft, tick, kind, TaskPath(path))
        return
    timer = draft.state.timers.get(tick.key)
    if timer is None or timer.token != tick.token:
        return  # Stale: it was cancelled, has fired before, or was scheduled anew under another token.
    draft.emit(e.TimerFired(tick.key, tick.token))
    match kind:
        case "start":
            lifecycle.begin(draft)
        case "deadline":
            draft.emit(e.DeadlineExceeded(timer.due_at))
            lifecycle.fail(draft, e.FailureCause.DEADLINE, Error("deadline_exceeded", f"deadline {timer.due_at}"))
        case "drain":
            lifecycle.drain_timed_out(draft)


def _task_timer_due(draft: Draft, tick: TimerDue, kind: str, path: TaskPath) -> None:
    if path not in draft.state.definition.tasks:
        return
    task = draft.state.tasks[path]
    if task.timer != tick.token or task.timer == 0 or tick.key != timer_key(draft.state, path):
        return
    match kind:
        case "retry":
            draft.emit(e.TimerFired(tick.key, tick.token))
            # A hand-back leaves the task QUEUED: the same attempt goes on. A failure asks for the next one.
            again = task.attempt if task.status is TaskStatus.QUEUED else task.attempt + 1
            scheduling.dispatch_again(draft, path, again)
        case "sleep":
            draft.emit(e.TimerFired(tick.key, tick.token))
            draft.emit(e.TaskCompleted(path, task.attempt, 0, NULL))
            lifecycle.task_ended(draft, path)
        case "queue":
            draft.emit(e.TimerFired(tick.key, tick.token))
            error = Error("queue_timeout", "no worker began it in time")
            failures.attempt_failed(draft, path, error, outcome=e.Outcome.UNKNOWN, timed_out=True)


def lease_expired(draft: Draft, tick: LeaseExpired) -> None:
    if tick.path not in draft.state.definition.tasks:
        return
    task = draft.state.tasks[tick.path]
    if task.status is not TaskStatus.RUNNING or task.fence != tick.fence or tick.fence == 0:
        return
    if tick.kind is LapseKind.LEASE and task.renewals != tick.renewals:
        return  # It was renewed since recovery looked.
    draft.emit(e.LeaseLapsed(tick.path, task.attempt, tick.fence, task.holder, task.renewals, tick.kind))
    if tick.kind is LapseKind.LEASE:
        error = Error("lease_expired", f"no word from {task.holder} for a whole lease")
    else:
        error = Error("timeout", f"the attempt ran longer than {draft.state.definition.tasks[tick.path].timeout_s:g} s")
    failures.attempt_failed(draft, tick.path, error, outcome=e.Outcome.UNKNOWN, timed_out=True)


def dispatch_lost(draft: Draft, tick: DispatchLost) -> None:
    if tick.path not in draft.state.definition.tasks:
        return
    task = draft.state.tasks[tick.path]
    if task.status is not TaskStatus.QUEUED or task.fence != tick.fence or tick.fence == 0:
        return
    draft.emit(e.TaskDispatchLost(tick.path, task.attempt, tick.fence))
    if draft.state.state is W.FAILING:
        draft.emit(e.TaskCancelled(tick.path, task.attempt, tick.fence, e.Outcome.UNKNOWN, "dispatch_lost"))
        lifecycle.go_on(draft)
    else:
        scheduling.dispatch_again(draft, tick.path, task.attempt)
