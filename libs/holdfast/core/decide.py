"""`decide(state, input, now)`: the rules' table of contents. Each rule is one function in the module named beside it.

Nothing to do is `[]`. A command that is wrong, late or a repetition raises `NotAccepted`; anything else that is raised
is a bug, and the coordinator parks the input.
"""

from datetime import datetime
from typing import assert_never

from holdfast.core import inputs as i
from holdfast.core import lifecycle, reports, ticks
from holdfast.core.draft import Draft
from holdfast.core.events import Event
from holdfast.core.outcomes import CommandRefused
from holdfast.core.state import State


def decide(state: State | None, message: i.Input, now: datetime) -> list[Event]:
    if state is None or (state.state is None and not isinstance(message, i.StartWorkflow)):
        return _nobody_home(message)
    draft = Draft(state, now, message.origin.actor_id)
    match message:
        case i.TaskReportedCompleted():
            reports.completed(draft, message)
        case i.StartWorkflow():
            lifecycle.start(draft, message)
        case i.TaskReportedStarted() | i.TaskHeartbeat():
            reports.started(draft, message)
        case i.TaskReportedFailed():
            reports.failed(draft, message)
        case i.TaskReportedCancelled():
            reports.cancelled(draft, message)
        case i.TaskHandBack():
            reports.handed_back(draft, message)
        case i.TimerDue():
            ticks.timer_due(draft, message)
        case i.LeaseExpired():
            ticks.lease_expired(draft, message)
        case i.DispatchLost():
            ticks.dispatch_lost(draft, message)
        case i.CancelWorkflow():
            lifecycle.cancel(draft, message)
        case i.ResumeWorkflow():
            lifecycle.resume(draft, message)
        case _:
            assert_never(message)
    lifecycle.enforce_limits(draft)
    return draft.events


def _nobody_home(message: i.Input) -> list[Event]:
    match message:
        case i.StartWorkflow():
            raise CommandRefused("unknown_workflow", f"no definition for {message.instance}; see `holdfast define`")
        case i.CancelWorkflow() | i.ResumeWorkflow():
            raise CommandRefused("unknown_instance", f"{message.instance} does not exist")
        case _:
            return []  # A report or a tick for an instance that was purged, or never was.
