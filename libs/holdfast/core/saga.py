"""Compensation: what was done is undone, newest first, strictly one after another."""

from json import dumps

from holdfast.core import events as e
from holdfast.core import failures, scheduling
from holdfast.core.definition import ExpressionFailed
from holdfast.core.draft import Draft
from holdfast.core.ids import NULL, Payload, TaskPath, effect_key
from holdfast.core.inputs import Error
from holdfast.core.state import State
from holdfast.core.transitions import TaskStatus


def plan(state: State) -> tuple[TaskPath, ...]:
    """Every task that completed, or may have had its effect, and has a compensation; newest first."""
    done = [path for path in state.definition.forward if _to_undo(state, path)]
    return tuple(sorted(done, key=lambda path: state.tasks[path].ended_at, reverse=True))


def _to_undo(state: State, path: TaskPath) -> bool:
    definition, task = state.definition.tasks[path], state.tasks[path]
    if definition.compensate is None:
        return False
    return task.status is TaskStatus.COMPLETED or (task.unknown and definition.compensate_unknown)


def go_on(draft: Draft) -> None:
    """The next compensation of the plan, or the end of it."""
    state = draft.state
    if state.undone == len(state.plan):
        draft.emit(e.CompensationCompleted())
        return
    undo = state.plan[state.undone]
    path = state.definition.tasks[undo].compensate
    assert path is not None, "only tasks with a compensation are in the plan"
    definition, task = draft.task(path)
    try:
        input = scheduling.evaluate_input(draft, definition) or compensation_input(state, undo)
    except ExpressionFailed as problem:
        failures.never_began(draft, path, Error("expression_failed", str(problem)))
        return
    scheduling.dispatch(draft, definition, task.attempt + 1, input)


def stop(draft: Draft, path: TaskPath, error: Error) -> None:
    """A compensation failed for good: a person has to look, so what is left is listed."""
    draft.emit(e.CompensationFailed(path, error, draft.state.plan[draft.state.undone :]))


def compensation_input(state: State, undo: TaskPath) -> Payload:
    task = state.tasks[undo]
    completed = task.status is TaskStatus.COMPLETED
    fields = {
        "input": state.input if task.input is None else task.input,
        "output": (task.output or NULL) if completed else NULL,
        "outcome": b'"completed"' if completed else b'"unknown"',
        "effect_key": dumps(effect_key(state.id, state.execution, undo)).encode(),
    }
    return Payload(b"{" + b",".join(b'"' + name.encode() + b'":' + value for name, value in fields.items()) + b"}")
