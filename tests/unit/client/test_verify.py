"""Replay and comparison, without a database: a history is played by the kernel, then its rows are changed by hand."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.client.replay import Rows, replay
from holdfast.client.verify import compare
from holdfast.contracts.definitions import parse_definition
from holdfast.core import inputs as i
from holdfast.core.decide import decide
from holdfast.core.definition import Definition
from holdfast.core.events import Recorded
from holdfast.core.evolve import fold
from holdfast.core.ids import InstanceKey, Payload, TaskPath
from holdfast.core.project import record
from holdfast.core.state import State
from holdfast.core.transitions import TaskStatus, WorkflowState

KEY = InstanceKey("orders/fulfil/o-1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = i.Origin(i.ActorType.CLIENT, "/test", "/test#1")

DEFINITION = """
namespace: orders
workflow: fulfil
version: 1
deadline: PT1H
tasks:
  charge: {activity: payment.charge, compensate: refund, retry: {max_attempts: 2}}
  ship: {activity: shipping.create, after: [charge]}
  refund: {activity: payment.refund, compensation: true}
"""


def definition() -> Definition:
    return parse_definition(DEFINITION)[1]


def history() -> list[Recorded]:
    """Charged in the second attempt, and shipping is running under a lease."""
    state, found, now = State.empty(KEY, definition()), [], NOW

    def play(message: Any) -> None:
        nonlocal now
        now += timedelta(seconds=1)
        events = decide(state, message, now)
        assert events
        found.extend(record(state, events, now, WHO))
        fold(state, events)

    def fence(path: str) -> int:
        return state.tasks[TaskPath(path)].fence

    charge, ship = TaskPath("charge"), TaskPath("ship")
    play(i.StartWorkflow(KEY, WHO, Payload(b'{"amount": 5}')))
    play(i.TaskReportedStarted(KEY, WHO, charge, 1, fence("charge"), "w-1", "host:1"))
    play(i.TaskReportedFailed(KEY, WHO, charge, 1, fence("charge"), "w-1", i.Error("oops", "no"), retryable=True))
    now += timedelta(minutes=1)
    retry = next(
        one.event for one in found if type(one.event).__name__ == "TimerScheduled" and "retry" in one.event.key
    )
    play(i.TimerDue(KEY, WHO, retry.key, retry.token, retry.due_at))
    play(i.TaskReportedCompleted(KEY, WHO, charge, 1, fence("charge"), "w-2", Payload(b"{}")))
    play(i.TaskReportedStarted(KEY, WHO, ship, 1, fence("ship"), "w-2", "host:2"))
    return found


def rows() -> Rows:
    return replay(KEY, definition(), history()).rows


def test_a_history_that_is_compared_with_its_own_rows_has_no_difference() -> None:
    result = replay(KEY, definition(), history())
    assert result.problem is None
    assert compare(KEY, result, rows()) == []
    assert {key[1:] for key in result.rows.tasks} == {("charge", 1), ("charge", 2), ("ship", 1)}
    assert list(result.rows.leases) == ["ship"]
    assert list(result.rows.timers) == ["deadline"]


def _instance(found: Rows, **changes: Any) -> None:
    assert found.instance is not None
    found.instance = replace(found.instance, **changes)


def _task(found: Rows, **changes: Any) -> None:
    key = (1, TaskPath("charge"), 2)
    found.tasks[key] = replace(found.tasks[key], **changes)


CHANGES: list[tuple[Callable[[Rows], Any], tuple[str, str, str]]] = [
    (lambda r: _instance(r, state=WorkflowState.COMPLETED), ("workflow_instances", "", "state")),
    (lambda r: _instance(r, sequence=99), ("workflow_instances", "", "sequence")),
    (lambda r: _instance(r, fence=1), ("workflow_instances", "", "fence")),
    (lambda r: _instance(r, finished_at=NOW), ("workflow_instances", "", "finished_at")),
    (lambda r: _task(r, status=TaskStatus.FAILED), ("task_executions", "1/charge/2", "status")),
    (lambda r: _task(r, ended_at=None), ("task_executions", "1/charge/2", "ended_at")),
    (lambda r: r.tasks.pop((1, TaskPath("charge"), 1)), ("task_executions", "1/charge/1", "row")),
    (lambda r: r.leases.clear(), ("execution_leases", "ship", "row")),
    (lambda r: r.timers.clear(), ("timers", "deadline", "row")),
]


@pytest.mark.parametrize(("change", "where"), CHANGES, ids=lambda x: x[0] + "." + x[2] if isinstance(x, tuple) else "")
def test_every_changed_row_is_found_by_table_row_and_column(
    change: Callable[[Rows], Any], where: tuple[str, str, str]
) -> None:
    found = rows()
    change(found)
    differences = compare(KEY, replay(KEY, definition(), history()), found)
    assert [(one.table, one.row, one.column) for one in differences] == [where]
    assert KEY in str(differences[0])


def test_the_expiry_of_a_lease_may_differ_because_heartbeats_write_no_events() -> None:
    found = rows()
    lease = found.leases[TaskPath("ship")]
    found.leases[TaskPath("ship")] = replace(lease, expires_at=lease.expires_at + timedelta(minutes=5))
    assert compare(KEY, replay(KEY, definition(), history()), found) == []


def test_a_gap_in_the_sequence_is_found() -> None:
    whole = history()
    result = replay(KEY, definition(), [*whole[:3], *whole[4:]])
    assert result.problem == (5, "sequence 4 is missing before it")
    assert compare(KEY, result, rows())[0].table == "events"


def test_an_illegal_move_is_found() -> None:
    whole = history()
    twice = whole[1]._replace(sequence=len(whole) + 1)
    result = replay(KEY, definition(), [*whole, twice])
    assert result.problem is not None
    assert "illegal workflow move RUNNING -> RUNNING" in result.problem[1]
