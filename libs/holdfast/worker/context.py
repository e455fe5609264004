"""What an activity knows about the attempt it is, and how it talks back while it runs."""

from __future__ import annotations

from typing import Any, Protocol

import structlog
from pydantic_core import to_json

from holdfast.contracts.limits import check_payload
from holdfast.core.changes import Dispatch
from holdfast.core.ids import InstanceKey, Payload, TaskPath, effect_key, idempotency_key, split_key


class Link(Protocol):
    """The way back to the worker: within the process, or over a pipe from a child. Callable from any thread."""

    @property
    def cancelled(self) -> str | None: ...

    @property
    def elapsed_s(self) -> float: ...

    def beat(self, details: Payload | None) -> bool: ...


class ActivityContext:
    """Handed to an activity that asks for it. Safe to use from any thread."""

    __slots__ = ("_dispatch", "_link", "_log")

    def __init__(self, dispatch: Dispatch, link: Link) -> None:
        self._dispatch = dispatch
        self._link = link
        self._log: Any = None

    def __repr__(self) -> str:
        return f"<ActivityContext {self.idempotency_key}>"

    @property
    def instance(self) -> InstanceKey:
        """`namespace/workflow/run_id`."""
        return self._dispatch.instance

    @property
    def instance_id(self) -> str:
        return str(self._dispatch.instance_id)

    @property
    def namespace(self) -> str:
        return split_key(self._dispatch.instance)[0]

    @property
    def workflow(self) -> str:
        return split_key(self._dispatch.instance)[1]

    @property
    def run_id(self) -> str:
        return split_key(self._dispatch.instance)[2]

    @property
    def execution(self) -> int:
        """The generation of the instance: continue-as-new adds one."""
        return self._dispatch.execution

    @property
    def task(self) -> TaskPath:
        """The path of the task in its workflow."""
        return self._dispatch.path

    @property
    def activity(self) -> str:
        return self._dispatch.activity

    @property
    def queue(self) -> str:
        return self._dispatch.queue

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self._dispatch.attempt

    @property
    def fence_token(self) -> int:
        """Grows with every dispatch of this instance; two deliveries of one dispatch share it. A store that refuses
        a smaller token than it has seen is safe from attempts that were replaced."""
        return self._dispatch.fence

    @property
    def idempotency_key(self) -> str:
        """Names this attempt."""
        d = self._dispatch
        return idempotency_key(d.instance_id, d.execution, d.path, d.attempt)

    @property
    def effect_key(self) -> str:
        """Names the task, the same for all its attempts: what a payment provider should get."""
        d = self._dispatch
        return effect_key(d.instance_id, d.execution, d.path)

    @property
    def trace_id(self) -> str | None:
        return self._dispatch.trace_id

    @property
    def lease_s(self) -> float:
        """How long the attempt is ours without a heartbeat. The worker sends them by itself, three per lease."""
        return self._dispatch.lease_s

    @property
    def timeout_s(self) -> float:
        """How long this attempt may take, whatever its heartbeats say."""
        return self._dispatch.timeout_s

    @property
    def remaining_s(self) -> float:
        """What is left of `timeout_s`, by this machine's clock: an estimate, because the coordinator's decides."""
        return max(0.0, self._dispatch.timeout_s - self._link.elapsed_s)

    @property
    def cancelled(self) -> str | None:
        """Why this attempt should stop, or None. Async activities get CancelledError as well."""
        return self._link.cancelled

    def heartbeat(self, details: Any = None) -> bool:
        """Show progress (anything that is JSON). False once the attempt should stop because it no longer counts.

        Needed only for the details or the answer: the worker keeps the lease alive by itself.
        """
        payload: Payload | None = None
        if details is not None:
            payload = Payload(to_json(details, inf_nan_mode="strings"))
            check_payload(payload, "the details of a heartbeat")
        return self._link.beat(payload)

    @property
    def log(self) -> Any:
        """A structlog logger that already says which attempt it is."""
        if self._log is None:
            d = self._dispatch
            self._log = structlog.get_logger("holdfast.activity").bind(
                workflow=d.instance, task=d.path, attempt=d.attempt, activity=d.activity, fence=d.fence
            )
        return self._log
