"""A handle on one run, and one on a command that was sent. Both are cheap: they hold keys, not connections."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import orjson

from holdfast.client.errors import not_completed
from holdfast.client.reads import Status, is_finished
from holdfast.core.errors import Refused
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, instance_id, split_key
from holdfast.core.outcomes import CommandOutcome
from holdfast.core.transitions import WorkflowState
from holdfast.store.rows import CommandKey, CommandRow

if TYPE_CHECKING:
    from holdfast.client.client import Client

_EVENTS_PAGE = 500


class Sent:
    """A command that Kafka has; whether Holdfast took it is known a moment later."""

    def __init__(self, client: Client, instance: InstanceKey, command: CommandKey) -> None:
        self._client = client
        self.instance = instance
        self.command = command

    def __repr__(self) -> str:
        return f"<Sent {self.command.source}#{self.command.id} to {self.instance}>"

    async def accepted(self, timeout: float | None = 30.0) -> CommandRow:
        """Wait for the outcome on record: accepted, duplicate or ignored. Raises Refused, or WaitTimedOut."""
        row = await self._client.outcome(self.command, timeout, f"no outcome for a command to {self.instance}")
        if row.outcome == CommandOutcome.REFUSED:
            reason, _, detail = row.reason.partition(": ")
            raise Refused(reason, detail)
        return row


class Run:
    """One run of a workflow: `namespace/workflow/run_id`."""

    def __init__(self, client: Client, key: InstanceKey, sent: Sent | None = None) -> None:
        self._client = client
        self.sent = sent  # the start that made this handle; None for `client.run(key)`
        self.key = key

    def __repr__(self) -> str:
        return f"<Run {self.key}>"

    @property
    def id(self) -> InstanceId:
        return instance_id(self.key)

    @property
    def run_id(self) -> str:
        return split_key(self.key)[2]

    async def accepted(self, timeout: float | None = 30.0) -> Run:
        """Wait until Holdfast has the run. A duplicate start is the same run. Raises Refused with the reason."""
        if self.sent is not None:
            await self.sent.accepted(timeout)
        else:
            await self._client.status_when(self.id, lambda status: True, timeout, f"{self.key} did not appear")
        return self

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until it has finished and return its output, as plain JSON values.

        Raises WorkflowFailed, WorkflowCompensated, CompensationFailed or WorkflowCancelled (all NotCompleted), Refused
        when the start was not accepted, and WaitTimedOut; that one says nothing about the run itself.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if self.sent is not None:
            await self.accepted(timeout)
        status = await self.finished(None if until is None else max(0.0, until - time.monotonic()))
        if status.state is not WorkflowState.COMPLETED:
            raise not_completed(self.key, status.state, status.error)
        return orjson.loads(await self._client.output(self.id))

    async def finished(self, timeout: float | None = None) -> Status:
        """Wait until it has finished, however it did."""
        return await self._client.status_when(self.id, is_finished, timeout, f"{self.key} has not finished")

    async def status(self) -> Status:
        """Where it is now; Refused (`unknown_instance`) where it does not exist (yet)."""
        return await self._client.status(self.key)

    async def events(self, after: int = 0) -> AsyncIterator[Recorded]:
        """Its history from the event after the given sequence on, as far as it goes now."""
        reads = await self._client.reads("reading events")
        while page := await reads.events(self.id, after=after, limit=_EVENTS_PAGE):
            for recorded in page:
                yield recorded
            after = page[-1].sequence

    async def cancel(
        self, reason: str = "", *, compensate: bool = False, force: bool = False, command_id: str | None = None
    ) -> Sent:
        """Ask for it to be cancelled; with `compensate` what it did is undone. See `Sent.accepted`."""
        return await self._client.send(self._client.commands.cancel(self.key, reason, compensate, force, command_id))

    async def resume(self, reason: str = "", *, command_id: str | None = None) -> Sent:
        """Go on after COMPENSATION_FAILED: the compensation that failed gets fresh attempts."""
        return await self._client.send(self._client.commands.resume(self.key, reason, command_id))
