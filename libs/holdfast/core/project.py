"""Rows and messages from events, by pure functions. Committed together with the events, or not at all.

What a row becomes follows from the events alone; the state after them only fills in the instance's own row and the
parts of a dispatch that an event does not repeat. So replaying a whole history in one go gives the same rows as the
many commits that wrote them, and `holdfast verify` can compare the two.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.core import events as e
from holdfast.core.changes import Cancellation, Changes, Dispatch, InstanceRow, LeaseRow, TaskRow, TimerRow
from holdfast.core.events import Recorded
from holdfast.core.ids import TaskPath
from holdfast.core.inputs import Origin
from holdfast.core.state import State
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState


def record(state: State, events: Sequence[e.Event], now: datetime, origin: Origin) -> list[Recorded]:
    """Give the events their places in history: call it before they are folded into the state."""
    execution, sequence = state.execution, state.sequence
    return [Recorded(number, execution, event, now, origin) for number, event in enumerate(events, sequence + 1)]


def changes_for(state: State, now: datetime) -> Changes:
    """An empty set of changes, taken before the first event of a batch: `expected_sequence` is the optimistic lock."""
    return Changes(_instance_row(state, now), state.sequence)


def project(state: State, recorded: Sequence[Recorded], changes: Changes) -> Changes:
    """Add what these events lead to; `state` is the state after them. One instance's decisions of a batch add up."""
    changes.events.extend(recorded)
    for entry in recorded:
        handler = _PROJECT.get(type(entry.event))
        if handler is not None:
            handler(state, changes, entry, entry.event)
    created_at, finished_at = changes.row.created_at, changes.row.finished_at
    changes.row = _instance_row(state, recorded[-1].occurred_at)
    changes.row.created_at = created_at
    changes.row.finished_at = finished_at if state.finished else None
    return changes


def _instance_row(state: State, now: datetime) -> InstanceRow:
    awaiting = "tasks" if state.open else ("timer" if state.timers else None)
    assert state.state is not None or state.sequence == 0
    return InstanceRow(
        state.id,
        state.key,
        state.definition.version,
        state.state or WorkflowState.CREATED,
        state.execution,
        state.sequence,
        state.fence,
        awaiting,
        state.error,
        None,
        now,
        None,
    )


def _task_row(state: State, changes: Changes, entry: Recorded, path: TaskPath, attempt: int, fence: int) -> TaskRow:
    key = (entry.execution, path, attempt)
    row = changes.tasks.get(key)
    if row is None:
        definition = state.definition.tasks[path]
        row = changes.tasks[key] = TaskRow(
            path, entry.execution, attempt, T.PENDING, fence, definition.queue, definition.activity
        )
    row.fence = fence
    return row


def _created(state: State, changes: Changes, entry: Recorded, event: e.WorkflowCreated) -> None:
    changes.row.created_at = entry.occurred_at


def _finished(state: State, changes: Changes, entry: Recorded, event: e.Event) -> None:
    changes.row.finished_at = entry.occurred_at


def _scheduled(state: State, changes: Changes, entry: Recorded, event: e.TaskScheduled) -> None:
    row = _task_row(state, changes, entry, event.path, event.attempt, event.fence)
    row.status = T.QUEUED
    row.queued_at = entry.occurred_at
    definition = state.definition.tasks[event.path]
    changes.messages.append(
        Dispatch(
            state.key,
            state.id,
            entry.execution,
            event.path,
            event.attempt,
            event.fence,
            event.activity,
            event.queue,
            state.input if event.input is None else event.input,
            definition.lease_s,
            definition.timeout_s,
            entry.origin.trace_id,
            entry.origin.span_id,
        )
    )


def _started(state: State, changes: Changes, entry: Recorded, event: e.TaskStarted) -> None:
    row = _task_row(state, changes, entry, event.path, event.attempt, event.fence)
    row.status = T.RUNNING
    row.started_at = entry.occurred_at
    row.holder = event.holder
    if event.holder is not None and event.expires_at is not None and event.timeout_at is not None:
        changes.leases[event.path] = LeaseRow(
            event.path,
            entry.execution,
            event.attempt,
            event.fence,
            event.holder,
            event.address,
            state.definition.tasks[event.path].lease_s,
            entry.occurred_at,
            event.expires_at,
            event.timeout_at,
        )


def _end(state: State, changes: Changes, entry: Recorded, event: "_Ending", status: T) -> TaskRow:
    row = _task_row(state, changes, entry, event.path, event.attempt, event.fence)
    row.status = status
    row.ended_at = entry.occurred_at
    if event.fence and state.tasks[event.path].lease_fence == event.fence:
        changes.leases[event.path] = None
    return row


def _completed(state: State, changes: Changes, entry: Recorded, event: e.TaskCompleted) -> None:
    _end(state, changes, entry, event, T.COMPLETED)


def _failed(state: State, changes: Changes, entry: Recorded, event: e.TaskFailed) -> None:
    _end(state, changes, entry, event, T.FAILED).error = event.error


def _timed_out(state: State, changes: Changes, entry: Recorded, event: e.TaskTimedOut) -> None:
    _end(state, changes, entry, event, T.TIMED_OUT).error = event.error
    if event.fence and state.tasks[event.path].lease_fence != event.fence:
        # It waited too long in its queue: whoever meets the dispatch now need not begin.
        _tell(state, changes, entry, event.path, event.fence, None, event.error.code)


def _handed_back(state: State, changes: Changes, entry: Recorded, event: e.TaskHandedBack) -> None:
    row = _end(state, changes, entry, event, T.PENDING)
    row.ended_at = None


def _cancelled(state: State, changes: Changes, entry: Recorded, event: e.TaskCancelled) -> None:
    _end(state, changes, entry, event, T.CANCELLED)
    if event.tell:
        _tell(state, changes, entry, event.path, event.fence, None, event.reason)
    # A task cancelled in the decision that scheduled it is never dispatched.
    changes.messages[:] = [
        message for message in changes.messages if not _is_dispatch(message, event.path, event.fence)
    ]


def _skipped(state: State, changes: Changes, entry: Recorded, event: e.TaskSkipped) -> None:
    row = _task_row(state, changes, entry, event.path, 0, 0)
    row.status = T.SKIPPED
    row.ended_at = entry.occurred_at


def _stop_requested(state: State, changes: Changes, entry: Recorded, event: e.TaskStopRequested) -> None:
    _tell(state, changes, entry, event.path, event.fence, event.holder, event.reason)


def _lease_lapsed(state: State, changes: Changes, entry: Recorded, event: e.LeaseLapsed) -> None:
    _tell(state, changes, entry, event.path, event.fence, event.holder, "lease_lost")


def _report_rejected(state: State, changes: Changes, entry: Recorded, event: e.ReportRejected) -> None:
    if event.tell:
        _tell(state, changes, entry, event.path, event.fence, event.holder, "lease_lost")


def _timer_scheduled(state: State, changes: Changes, entry: Recorded, event: e.TimerScheduled) -> None:
    changes.timers[event.key] = TimerRow(event.key, event.token, event.due_at)


def _timer_gone(state: State, changes: Changes, entry: Recorded, event: e.TimerFired | e.TimerCancelled) -> None:
    changes.timers[event.key] = None


def _tell(
    state: State, changes: Changes, entry: Recorded, path: TaskPath, fence: int, holder: str | None, reason: str
) -> None:
    changes.messages.append(Cancellation(state.key, entry.execution, path, fence, holder, reason))


def _is_dispatch(message: Dispatch | Cancellation, path: TaskPath, fence: int) -> bool:
    return isinstance(message, Dispatch) and message.path == path and message.fence == fence and fence != 0


_Ending = e.TaskCompleted | e.TaskFailed | e.TaskTimedOut | e.TaskCancelled | e.TaskHandedBack

_PROJECT: dict[type[e.Event], Callable[..., None]] = {
    e.WorkflowCreated: _created,
    e.WorkflowCompleted: _finished,
    e.WorkflowFailed: _finished,
    e.WorkflowCancelled: _finished,
    e.CompensationCompleted: _finished,
    e.CompensationFailed: _finished,
    e.TaskScheduled: _scheduled,
    e.TaskStarted: _started,
    e.TaskCompleted: _completed,
    e.TaskFailed: _failed,
    e.TaskTimedOut: _timed_out,
    e.TaskHandedBack: _handed_back,
    e.TaskStopRequested: _stop_requested,
    e.TaskCancelled: _cancelled,
    e.TaskSkipped: _skipped,
    e.LeaseLapsed: _lease_lapsed,
    e.ReportRejected: _report_rejected,
    e.TimerScheduled: _timer_scheduled,
    e.TimerFired: _timer_gone,
    e.TimerCancelled: _timer_gone,
}
"""Events that are absent lead to no row and no message of their own beyond the instance's row and their CloudEvent."""
