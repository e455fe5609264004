"""What waiting for a workflow can raise besides `Refused` (it was not accepted) and `Transient` (nobody answers)."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError, Refused
from holdfast.core.inputs import Error
from holdfast.core.transitions import WorkflowState


class NotCompleted(HoldfastError):
    """The workflow has ended, and not by completing. `state` says how, `error` why (if it failed)."""

    def __init__(self, key: str, state: WorkflowState, error: Error | None = None) -> None:
        because = f": {error.code}: {error.message}" if error else ""
        super().__init__(f"{key} ended {state}{because}")
        self.key = key
        self.state = state
        self.error = error

    def __reduce__(self) -> tuple[type[NotCompleted], tuple[str, WorkflowState, Error | None]]:
        return type(self), (self.key, self.state, self.error)


class WorkflowFailed(NotCompleted):
    """FAILED: nothing had to be undone, or nothing can be."""


class WorkflowCompensated(NotCompleted):
    """COMPENSATED: it failed (or was cancelled with compensation) and everything it did was undone."""


class CompensationFailed(NotCompleted):
    """COMPENSATION_FAILED: undoing it failed too; a person has to look, then `resume`."""


class WorkflowCancelled(NotCompleted):
    """CANCELLED: somebody stopped it, and nothing was undone."""


class WaitTimedOut(HoldfastError, TimeoutError):
    """What was waited for has not happened yet; it still may. Waiting again is fine."""


def needs_postgres(doing: str) -> Refused:
    return Refused(
        "postgres_not_configured",
        f"{doing} reads Postgres: pass postgres= to Client.connect or set HOLDFAST_POSTGRES",
    )


_BY_STATE: dict[WorkflowState, type[NotCompleted]] = {
    WorkflowState.FAILED: WorkflowFailed,
    WorkflowState.COMPENSATED: WorkflowCompensated,
    WorkflowState.COMPENSATION_FAILED: CompensationFailed,
    WorkflowState.CANCELLED: WorkflowCancelled,
}


def not_completed(key: str, state: WorkflowState, error: Error | None) -> NotCompleted:
    return _BY_STATE.get(state, NotCompleted)(key, state, error)
