"""What the demo's audience sees: a line for everything that happens, and on a terminal a live table below the lines."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from rich.live import Live
from rich.table import Table

from holdfast.cli.looks import colored, table
from holdfast.cli.output import console, plain, say
from holdfast.cli.sentences import sentence, type_name
from holdfast.client.reads import PostgresReads, Status
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId
from holdfast.core.transitions import FINISHED

_PAUSE_S = 0.15
_SHOWN_MAX = 14
# The events that tell the story; the others are counted.
_TOLD = {
    "WORKFLOW_COMPLETED",
    "WORKFLOW_FAILING",
    "TASK_FAILED",
    "TASK_TIMED_OUT",
    "LEASE_EXPIRED",
    "REPORT_REJECTED",
    "COMPENSATION_TRIGGERED",
    "COMPENSATION_COMPLETED",
}


class Stage(Protocol):
    def tell(self, text: str) -> None: ...

    def follow(self, instances: Sequence[InstanceId]) -> None: ...


class SilentStage:
    """For --json: the report at the end says it all."""

    def tell(self, text: str) -> None:
        return

    def follow(self, instances: Sequence[InstanceId]) -> None:
        return


class LiveStage:
    """Follows instances in Postgres and shows what happens to them, while the scenes go on."""

    def __init__(self, reads: PostgresReads) -> None:
        self._reads = reads
        self._followed: list[InstanceId] = []
        self._seen: dict[InstanceId, int] = {}
        self._last: dict[InstanceId, Recorded] = {}
        self._live = Live(console=console(), refresh_per_second=8, transient=True) if console().is_terminal else None

    def tell(self, text: str) -> None:
        say(text)

    def follow(self, instances: Sequence[InstanceId]) -> None:
        self._followed.extend(instances)

    async def run(self) -> None:
        """Until cancelled. Postgres not answering for a moment must not end the show."""
        with self._live or contextlib.nullcontext():
            while True:
                with contextlib.suppress(Exception):
                    await self._look()
                await asyncio.sleep(_PAUSE_S)

    async def _look(self) -> None:
        views = await self._reads.instances(self._followed)
        for instance, view in views.items():
            if view.sequence > self._seen.get(instance, 0):
                for recorded in await self._reads.events(instance, after=self._seen.get(instance, 0)):
                    self._seen[instance] = recorded.sequence
                    self._last[instance] = recorded
                    self._tell_event(view, recorded)
        if self._live is not None:
            self._live.update(self._view(views))

    def _tell_event(self, view: Status, recorded: Recorded) -> None:
        name = type_name(recorded.event)
        if name in _TOLD:
            run_id = view.key.rpartition("/")[2]
            at = recorded.occurred_at.astimezone().strftime("%H:%M:%S.%f")[:-3]
            say(f"  [dim]{at}[/dim] {plain(run_id):<12} {name} {plain(sentence(recorded.event))}")

    def _view(self, views: dict[InstanceId, Status]) -> Table:
        shown = table("", "order", "state", "events", "last")
        order = sorted(views.items(), key=lambda item: (item[1].state in FINISHED, item[1].created_at), reverse=False)
        for instance, view in order[:_SHOWN_MAX]:
            last = self._last.get(instance)
            told = f"{type_name(last.event)} {sentence(last.event)}"[:80] if last else ""
            shown.add_row(plain(view.key.rpartition("/")[2]), colored(view.state), str(view.sequence), plain(told))
        return shown
