"""`holdfast list`."""

from typing import Annotated

import typer

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.looks import colored, table
from holdfast.cli.output import JsonOption, console, fail, plain, say, when, write_json
from holdfast.client.reads import Filter, Status
from holdfast.core.transitions import FINISHED, WorkflowState

app = typer.Typer()

StateOption = Annotated[list[str] | None, typer.Option("--state", "-s", help="A state; may be given several times.")]


@app.command("list")
def list_(
    workflow: Annotated[str | None, typer.Argument(help="namespace, namespace/workflow or namespace/workflow/prefix")] = None,
    state: StateOption = None,
    open: Annotated[bool, typer.Option("--open", help="Only those that have not finished.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, newest first.")] = 50,
    json: JsonOption = False,
) -> None:
    """List workflows, newest first.

    [bold]Examples[/bold]

      holdfast list orders/order-fulfillment --state COMPENSATED

      holdfast list --open --json
    """
    found = connect.run(_list(make_filter(workflow, state, open), limit))
    if json:
        write_json([facts(status) for status in found])
        return
    shown = table("", "workflow", "state", "awaiting", "events", "created", "updated", "error")
    for status in found:
        error = f"{status.error.code}: {status.error.message}" if status.error else ""
        cells = (plain(status.key), colored(status.state), status.awaiting or "", str(status.sequence))
        shown.add_row(*cells, when(status.created_at), when(status.updated_at), plain(error))
    console().print(shown) if found else say("nothing found")


async def _list(wanted: Filter, limit: int) -> list[Status]:
    async with connect.reads() as reads:
        return await reads.list(wanted, limit)


def make_filter(workflow: str | None, states: list[str] | None, open: bool) -> Filter:
    parts = (workflow or "").split("/", 2)
    namespace, name, prefix = (*parts, "", "")[:3]
    chosen = [_state(text) for text in states or []]
    if open:
        chosen = [one for one in WorkflowState if one not in FINISHED]
    return Filter(namespace or None, name or None, tuple(chosen), prefix or None)


def _state(text: str) -> WorkflowState:
    try:
        return WorkflowState(text.upper())
    except ValueError:
        fail(ExitCode.USAGE, f"there is no state {text!r}; there are {', '.join(WorkflowState)}")


def facts(status: Status) -> dict[str, object]:
    return {
        "key": status.key,
        "state": status.state,
        "version": status.version,
        "awaiting": status.awaiting,
        "sequence": status.sequence,
        "created_at": status.created_at,
        "updated_at": status.updated_at,
        "finished_at": status.finished_at,
        "error": status.error,
    }
