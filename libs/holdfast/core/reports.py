"""What workers say, and whether it counts.

A report counts only if its execution and fence are current and the task is QUEUED or RUNNING. A completion counts
whoever sends it: finished work is not thrown away because a lease ran out. Everything else counts only from the holder,
if there is one. What does not count is on record once per (task, fence); heartbeats never.
"""

from datetime import datetime, timedelta

from holdfast.core import events as e
from holdfast.core import failures, lifecycle, limits, scheduling
from holdfast.core import inputs as i
from holdfast.core.changes import LeaseRenewal
from holdfast.core.draft import Draft
from holdfast.core.state import State
from holdfast.core.transitions import IN_FLIGHT, TaskStatus
from holdfast.core.transitions import WorkflowState as W


def why_rejected(state: State, report: i.Report) -> str | None:
    if report.path not in state.definition.tasks:
        return "unknown_task"
    task = state.tasks[report.path]
    if report.execution != state.execution:
        return "old_execution"
    if task.status not in IN_FLIGHT:
        return "settled"
    if report.fence != task.fence or report.fence == 0:
        return "void_fence"
    if task.holder is not None and task.holder != report.holder and type(report) is not i.TaskReportedCompleted:
        return "not_the_holder"
    return None


def _counts(draft: Draft, report: i.Report) -> bool:
    if report.path not in draft.state.definition.tasks:
        return False  # Nothing to hang an event on; the shell counts it.
    reason = why_rejected(draft.state, report)
    if reason is None:
        return True
    task = draft.state.tasks[report.path]
    if type(report) is not i.TaskHeartbeat and report.fence not in task.rejected:
        # Somebody who says "started" goes on to run it, so it is told that another one holds the task.
        tell = type(report) is i.TaskReportedStarted
        kind = _REPORT_NAMES[type(report)]
        draft.emit(e.ReportRejected(report.path, report.fence, report.holder, kind, reason, tell))
    return False


def started(draft: Draft, report: i.TaskReportedStarted | i.TaskHeartbeat) -> None:
    """A heartbeat with the current fence and no lease counts as `started`."""
    if not _counts(draft, report):
        return
    definition, task = draft.task(report.path)
    if task.status is TaskStatus.RUNNING:
        return  # Its own second word, or a heartbeat: the shell renews the lease.
    draft.cancel_task_timer(report.path)
    expires_at = draft.after(definition.lease_s)
    timeout_at = draft.after(definition.timeout_s)
    draft.emit(
        e.TaskStarted(report.path, task.attempt, report.fence, report.holder, report.address, expires_at, timeout_at)
    )
    if draft.state.state is W.FAILING:
        draft.emit(e.TaskStopRequested(report.path, task.attempt, report.fence, report.holder, "workflow_failing"))


def completed(draft: Draft, report: i.TaskReportedCompleted) -> None:
    if not _counts(draft, report):
        return
    draft.cancel_task_timer(report.path)
    attempt = draft.state.tasks[report.path].attempt
    draft.emit(e.TaskCompleted(report.path, attempt, report.fence, report.output))
    if draft.state.state is W.RUNNING:
        lifecycle.task_ended(draft, report.path)
    else:
        lifecycle.go_on(draft)


def failed(draft: Draft, report: i.TaskReportedFailed) -> None:
    if _counts(draft, report):
        failures.attempt_failed(
            draft, report.path, report.error, retryable=report.retryable, retry_in_s=report.retry_in_s
        )


def cancelled(draft: Draft, report: i.TaskReportedCancelled) -> None:
    if not _counts(draft, report):
        return
    attempt = draft.state.tasks[report.path].attempt
    outcome = e.Outcome.UNKNOWN if report.ran else e.Outcome.NOT_RUN
    if draft.state.state is W.FAILING:
        draft.cancel_task_timer(report.path)
        draft.emit(e.TaskCancelled(report.path, attempt, report.fence, outcome, "acknowledged"))
        lifecycle.go_on(draft)
    else:
        # Nobody asked for it, so it is only an attempt that ended early.
        error = i.Error("cancelled", "the worker cancelled the attempt without being asked")
        failures.attempt_failed(draft, report.path, error, outcome=outcome)


def handed_back(draft: Draft, report: i.TaskHandBack) -> None:
    if not _counts(draft, report):
        return
    _, task = draft.task(report.path)
    if draft.state.state is W.FAILING:
        _settle_instead(draft, report)
        return
    same_reason = report.reason is i.HandBackReason.NO_HANDLER and task.handed_back_since is not None
    since = task.handed_back_since if same_reason and task.handed_back_since else draft.now
    patience = timedelta(seconds=limits.no_handler_patience_s)
    if report.reason is i.HandBackReason.NO_HANDLER and draft.now - since >= patience:
        error = i.Error("no_handler_registered", f"no worker of the queue has a handler for {report.path}")
        failures.attempt_failed(draft, report.path, error, retryable=False, outcome=e.Outcome.NOT_RUN)
        return
    count = task.handed_back + 1
    draft.cancel_task_timer(report.path)
    draft.emit(e.TaskHandedBack(report.path, task.attempt, report.fence, report.reason, since, count))
    delay_s = _hand_back_delay_s(report, count)
    if delay_s > 0:
        draft.schedule_timer(f"retry:{report.path}", draft.after(delay_s))
    else:
        scheduling.dispatch_again(draft, report.path, task.attempt)


def _settle_instead(draft: Draft, report: i.TaskHandBack) -> None:
    """While draining nothing goes out again: what comes back is over."""
    outcome = {
        i.HandBackReason.NO_HANDLER: e.Outcome.NOT_RUN,
        i.HandBackReason.RETRY_LATER: e.Outcome.FAILED,
        i.HandBackReason.DRAINING: e.Outcome.UNKNOWN,
    }[report.reason]
    attempt = draft.state.tasks[report.path].attempt
    draft.cancel_task_timer(report.path)
    draft.emit(e.TaskCancelled(report.path, attempt, report.fence, outcome, "handed_back"))
    lifecycle.go_on(draft)


def _hand_back_delay_s(report: i.TaskHandBack, count: int) -> float:
    if report.delay_s is not None:
        return report.delay_s
    if report.reason is i.HandBackReason.DRAINING:
        return 0.0
    return min(limits.hand_back_delay_cap_s, limits.hand_back_delay_initial_s * 2.0 ** min(count - 1, 10))


def renew(state: State, heartbeat: i.TaskHeartbeat, now: datetime) -> LeaseRenewal | None:
    """Heartbeats write no events, so this is not a decision: the lease is renewed in place and its row follows.

    Called after the heartbeat was decided and folded (it may have been the first word of its worker).
    """
    if why_rejected(state, heartbeat) is not None:
        return None
    task = state.tasks[heartbeat.path]
    task.renewals += 1
    task.expires_at = now + timedelta(seconds=state.definition.tasks[heartbeat.path].lease_s)
    return LeaseRenewal(state.id, heartbeat.path, heartbeat.fence, task.renewals, task.expires_at, heartbeat.details)


_REPORT_NAMES: dict[type[i.Report], str] = {
    i.TaskReportedStarted: "started",
    i.TaskHeartbeat: "heartbeat",
    i.TaskReportedCompleted: "completed",
    i.TaskReportedFailed: "failed",
    i.TaskReportedCancelled: "cancelled",
    i.TaskHandBack: "hand_back",
}
