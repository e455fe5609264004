"""Every legal move of a workflow and of a task. What is absent is illegal.

The docs' diagrams are drawn from these tables and `evolve` refuses what they do not contain, so there is no second
place that could disagree.
"""

from enum import StrEnum

from holdfast.core.errors import Corrupt


class WorkflowState(StrEnum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    FAILING = "FAILING"
    FAILED = "FAILED"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"
    CANCELLED = "CANCELLED"


class TaskStatus(StrEnum):
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"


W, T = WorkflowState, TaskStatus

WORKFLOW_MOVES: dict[WorkflowState, frozenset[WorkflowState]] = {
    W.CREATED: frozenset({W.RUNNING, W.CANCELLED}),
    W.RUNNING: frozenset({W.COMPLETING, W.FAILING, W.PAUSED, W.CANCELLED}),
    W.PAUSED: frozenset({W.RUNNING, W.FAILING, W.CANCELLED}),
    W.COMPLETING: frozenset({W.COMPLETED}),
    W.FAILING: frozenset({W.RUNNING, W.COMPENSATING, W.FAILED, W.CANCELLED}),
    W.FAILED: frozenset({W.RUNNING, W.COMPENSATING}),
    W.COMPENSATING: frozenset({W.COMPENSATED, W.COMPENSATION_FAILED}),
    W.COMPENSATION_FAILED: frozenset({W.COMPENSATING}),
    W.COMPLETED: frozenset(),
    W.COMPENSATED: frozenset(),
    W.CANCELLED: frozenset(),
}

# RUNNING -> QUEUED is a hand-back: the attempt goes on with another worker. PENDING -> RUNNING is a task without a
# queue (a sleep). PENDING -> FAILED is an expression that failed before anything could be dispatched, FAILED -> FAILED
# and TIMED_OUT -> FAILED one that fails when a compensation is resumed.
TASK_MOVES: dict[TaskStatus, frozenset[TaskStatus]] = {
    T.PENDING: frozenset({T.QUEUED, T.RUNNING, T.SKIPPED, T.FAILED, T.CANCELLED}),
    T.QUEUED: frozenset({T.QUEUED, T.RUNNING, T.COMPLETED, T.FAILED, T.TIMED_OUT, T.CANCELLED}),
    T.RUNNING: frozenset({T.QUEUED, T.COMPLETED, T.FAILED, T.TIMED_OUT, T.CANCELLED}),
    T.FAILED: frozenset({T.QUEUED, T.FAILED, T.CANCELLED}),
    T.TIMED_OUT: frozenset({T.QUEUED, T.FAILED, T.CANCELLED}),
    T.COMPLETED: frozenset(),
    T.CANCELLED: frozenset(),
    T.SKIPPED: frozenset(),
}

FINISHED = frozenset({W.COMPLETED, W.COMPENSATED, W.CANCELLED, W.FAILED, W.COMPENSATION_FAILED})
"""FAILED and COMPENSATION_FAILED are finished until a person acts."""

IN_FLIGHT = frozenset({T.QUEUED, T.RUNNING})


def check_workflow_move(source: WorkflowState, target: WorkflowState) -> None:
    if target not in WORKFLOW_MOVES[source]:
        raise Corrupt(f"illegal workflow move {source} -> {target}")


def check_task_move(source: TaskStatus, target: TaskStatus) -> None:
    if target not in TASK_MOVES[source]:
        raise Corrupt(f"illegal task move {source} -> {target}")
