"""A workflow definition as the kernel uses it: validated, immutable, with its graph worked out once.

`holdfast.contracts.definitions` reads YAML or JSON, reports every problem at once, compiles the expressions and builds
this. The kernel never sees an invalid definition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from holdfast.core.ids import Payload, TaskPath
from holdfast.core.transitions import TaskStatus


class Scope(Protocol):
    """What an expression may see of an instance."""

    @property
    def input(self) -> Payload: ...

    def output(self, path: TaskPath) -> Payload | None: ...

    def status(self, path: TaskPath) -> TaskStatus: ...


class ExpressionFailed(Exception):
    """An expression failed at run time: its task fails and is not retried."""


class Expression(Protocol):
    """A compiled expression. `evaluate` returns JSON; both raise ExpressionFailed and nothing else."""

    @property
    def source(self) -> str: ...

    def evaluate(self, scope: Scope) -> Payload: ...

    def holds(self, scope: Scope) -> bool: ...


class TaskKind(StrEnum):
    ACTIVITY = "activity"
    SLEEP = "sleep"


class Publish(StrEnum):
    """Which events become CloudEvents on `holdfast.events`."""

    ALL = "all"
    LIFECYCLE = "lifecycle"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    attempts_max: int = 3
    initial_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 300.0
    jitter: float = 0.5


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    id: TaskPath
    kind: TaskKind = TaskKind.ACTIVITY
    activity: str = ""
    queue: str = ""
    sleep_s: float = 0.0
    after: tuple[TaskPath, ...] = ()
    when: Expression | None = None
    input: Expression | None = None  # None: the workflow's own input, passed on as it is
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_s: float = 86_400.0
    queue_timeout_s: float | None = None
    lease_s: float = 30.0
    compensate: TaskPath | None = None
    compensation: bool = False
    compensate_unknown: bool = True
    run_if_skipped: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    namespace: str
    name: str
    version: int
    tasks: Mapping[TaskPath, TaskDefinition]
    output: Expression | None = None
    deadline_s: float | None = None
    drain_timeout_s: float | None = None  # None: the longest lease among what is in flight
    publish: Publish = Publish.ALL
    successors: Mapping[TaskPath, tuple[TaskPath, ...]] = field(init=False)
    forward: tuple[TaskPath, ...] = field(init=False)  # every task that is not a compensation
    roots: tuple[TaskPath, ...] = field(init=False)
    undoes: Mapping[TaskPath, TaskPath] = field(init=False)  # compensation -> the task that it undoes

    def __post_init__(self) -> None:
        forward = tuple(path for path, task in self.tasks.items() if not task.compensation)
        successors: dict[TaskPath, list[TaskPath]] = {path: [] for path in forward}
        for path in forward:
            for before in self.tasks[path].after:
                successors[before].append(path)
        object.__setattr__(self, "forward", forward)
        object.__setattr__(self, "roots", tuple(path for path in forward if not self.tasks[path].after))
        object.__setattr__(self, "successors", {path: tuple(after) for path, after in successors.items()})
        undoes = {task.compensate: path for path, task in self.tasks.items() if task.compensate is not None}
        object.__setattr__(self, "undoes", undoes)
