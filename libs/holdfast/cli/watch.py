"""`holdfast watch`: a live view of one or many workflows; plain lines where there is no terminal."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.listing import Wanted, facts, wanted_of
from holdfast.cli.looks import colored, table
from holdfast.cli.output import JsonOption, console, plain, say, to_json, when
from holdfast.core.transitions import FINISHED, WorkflowState
from holdfast.store.rows import InstanceView

if TYPE_CHECKING:
    from holdfast.client.reads import PostgresReads

app = typer.Typer()

_PAUSE_S = 0.3
_ROWS_MAX = 30


@app.command("watch")
def watch(
    workflow: Annotated[
        str | None, typer.Argument(help="namespace, namespace/workflow, or namespace/workflow/run_id")
    ] = None,
    until_finished: Annotated[
        bool, typer.Option("--until-finished", help="End when all shown have finished; exit 1 unless all completed.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(help="End after so many seconds (exit 6 with --until-finished).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Watch workflows live, newest first; with --json one line per change.

    [bold]Examples[/bold]

      holdfast watch orders

      holdfast watch orders/order-fulfillment/order-123 --until-finished
    """
    code = connect.run(_watch(wanted_of(workflow), until_finished, timeout, json))
    raise typer.Exit(int(code))


async def _watch(wanted: Wanted, until_finished: bool, timeout_s: float | None, json: bool) -> ExitCode:
    until = None if timeout_s is None else time.monotonic() + timeout_s
    async with connect.reads() as reads:
        if json or not console().is_terminal:
            return await _lines(reads, wanted, until_finished, until, json)
        with Live(console=console(), refresh_per_second=8) as live:
            while True:
                found = await wanted.find(reads, _ROWS_MAX)
                live.update(_view(found))
                if (code := _ended(found, until_finished, until)) is not None:
                    return code
                await asyncio.sleep(_PAUSE_S)


async def _lines(
    reads: "PostgresReads", wanted: Wanted, until_finished: bool, until: float | None, json: bool
) -> ExitCode:
    seen: dict[str, int] = {}
    while True:
        found = await wanted.find(reads, _ROWS_MAX)
        for status in reversed(found):
            if seen.get(status.key) != status.sequence:
                seen[status.key] = status.sequence
                typer.echo(to_json(facts(status))) if json else say(
                    f"{when(status.updated_at)}  {plain(status.key)}  {colored(status.state)}"
                    f"  {status.sequence} events  {plain(status.error.message) if status.error else ''}"
                )
        if (code := _ended(found, until_finished, until)) is not None:
            return code
        await asyncio.sleep(_PAUSE_S)


def _ended(found: list[InstanceView], until_finished: bool, until: float | None) -> ExitCode | None:
    if until_finished and found and all(status.state in FINISHED for status in found):
        completed = all(status.state is WorkflowState.COMPLETED for status in found)
        return ExitCode.OK if completed else ExitCode.NOT_COMPLETED
    if until is not None and time.monotonic() > until:
        return ExitCode.TIMED_OUT if until_finished else ExitCode.OK
    return None


def _view(found: list[InstanceView]) -> Table:
    shown = table("", "workflow", "state", "awaiting", "events", "updated", "error")
    for status in found:
        error = f"{status.error.code}: {status.error.message}" if status.error else ""
        cells = (plain(status.key), colored(status.state), status.awaiting or "", str(status.sequence))
        shown.add_row(*cells, when(status.updated_at), plain(error))
    return shown
