"""`holdfast list`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.looks import colored, table
from holdfast.cli.output import JsonOption, console, fail, plain, say, when, write_json
from holdfast.core.ids import instance_id, instance_key
from holdfast.core.transitions import FINISHED, WorkflowState
from holdfast.store.rows import InstanceView

if TYPE_CHECKING:
    from holdfast.client.reads import PostgresReads

app = typer.Typer()

StateOption = Annotated[list[str] | None, typer.Option("--state", "-s", help="A state; may be given several times.")]


@app.command("list")
def list_(
    workflow: Annotated[
        str | None, typer.Argument(help="namespace, namespace/workflow or namespace/workflow/run_id")
    ] = None,
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
    found = connect.run(_list(wanted_of(workflow, state, open), limit))
    if json:
        write_json([facts(status) for status in found])
        return
    shown = table("", "workflow", "state", "awaiting", "events", "created", "updated", "error")
    for status in found:
        error = f"{status.error.code}: {status.error.message}" if status.error else ""
        cells = (plain(status.key), colored(status.state), status.awaiting or "", str(status.sequence))
        shown.add_row(*cells, when(status.created_at), when(status.updated_at), plain(error))
    console().print(shown) if found else say("nothing found")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which workflows to show; what is empty filters nothing. With a run id it is that one alone."""

    namespace: str | None
    workflow: str | None
    run_id: str | None
    states: tuple[WorkflowState, ...]

    async def find(self, reads: "PostgresReads", limit: int) -> list[InstanceView]:
        """Newest first."""
        if self.namespace and self.workflow and self.run_id:
            instance = instance_id(instance_key(self.namespace, self.workflow, self.run_id))
            return list((await reads.instances([instance])).values())
        return await reads.list_instances(
            namespace=self.namespace, workflow=self.workflow, states=self.states, limit=limit
        )


async def _list(wanted: Wanted, limit: int) -> list[InstanceView]:
    async with connect.reads() as reads:
        return await wanted.find(reads, limit)


def wanted_of(workflow: str | None, states: list[str] | None = None, open: bool = False) -> Wanted:
    namespace, name, run_id = (*(workflow or "").split("/", 2), "", "")[:3]
    chosen = [_state(text) for text in states or []]
    if open:
        chosen = [one for one in WorkflowState if one not in FINISHED]
    return Wanted(namespace or None, name or None, run_id or None, tuple(chosen))


def _state(text: str) -> WorkflowState:
    try:
        return WorkflowState(text.upper())
    except ValueError:
        fail(ExitCode.USAGE, f"there is no state {text!r}; there are {', '.join(WorkflowState)}")


def facts(status: InstanceView) -> dict[str, object]:
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
