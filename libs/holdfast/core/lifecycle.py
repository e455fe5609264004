"""How a workflow starts, completes, fails, drains, is cancelled and is taken up again."""

from holdfast.core import events as e
from holdfast.core import saga, scheduling
from holdfast.core.definition import ExpressionFailed
from holdfast.core.draft import Draft, View
from holdfast.core.ids import NULL, TaskPath, split_key
from holdfast.core.inputs import CancelWorkflow, Error, ResumeWorkflow, StartWorkflow
from holdfast.core.limits import events_per_execution_max
from holdfast.core.outcomes import CommandDuplicate, CommandIgnored, CommandRefused
from holdfast.core.transitions import WorkflowState as W


def start(draft: Draft, command: StartWorkflow) -> None:
    if draft.state.state is not None:
        raise CommandDuplicate("exists", f"{command.instance} was started before; it is {draft.state.state}")
    definition = draft.state.definition
    if command.version is not None and command.version != definition.version:
        raise CommandRefused("unknown_workflow", f"version {command.version} of {command.instance} cannot be started")
    namespace, workflow, run_id = split_key(command.instance)
    run_at = command.run_at
    draft.emit(e.WorkflowCreated(namespace, workflow, definition.version, run_id, command.input, run_at))
    if run_at is not None and run_at > draft.now:
        draft.schedule_timer("start", run_at)
    else:
        begin(draft)


def begin(draft: Draft) -> None:
    draft.emit(e.WorkflowStarted())
    definition = draft.state.definition
    if definition.deadline_s is not None:
        draft.schedule_timer("deadline", draft.after(definition.deadline_s))
    scheduling.schedule_ready(draft, definition.roots)
    go_on(draft)


def task_ended(draft: Draft, path: TaskPath) -> None:
    """A task completed or was skipped: whatever became ready by it is scheduled."""
    if draft.state.state is W.RUNNING:
        scheduling.schedule_ready(draft, scheduling.ready_after(draft, path))
    go_on(draft)


def go_on(draft: Draft) -> None:
    """Every task's end leads here: the one place that asks whether the workflow itself can move."""
    state = draft.state
    match state.state:
        case W.RUNNING if state.unfinished == 0:
            complete(draft)
        case W.FAILING if state.open == 0:
            drained(draft)
        case W.COMPENSATING if state.open == 0:
            saga.go_on(draft)
        case _:
            pass


def enforce_limits(draft: Draft) -> None:
    """A history that grows without end fails while it can still be compensated; compensation itself is exempt."""
    if draft.state.state is W.RUNNING and draft.state.sequence > events_per_execution_max:
        message = f"more than {events_per_execution_max} events in one execution"
        fail(draft, e.FailureCause.LIMIT, Error("history_limit", message))


def complete(draft: Draft) -> None:
    expression = draft.state.definition.output
    try:
        output = NULL if expression is None else expression.evaluate(View(draft.state))
    except ExpressionFailed as problem:
        fail(draft, e.FailureCause.OUTPUT, Error("expression_failed", f"output: {problem}"))
        return
    draft.cancel_timer("deadline")
    draft.emit(e.WorkflowCompleting(output))
    draft.emit(e.WorkflowCompleted())


def fail(draft: Draft, cause: e.FailureCause, error: Error, path: TaskPath | None = None) -> None:
    """Into FAILING, which means draining: what waits is cancelled at once, what runs is told to stop."""
    actor = draft.actor if cause is e.FailureCause.CANCELLED else None
    draft.emit(e.WorkflowFailing(cause, error, path, actor))
    draft.cancel_timer("deadline")
    stop_open_tasks(draft)
    if draft.state.open:
        draft.schedule_timer("drain", draft.after(_drain_s(draft)))
    else:
        drained(draft)


def stop_open_tasks(draft: Draft) -> None:
    for path in draft.state.definition.forward:
        task = draft.state.tasks[path]
        if not task.open:
            continue
        draft.cancel_task_timer(path)
        if task.fence == 0 or draft.is_new(task):
            draft.emit(e.TaskCancelled(path, task.attempt, task.fence, e.Outcome.NOT_RUN, "workflow_failing"))
        else:
            draft.emit(e.TaskStopRequested(path, task.attempt, task.fence, task.holder, "workflow_failing"))


def drained(draft: Draft) -> None:
    """Nothing is in flight any more: every result that will ever count is in."""
    draft.cancel_timer("drain")
    plan = saga.plan(draft.state)
    if plan or draft.state.by_request:
        draft.emit(e.CompensationTriggered(draft.state.cause, plan))
        saga.go_on(draft)
    else:
        draft.emit(e.WorkflowFailed(draft.state.error or Error("failed", "")))


def drain_timed_out(draft: Draft) -> None:
    _fence_off(draft, "drain_timeout")
    drained(draft)


def cancel(draft: Draft, command: CancelWorkflow) -> None:
    state = draft.state.state
    if draft.state.finished:
        raise CommandIgnored("finished", f"{command.instance} is {state}")
    if state in (W.COMPENSATING, W.COMPLETING) or (state is W.FAILING and not command.force):
        hint = "; force cancels it without compensation" if state is W.FAILING else ""
        raise CommandRefused(str(state).lower(), f"{command.instance} is {state} and cannot be cancelled{hint}")
    if command.compensate and state is not W.CREATED and state is not W.FAILING:
        fail(draft, e.FailureCause.CANCELLED, Error("cancelled", command.reason or f"cancelled by {draft.actor}"))
        return
    for key in tuple(draft.state.timers):
        draft.cancel_timer(key)
    _fence_off(draft, "workflow_cancelled")
    draft.emit(e.WorkflowCancelled(command.reason))


def resume(draft: Draft, command: ResumeWorkflow) -> None:
    state = draft.state.state
    if state is W.COMPENSATION_FAILED:
        draft.emit(e.CompensationResumed(command.reason))
        saga.go_on(draft)
    elif draft.state.finished:
        raise CommandIgnored("finished", f"{command.instance} is {state}")
    else:
        raise CommandRefused("not_resumable", f"{command.instance} is {state}; resume goes on from COMPENSATION_FAILED")


def _fence_off(draft: Draft, reason: str) -> None:
    """Nobody is waited for: late results of what is in flight will be refused, so their outcome is unknown."""
    for path in draft.state.definition.forward:
        task = draft.state.tasks[path]
        if not task.open:
            continue
        draft.cancel_task_timer(path)
        flying = task.fence != 0
        outcome = e.Outcome.UNKNOWN if flying else e.Outcome.NOT_RUN
        draft.emit(e.TaskCancelled(path, task.attempt, task.fence, outcome, reason, tell=flying))


def _drain_s(draft: Draft) -> float:
    definition = draft.state.definition
    if definition.drain_timeout_s is not None:
        return definition.drain_timeout_s
    return max(definition.tasks[path].lease_s for path in definition.forward if draft.state.tasks[path].open)
