"""Which tasks become ready, and what happens to a task when it does: skipped, dispatched, put to sleep, or failed."""

from collections import deque
from collections.abc import Iterable

from holdfast.core import events as e
from holdfast.core import failures
from holdfast.core.definition import ExpressionFailed, TaskDefinition, TaskKind
from holdfast.core.draft import Draft, View
from holdfast.core.ids import Payload, TaskPath
from holdfast.core.inputs import Error
from holdfast.core.transitions import WorkflowState as W


def ready_after(draft: Draft, path: TaskPath) -> list[TaskPath]:
    tasks = draft.state.tasks
    return [after for after in draft.state.definition.successors[path] if tasks[after].remaining == 0]


def schedule_ready(draft: Draft, paths: Iterable[TaskPath]) -> None:
    """A queue and not a recursion: a chain of skipped tasks may be as long as the definition."""
    ready = deque(paths)
    while ready and draft.state.state is W.RUNNING:
        path = ready.popleft()
        try:
            reason = _why_skipped(draft, path)
            if reason is None:
                _begin_task(draft, path)
                continue
        except ExpressionFailed as problem:
            failures.never_began(draft, path, Error("expression_failed", str(problem)))
            return
        draft.emit(e.TaskSkipped(path, reason))
        ready.extend(ready_after(draft, path))


def _why_skipped(draft: Draft, path: TaskPath) -> str | None:
    definition, task = draft.task(path)
    if definition.after and task.alive == 0 and not definition.run_if_skipped:
        return "predecessors_skipped"
    if definition.when is not None and not definition.when.holds(View(draft.state)):
        return "condition_false"
    return None


def _begin_task(draft: Draft, path: TaskPath) -> None:
    definition, task = draft.task(path)
    if definition.kind is TaskKind.SLEEP:
        draft.emit(e.TaskStarted(path, task.attempt + 1, 0))
        draft.schedule_timer(f"sleep:{path}", draft.after(definition.sleep_s))
    else:
        dispatch(draft, definition, task.attempt + 1, evaluate_input(draft, definition))


def evaluate_input(draft: Draft, definition: TaskDefinition) -> Payload | None:
    return None if definition.input is None else definition.input.evaluate(View(draft.state))


def dispatch(draft: Draft, definition: TaskDefinition, attempt: int, input: Payload | None) -> None:
    fence = draft.state.fence + 1
    draft.emit(e.TaskScheduled(definition.id, attempt, fence, definition.activity, definition.queue, input))
    if definition.queue_timeout_s is not None and draft.state.tasks[definition.id].timer == 0:
        draft.schedule_timer(f"queue:{definition.id}", draft.after(definition.queue_timeout_s))


def dispatch_again(draft: Draft, path: TaskPath, attempt: int) -> None:
    definition, task = draft.task(path)
    dispatch(draft, definition, attempt, task.input)
