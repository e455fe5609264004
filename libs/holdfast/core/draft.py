"""A decision in the making: what the state will be once the events so far are applied, without touching the real one.

`decide` is pure, yet its later events depend on its earlier ones (a task completes, so the next is scheduled, so ...).
A draft is a thin copy: scalars are copied, tasks only when they are touched, so that it costs the same for three tasks
as for ten thousand.
"""

from datetime import datetime, timedelta

from holdfast.core.definition import TaskDefinition
from holdfast.core.events import Event, TimerCancelled, TimerScheduled
from holdfast.core.evolve import evolve
from holdfast.core.ids import Payload, TaskPath
from holdfast.core.state import State, TaskState
from holdfast.core.transitions import TaskStatus


class _Touched(dict[TaskPath, TaskState]):
    """The tasks that this decision has looked at; the others stay where they are."""

    __slots__ = ("_base",)

    def __init__(self, base: dict[TaskPath, TaskState]) -> None:
        super().__init__()
        self._base = base

    def __missing__(self, path: TaskPath) -> TaskState:
        task = self[path] = self._base[path].copy()
        return task


class Draft:
    __slots__ = ("actor", "events", "fence_before", "now", "state")

    def __init__(self, state: State, now: datetime, actor: str) -> None:
        self.state = _copy(state)
        self.now = now
        self.actor = actor
        self.events: list[Event] = []
        self.fence_before = state.fence

    def emit(self, event: Event) -> None:
        evolve(self.state, event)
        self.events.append(event)

    def task(self, path: TaskPath) -> tuple[TaskDefinition, TaskState]:
        return self.state.definition.tasks[path], self.state.tasks[path]

    def is_new(self, task: TaskState) -> bool:
        """Scheduled by this very decision: its dispatch has not gone out and never will if it is cancelled now."""
        return task.fence > self.fence_before

    def schedule_timer(self, key: str, due_at: datetime) -> None:
        # The sequence of the event that schedules it: never used before and never used again.
        self.emit(TimerScheduled(key, self.state.sequence + 1, due_at))

    def after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def cancel_timer(self, key: str) -> None:
        timer = self.state.timers.get(key)
        if timer is not None:
            self.emit(TimerCancelled(key, timer.token))

    def cancel_task_timer(self, path: TaskPath) -> None:
        task = self.state.tasks[path]
        if task.timer:
            self.emit(TimerCancelled(timer_key(self.state, path), task.timer))


class View:
    """What an expression may see of an instance."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def input(self) -> Payload:
        return self._state.input

    def output(self, path: TaskPath) -> Payload | None:
        return self._state.tasks[path].output

    def status(self, path: TaskPath) -> TaskStatus:
        return self._state.tasks[path].status


def timer_key(state: State, path: TaskPath) -> str:
    """Which timer a task has follows from what it waits for, so the state keeps only the token."""
    task = state.tasks[path]
    if task.retrying:
        return f"retry:{path}"
    return f"queue:{path}" if task.status is TaskStatus.QUEUED else f"sleep:{path}"


def _copy(state: State) -> State:
    return State(
        state.key,
        state.id,
        state.definition,
        state.state,
        state.execution,
        state.sequence,
        state.fence,
        state.input,
        state.output,
        state.error,
        state.cause,
        state.by_request,
        state.unfinished,
        state.open,
        state.plan,
        state.undone,
        _Touched(state.tasks),
        dict(state.timers) if state.timers else {},
    )
