"""What is said about an attempt: its outcome as a report."""

from __future__ import annotations

from holdfast.core.inputs import (
    ActorType,
    HandBackReason,
    Origin,
    Report,
    TaskHandBack,
    TaskReportedCancelled,
    TaskReportedCompleted,
    TaskReportedFailed,
    TaskReportedStarted,
)
from holdfast.worker.attempt import Attempt, Stop
from holdfast.worker.outcome import Completed, Failed, HandedBack, Outcome


class Words:
    """Everything this process says is signed with its holder id."""

    def __init__(self, holder: str, address: str) -> None:
        self.holder = holder
        self.address = address
        self._origin = Origin(ActorType.WORKER, holder, "")

    def started(self, attempt: Attempt) -> Report:
        d = attempt.dispatch
        return TaskReportedStarted(
            d.instance, self._of(attempt), d.path, d.execution, d.fence, self.holder, self.address
        )

    def handed_back(self, attempt: Attempt, reason: HandBackReason, delay_s: float | None = None) -> Report:
        d = attempt.dispatch
        return TaskHandBack(d.instance, self._of(attempt), d.path, d.execution, d.fence, self.holder, reason, delay_s)

    def ended(self, attempt: Attempt, outcome: Outcome | None) -> Report | None:
        """None: nothing may be said any more. An attempt that was told to stop and completed all the same has
        completed, unless it had lost its lease; any other end of it is the stop's doing. No outcome: it never ran."""
        stop = attempt.stop
        if stop is not None and (stop is Stop.LEASE_LOST or outcome.__class__ is not Completed):
            return self._stopped(attempt, stop)
        d, origin = attempt.dispatch, self._of(attempt)
        match outcome:
            case Completed(output):
                return TaskReportedCompleted(d.instance, origin, d.path, d.execution, d.fence, self.holder, output)
            case Failed(error, retryable, retry_in_s):
                return TaskReportedFailed(
                    d.instance, origin, d.path, d.execution, d.fence, self.holder, error, retryable, retry_in_s
                )
            case HandedBack(delay_s):
                return self.handed_back(attempt, HandBackReason.RETRY_LATER, delay_s)
            case None:
                return self.handed_back(attempt, HandBackReason.DRAINING)

    def _stopped(self, attempt: Attempt, stop: Stop) -> Report | None:
        d = attempt.dispatch
        match stop:
            case Stop.LEASE_LOST:
                return None
            case Stop.DRAINING:
                return self.handed_back(attempt, HandBackReason.DRAINING)
            case Stop.CANCELLED:
                return TaskReportedCancelled(
                    d.instance, self._of(attempt), d.path, d.execution, d.fence, self.holder, attempt.entered
                )

    def _of(self, attempt: Attempt) -> Origin:
        d = attempt.dispatch
        if d.trace_id is None:
            return self._origin
        return Origin(ActorType.WORKER, self.holder, "", d.trace_id, d.span_id)
