"""The tables are the rules: every pair of states is either a move that the architecture names, or refused."""

from itertools import product

import pytest

from holdfast.core.errors import Corrupt
from holdfast.core.transitions import (
    FINISHED,
    IN_FLIGHT,
    TASK_MOVES,
    WORKFLOW_MOVES,
    TaskStatus,
    WorkflowState,
    check_task_move,
    check_workflow_move,
)

# Written out a second time on purpose, in the words of the architecture, so that a slip in one of them shows.
WORKFLOW_TABLE = """
CREATED             -> RUNNING CANCELLED
RUNNING             -> COMPLETING FAILING PAUSED CANCELLED
PAUSED              -> RUNNING FAILING CANCELLED
COMPLETING          -> COMPLETED
FAILING             -> RUNNING COMPENSATING FAILED CANCELLED
FAILED              -> RUNNING COMPENSATING
COMPENSATING        -> COMPENSATED COMPENSATION_FAILED
COMPENSATION_FAILED -> COMPENSATING
COMPLETED           ->
COMPENSATED         ->
CANCELLED           ->
"""

TASK_TABLE = """
PENDING   -> QUEUED RUNNING SKIPPED FAILED CANCELLED
QUEUED    -> QUEUED RUNNING COMPLETED FAILED TIMED_OUT CANCELLED
RUNNING   -> QUEUED COMPLETED FAILED TIMED_OUT CANCELLED
FAILED    -> QUEUED FAILED CANCELLED
TIMED_OUT -> QUEUED FAILED CANCELLED
COMPLETED ->
CANCELLED ->
SKIPPED   ->
"""


def moves(table: str) -> set[tuple[str, str]]:
    rows = (line.split("->") for line in table.strip().splitlines())
    return {(source.strip(), target) for source, targets in rows for target in targets.split()}


@pytest.mark.parametrize(("source", "target"), list(product(WorkflowState, WorkflowState)))
def test_a_workflow_makes_exactly_the_moves_of_the_table(source: WorkflowState, target: WorkflowState) -> None:
    if (source.value, target.value) in moves(WORKFLOW_TABLE):
        check_workflow_move(source, target)
        return
    with pytest.raises(Corrupt, match=f"illegal workflow move {source} -> {target}"):
        check_workflow_move(source, target)


@pytest.mark.parametrize(("source", "target"), list(product(TaskStatus, TaskStatus)))
def test_a_task_makes_exactly_the_moves_of_the_table(source: TaskStatus, target: TaskStatus) -> None:
    if (source.value, target.value) in moves(TASK_TABLE):
        check_task_move(source, target)
        return
    with pytest.raises(Corrupt, match=f"illegal task move {source} -> {target}"):
        check_task_move(source, target)


def test_every_state_is_in_its_table() -> None:
    assert set(WORKFLOW_MOVES) == set(WorkflowState)
    assert set(TASK_MOVES) == set(TaskStatus)


def test_every_state_can_be_reached() -> None:
    assert set().union(*WORKFLOW_MOVES.values()) == set(WorkflowState) - {WorkflowState.CREATED}
    assert set().union(*TASK_MOVES.values()) == set(TaskStatus) - {TaskStatus.PENDING}


def test_what_has_no_way_out_is_finished() -> None:
    dead_ends = {state for state, targets in WORKFLOW_MOVES.items() if not targets}
    by_a_person = {WorkflowState.FAILED, WorkflowState.COMPENSATION_FAILED}
    assert dead_ends | by_a_person == FINISHED


def test_only_queued_and_running_are_in_flight() -> None:
    assert {TaskStatus.QUEUED, TaskStatus.RUNNING} == IN_FLIGHT
