"""What every row of an instance must be, from its events alone: the expectation that `holdfast verify` compares with.

Events are folded and projected one at a time, and the rows are merged as the store's commit merges them, because a
history does not tell which of its events were committed together.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core.changes import Changes, InstanceRow, LeaseRow, TaskRow, TimerRow
from holdfast.core.definition import Definition
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Recorded
from holdfast.core.evolve import evolve
from holdfast.core.ids import InstanceKey, TaskPath
from holdfast.core.project import changes_for, project
from holdfast.core.state import State

TaskKey = tuple[int, TaskPath, int]


@dataclass(slots=True)
class Rows:
    """The rows of one instance, expected or found."""

    instance: InstanceRow | None = None
    tasks: dict[TaskKey, TaskRow] = field(default_factory=dict)
    leases: dict[TaskPath, LeaseRow] = field(default_factory=dict)
    timers: dict[str, TimerRow] = field(default_factory=dict)


@dataclass(slots=True)
class Replay:
    """What a history leads to, up to its end or to the event that cannot be."""

    rows: Rows
    state: State
    problem: tuple[int, str] | None = None  # (sequence, what is wrong with the event there)


def replay(key: InstanceKey, definition: Definition, history: Iterable[Recorded]) -> Replay:
    """Fold a whole history. An illegal move or an event that does not fit ends it and is reported, not raised."""
    result = Replay(Rows(), State.empty(key, definition))
    for entry in history:
        if entry.sequence != result.state.sequence + 1:
            result.problem = (entry.sequence, f"sequence {result.state.sequence + 1} is missing before it")
            return result
        try:
            _step(result, entry)
        except (HoldfastError, KeyError, IndexError, ValueError, TypeError) as problem:
            result.problem = (entry.sequence, f"{type(entry.event).__name__} cannot happen here: {problem}")
            return result
    return result


def _step(result: Replay, entry: Recorded) -> None:
    state = result.state
    changes = changes_for(state, entry.occurred_at)
    if result.rows.instance is not None:
        changes.row.created_at = result.rows.instance.created_at
        changes.row.finished_at = result.rows.instance.finished_at
    evolve(state, entry.event)
    _merge(result.rows, project(state, [entry], changes))


def _merge(rows: Rows, changes: Changes) -> None:
    rows.instance = changes.row
    for key, task in changes.tasks.items():
        before = rows.tasks.get(key)
        rows.tasks[key] = task if before is None else _kept(before, task)
    for path, lease in changes.leases.items():
        if lease is None:
            rows.leases.pop(path, None)
        else:
            rows.leases[path] = lease
    for name, timer in changes.timers.items():
        if timer is None:
            rows.timers.pop(name, None)
        else:
            rows.timers[name] = timer


def _kept(before: TaskRow, after: TaskRow) -> TaskRow:
    """A change that does not name a time, a holder or an error leaves it as it is."""
    after.queued_at = after.queued_at or before.queued_at
    after.holder = after.holder or before.holder
    after.started_at = after.started_at or before.started_at
    after.ended_at = after.ended_at or before.ended_at
    after.error = after.error or before.error
    return after
