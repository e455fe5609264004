"""Given / when / then for the kernel, without CEL, Kafka or Postgres.

A `Play` is one instance: it plays inputs, folds what was decided and keeps the rows and messages that follow, the way a
coordinator and a store would. At every step it also checks what must hold whatever the rules are: `decide` is pure,
replay gives the live state, rows from one go equal the rows of many commits, sequences and fences only go up, every
move is in the tables, counters equal a recount, and a finished instance has nothing left. So each test checks its
one sentence and all of that.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast.core import events as e
from holdfast.core import inputs as i
from holdfast.core.changes import (
    Cancellation,
    Changes,
    Dispatch,
    InstanceRow,
    LeaseRenewal,
    LeaseRow,
    TaskRow,
    TimerRow,
)
from holdfast.core.decide import decide
from holdfast.core.definition import Definition, ExpressionFailed, RetryPolicy, Scope, TaskDefinition, TaskKind
from holdfast.core.evolve import evolve, fold
from holdfast.core.ids import InstanceKey, Payload, TaskPath, instance_key
from holdfast.core.outcomes import NotAccepted
from holdfast.core.project import changes_for, project, record
from holdfast.core.reports import renew
from holdfast.core.state import State, TaskState
from holdfast.core.transitions import TASK_MOVES, WORKFLOW_MOVES, TaskStatus, WorkflowState

START = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = i.Origin(i.ActorType.CLIENT, "alice", "shop#1", "trace-1", "span-1")
RECOVERY = i.Origin(i.ActorType.RECOVERY, "recovery-1", "holdfast.ticks/0/1")
OOPS = i.Error("Oops", "it did not work")

SETTLED = (e.TaskCompleted, e.TaskFailed, e.TaskTimedOut, e.TaskCancelled, e.TaskHandedBack, e.TaskDispatchLost)

E = TypeVar("E")


# --- definitions


@dataclass(frozen=True)
class Says:
    """An expression in plain Python. It fails as CEL would when the function raises KeyError or ZeroDivisionError."""

    function: Callable[["Seen"], Any]
    source: str = "python"

    def evaluate(self, scope: Scope) -> Payload:
        return Payload(json.dumps(self._call(scope)).encode())

    def holds(self, scope: Scope) -> bool:
        return bool(self._call(scope))

    def _call(self, scope: Scope) -> Any:
        try:
            return self.function(Seen(scope))
        except (KeyError, TypeError, ZeroDivisionError) as problem:
            raise ExpressionFailed(repr(problem)) from problem


class Seen:
    """What an expression sees: `s.input["amount"]`, `s.output("charge")`, `s.status("charge")`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def input(self) -> Any:
        return json.loads(self._scope.input)

    def output(self, path: str) -> Any:
        output = self._scope.output(TaskPath(path))
        return None if output is None else json.loads(output)

    def status(self, path: str) -> TaskStatus:
        return self._scope.status(TaskPath(path))


FAILS = Says(lambda s: {}["missing"])
NO = Says(lambda s: False)
YES = Says(lambda s: True)

NO_JITTER = RetryPolicy(attempts_max=3, initial_s=1.0, factor=2.0, cap_s=300.0, jitter=0.0)
ONCE = RetryPolicy(attempts_max=1)


def activity(*after: str, **fields: Any) -> dict[str, Any]:
    """`compensate="refund"` also makes the compensation `refund`, unless the workflow says more about it."""
    return {"after": after, "retry": NO_JITTER, **fields}


def sleep(seconds: float, *after: str, **fields: Any) -> dict[str, Any]:
    return {"kind": TaskKind.SLEEP, "sleep_s": seconds, "after": after, **fields}


def undo(**fields: Any) -> dict[str, Any]:
    return {"compensation": True, "retry": NO_JITTER, **fields}


def workflow(
    *, output: Says | None = None, deadline_s: float | None = None, drain_timeout_s: float | None = None, **tasks: Any
) -> Definition:
    for task in list(tasks.values()):
        if task.get("compensate"):
            tasks.setdefault(task["compensate"], undo())
    built = {TaskPath(path): _task(TaskPath(path), **fields) for path, fields in tasks.items()}
    return Definition("tests", "play", 1, built, output, deadline_s, drain_timeout_s)


def _task(path: TaskPath, **fields: Any) -> TaskDefinition:
    if fields.get("kind") is not TaskKind.SLEEP:
        fields = {"activity": f"area.{path}", "queue": "area", **fields}
    return TaskDefinition(path, **fields)


# --- rows, as a store would keep them


@dataclass
class Rows:
    instance: InstanceRow | None = None
    tasks: dict[tuple[int, TaskPath, int], TaskRow] = field(default_factory=dict)
    leases: dict[TaskPath, LeaseRow] = field(default_factory=dict)
    timers: dict[str, TimerRow] = field(default_factory=dict)

    def apply(self, changes: Changes) -> "Rows":
        self._apply_instance(changes.row)
        for key, row in changes.tasks.items():
            self.tasks[key] = _merged(self.tasks[key], row) if key in self.tasks else replace(row)
        for path, lease in changes.leases.items():
            if lease is None:
                self.leases.pop(path, None)
            else:
                self.leases[path] = lease
        for key, timer in changes.timers.items():
            if timer is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = timer
        return self

    def _apply_instance(self, row: InstanceRow) -> None:
        old, new = self.instance, replace(row)
        if old is not None:
            new.created_at = old.created_at or new.created_at
            if row.state.value in _FINISHED_NAMES:
                new.finished_at = new.finished_at or old.finished_at
        self.instance = new

    def task(self, path: str, attempt: int | None = None) -> TaskRow:
        rows = [row for row in self.tasks.values() if row.path == path and attempt in (None, row.attempt)]
        return max(rows, key=lambda row: row.attempt)


_FINISHED_NAMES = {"COMPLETED", "COMPENSATED", "CANCELLED", "FAILED", "COMPENSATION_FAILED"}


def _merged(old: TaskRow, new: TaskRow) -> TaskRow:
    fields = {name: getattr(new, name) for name in TaskRow.__slots__}
    return replace(old, **{name: value for name, value in fields.items() if value is not None})


# --- one instance


class Play:
    def __init__(
        self,
        definition: Definition,
        *,
        input: Any = None,
        run_id: str = "run-1",
        checks: bool = True,
        history_every: int = 1,
    ) -> None:
        self.key: InstanceKey = instance_key(definition.namespace, definition.name, run_id)
        self.definition = definition
        self.input = Payload(json.dumps({} if input is None else input).encode())
        self.now = START
        self.state = State.empty(self.key, definition)
        self.recorded: list[e.Recorded] = []
        self.messages: list[Dispatch | Cancellation] = []
        self.sent: list[Dispatch | Cancellation] = []  # by the last step
        self.rows = Rows()
        self.checks = checks
        self.history_every = history_every  # looking at the whole history at every step makes a long play quadratic
        self._steps = 0
        self._batch = changes_for(self.state, self.now)  # all steps as if they had been one batch

    # what can be asked

    @property
    def events(self) -> list[e.Event]:
        return [entry.event for entry in self.recorded]

    @property
    def status(self) -> WorkflowState | None:
        return self.state.state

    def task(self, path: str) -> TaskState:
        return self.state.tasks[TaskPath(path)]

    def of(self, kind: type[E], path: str | None = None) -> list[E]:
        return [x for x in self.events if isinstance(x, kind) and (path is None or getattr(x, "path", None) == path)]

    def fence(self, path: str) -> int:
        """The newest fence that the task was dispatched with, also when it is void by now."""
        return max((event.fence for event in self.of(e.TaskScheduled, path)), default=0)

    @property
    def dispatches(self) -> list[Dispatch]:
        return [message for message in self.messages if isinstance(message, Dispatch)]

    def dispatched(self, path: str) -> Dispatch:
        return [message for message in self.dispatches if message.path == path][-1]

    @property
    def stops(self) -> list[Cancellation]:
        """The cancellations that the last step sent."""
        return [message for message in self.sent if isinstance(message, Cancellation)]

    # what can be played

    def start(self, **fields: Any) -> list[e.Event]:
        return self.send(i.StartWorkflow(self.key, CLIENT, self.input, **fields))

    def cancel(self, **fields: Any) -> list[e.Event]:
        return self.send(i.CancelWorkflow(self.key, CLIENT, **fields))

    def resume(self, reason: str = "") -> list[e.Event]:
        return self.send(i.ResumeWorkflow(self.key, CLIENT, reason))

    def started(self, path: str, *, by: str = "w1", fence: int | None = None) -> list[e.Event]:
        return self.send(i.TaskReportedStarted(**self._report(path, by, fence), address="host:1"))

    def heartbeat(self, path: str, *, by: str = "w1", fence: int | None = None) -> LeaseRenewal | None:
        message = i.TaskHeartbeat(**self._report(path, by, fence))
        self.send(message)
        return renew(self.state, message, self.now)

    def completed(
        self, path: str, output: Any = None, *, by: str = "w1", fence: int | None = None, execution: int = 1
    ) -> list[e.Event]:
        fields = {**self._report(path, by, fence), "execution": execution}
        return self.send(i.TaskReportedCompleted(**fields, output=Payload(json.dumps(output).encode())))

    def failed(
        self, path: str, error: i.Error = OOPS, *, by: str = "w1", fence: int | None = None, **fields: Any
    ) -> list[e.Event]:
        return self.send(i.TaskReportedFailed(**self._report(path, by, fence), error=error, **fields))

    def failed_for_good(self, path: str, *, by: str = "w1") -> list[e.Event]:
        return self.failed(path, by=by, retryable=False)

    def stopped(self, path: str, *, ran: bool = True, by: str = "w1", fence: int | None = None) -> list[e.Event]:
        return self.send(i.TaskReportedCancelled(**self._report(path, by, fence), ran=ran))

    def handed_back(
        self, path: str, reason: str, delay_s: float | None = None, *, by: str = "w1", fence: int | None = None
    ) -> list[e.Event]:
        why = i.HandBackReason(reason)
        return self.send(i.TaskHandBack(**self._report(path, by, fence), reason=why, delay_s=delay_s))

    def lease_expired(self, path: str, *, fence: int | None = None, renewals: int | None = None) -> list[e.Event]:
        return self._lapsed(path, i.LapseKind.LEASE, fence, renewals)

    def timed_out(self, path: str, *, fence: int | None = None, renewals: int | None = None) -> list[e.Event]:
        return self._lapsed(path, i.LapseKind.TIMEOUT, fence, renewals)

    def dispatch_lost(self, path: str, *, fence: int | None = None) -> list[e.Event]:
        return self.send(i.DispatchLost(self.key, RECOVERY, TaskPath(path), self._fence(path, fence)))

    def fire(self, key: str, *, token: int | None = None) -> list[e.Event]:
        """The timer is due: the clock goes to its due time, never back."""
        row = self.rows.timers.get(key)
        if row is not None and token is None:
            self.now = max(self.now, row.due_at)
        return self.send(i.TimerDue(self.key, RECOVERY, key, token or (row.token if row else 1)))

    def wait(self, seconds: float) -> "Play":
        self.now += timedelta(seconds=seconds)
        return self

    def _report(self, path: str, by: str, fence: int | None) -> dict[str, Any]:
        origin = i.Origin(i.ActorType.WORKER, by, "holdfast.reports/0/1", "trace-2", "span-2")
        fields = {"instance": self.key, "origin": origin, "path": TaskPath(path), "execution": 1, "holder": by}
        return {**fields, "fence": self._fence(path, fence)}

    def _fence(self, path: str, fence: int | None) -> int:
        return self.fence(path) if fence is None else fence

    def _lapsed(self, path: str, kind: i.LapseKind, fence: int | None, renewals: int | None) -> list[e.Event]:
        seen = self.task(path).renewals if renewals is None else renewals
        return self.send(i.LeaseExpired(self.key, RECOVERY, TaskPath(path), self._fence(path, fence), seen, kind))

    # one step of the shell, and what must hold at each

    def send(self, message: i.Input) -> list[e.Event]:
        was_finished = self.state.finished
        events = self._decide(message)
        self.sent = []
        if not events:
            return events
        recorded = record(self.state, events, self.now, message.origin)
        changes = changes_for(self.state, self.now)
        assert changes.expected_sequence == len(self.recorded)
        fold(self.state, events)
        project(self.state, recorded, changes)
        self.recorded.extend(recorded)
        self.rows.apply(changes)
        self.messages.extend(changes.messages)
        self.sent = changes.messages
        if self.checks:
            project(self.state, recorded, self._batch)
            self._check_step(recorded, changes, was_finished)
            self._steps += 1
            if self._steps % self.history_every == 0:
                self.check_history()
        return events

    def _decide(self, message: i.Input) -> list[e.Event]:
        if not self.checks:
            return decide(self.state, message, self.now)
        before = frozen(self.state)
        try:
            events = decide(self.state, message, self.now)
        except NotAccepted:
            assert frozen(self.state) == before, "a command that is not accepted changed the state"
            raise
        assert frozen(self.state) == before, "decide changed the state that it was given"
        assert decide(self.state, message, self.now) == events, "the same input gave something else"
        assert frozen(self.state) == before, "decide changed the state that it was given"
        return events

    def _check_step(self, recorded: list[e.Recorded], changes: Changes, was_finished: bool) -> None:
        assert [entry.sequence for entry in self.recorded] == list(range(1, self.state.sequence + 1))
        scheduled = {x.event.fence for x in recorded if isinstance(x.event, e.TaskScheduled)}
        dropped = {x.event.fence for x in recorded if isinstance(x.event, e.TaskCancelled)}
        sent = [message.fence for message in changes.messages if isinstance(message, Dispatch)]
        assert sorted(sent) == sorted(scheduled - dropped), "every dispatch goes out once, a cancelled one never"
        if was_finished:
            resumed = any(isinstance(x.event, e.CompensationResumed) for x in recorded)
            assert resumed or all(isinstance(x.event, e.ReportRejected) for x in recorded)
        check_counters(self.state)
        if self.state.finished:
            assert self.rows.timers == {}
            assert self.rows.leases == {}
            assert not self.state.timers
            assert self.state.open == 0
            assert not any(task.fence or task.timer for task in self.state.tasks.values())
        else:
            self._check_waiting_for_something()

    def _check_waiting_for_something(self) -> None:
        """Nothing is ever stuck: a dispatch is out, or a timer that the instance knows has a row."""
        tokens = {timer.token for timer in self.state.timers.values()}
        tokens |= {task.timer for task in self.state.tasks.values() if task.timer}
        assert {row.token for row in self.rows.timers.values()} == tokens
        leased = {path for path, task in self.state.tasks.items() if task.holder is not None}
        assert set(self.rows.leases) == leased
        for path, task in self.state.tasks.items():
            if task.open:
                assert task.fence or task.timer, f"nothing will ever be heard of {path}"
        assert self.state.open or self.state.timers

    def check_history(self) -> None:
        """Everything that is asked of the history as a whole."""
        fences = [event.fence for event in self.of(e.TaskScheduled)]
        assert fences == sorted(set(fences)), "fences only go up"
        assert self.state.fence == max(fences, default=0)
        settled = [x.fence for x in self.events if isinstance(x, SETTLED) and x.fence]
        lost = {x.fence for x in self.of(e.TaskDispatchLost)}
        settled_once = [fence for fence in settled if fence not in lost]
        assert len(settled_once) == len(set(settled_once)), "one outcome per dispatch"
        assert unrenewed(self.replayed()) == unrenewed(self.state), "replay gives another state"
        once = project(self.state, self.recorded, changes_for(State.empty(self.key, self.definition), START))
        assert Rows().apply(once) == self.rows, "one go gives other rows than many commits"
        assert Rows().apply(self._batch) == self.rows, "one batch gives other rows than many commits"

    def replayed(self) -> State:
        state = State.empty(self.key, self.definition)
        for event in self.events:
            path = getattr(event, "path", None)
            task_before = state.tasks[path].status if path in state.tasks else None
            before = state.state
            evolve(state, event)
            if before is not None and state.state is not before:
                assert state.state in WORKFLOW_MOVES[before]
            if task_before is not None and state.tasks[path].status is not task_before:
                assert state.tasks[path].status in TASK_MOVES[task_before]
        return state


def check_counters(state: State) -> None:
    tasks = state.tasks.values()
    assert state.open == sum(
        task.retrying or task.status in (TaskStatus.QUEUED, TaskStatus.RUNNING) for task in tasks
    ), "open"
    done = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)
    left = sum(state.tasks[path].status not in done for path in state.definition.forward if path in state.tasks)
    assert state.unfinished == left, "unfinished"


def frozen(state: State) -> State:
    """A copy that shares nothing that could change."""
    tasks = {path: task.copy() for path, task in state.tasks.items()}
    return replace(state, tasks=tasks, timers={key: replace(timer) for key, timer in state.timers.items()})


def unrenewed(state: State) -> State:
    """Heartbeats write no events, so a replay knows nothing of them."""
    copy = frozen(state)
    for task in copy.tasks.values():
        task.renewals, task.expires_at = 0, None
    return copy


def names(events: list[e.Event]) -> list[str]:
    return [e.EVENT_TYPES[type(event)][0] for event in events]
