"""An attempt ended without a result: another attempt after a backoff, or the end of the task."""

from holdfast.core import events as e
from holdfast.core import lifecycle, saga
from holdfast.core.draft import Draft
from holdfast.core.ids import TaskPath, effect_key
from holdfast.core.inputs import Error
from holdfast.core.retry import delay_s
from holdfast.core.transitions import WorkflowState as W


def attempt_failed(
    draft: Draft,
    path: TaskPath,
    error: Error,
    *,
    retryable: bool = True,
    outcome: e.Outcome = e.Outcome.FAILED,
    timed_out: bool = False,
    retry_in_s: float | None = None,
) -> None:
    definition, task = draft.task(path)
    draft.cancel_task_timer(path)
    attempts = task.attempt - task.attempts_before
    # While draining nothing new is scheduled, so any failure is the last one.
    final = not retryable or attempts >= definition.retry.attempts_max or draft.state.state is W.FAILING
    kind = e.TaskTimedOut if timed_out else e.TaskFailed
    draft.emit(kind(path, task.attempt, task.fence, error, final, outcome))
    if final:
        task_failed(draft, path, error)
        return
    if retry_in_s is None:
        seed = effect_key(draft.state.id, draft.state.execution, path)
        retry_in_s = delay_s(definition.retry, attempts, seed)
    draft.schedule_timer(f"retry:{path}", draft.after(retry_in_s))


def never_began(draft: Draft, path: TaskPath, error: Error) -> None:
    """An expression failed before anything could be dispatched: not retried, and nothing to undo."""
    attempt = draft.state.tasks[path].attempt + 1
    draft.emit(e.TaskFailed(path, attempt, 0, error, final=True, outcome=e.Outcome.NOT_RUN))
    task_failed(draft, path, error)


def task_failed(draft: Draft, path: TaskPath, error: Error) -> None:
    match draft.state.state:
        case W.RUNNING:
            lifecycle.fail(draft, e.FailureCause.TASK, error, path)
        case W.COMPENSATING:
            saga.stop(draft, path, error)
        case _:
            lifecycle.go_on(draft)
