"""`holdfast show`: one workflow, as the tables know it now."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.looks import colored, table
from holdfast.cli.output import JsonOption, console, fail, plain, say, when, write_json
from holdfast.contracts.limits import check_instance_key
from holdfast.core.changes import TaskRow
from holdfast.core.ids import InstanceKey, instance_id
from holdfast.core.transitions import WorkflowState as W
from holdfast.store.rows import CommandRow, InstanceView, LeaseView, Rejection, TimerView

app = typer.Typer()

_PARKED_MAX = 1000

# What a person may ask of a workflow now, and where it leads.
_ALLOWED: dict[W, dict[str, str]] = {
    W.CREATED: {"cancel": "CANCELLED"},
    W.RUNNING: {"cancel": "CANCELLED", "cancel --compensate": "FAILING, COMPENSATING, COMPENSATED"},
    W.PAUSED: {"cancel": "CANCELLED", "cancel --compensate": "FAILING, COMPENSATING, COMPENSATED"},
    W.FAILING: {"cancel --force": "CANCELLED, without compensation"},
    W.COMPENSATION_FAILED: {"resume": "COMPENSATING"},
}


@app.command("show")
def show(
    key: Annotated[str, typer.Argument(help="namespace/workflow/run_id")],
    json: JsonOption = False,
) -> None:
    """Show one workflow: state, what is awaited, last error, tasks, leases, timers, what you may do now.

    [bold]Example[/bold]

      holdfast show orders/order-fulfillment/order-123
    """
    detail = connect.run(_detail(key))
    if detail is None:
        fail(ExitCode.REFUSED, f"{key} does not exist; see `holdfast list`", reason="unknown_instance")
    if json:
        write_json(facts(detail))
    else:
        _print(detail)


@dataclass(frozen=True, slots=True)
class Detail:
    """Everything that the tables say of one workflow."""

    status: InstanceView
    tasks: list[TaskRow]
    leases: list[LeaseView]
    timers: list[TimerView]
    commands: list[tuple[CommandRow, int]]
    rejections: list[Rejection]
    parked: int


async def _detail(key: str) -> Detail | None:
    check_instance_key(key)
    instance = instance_id(InstanceKey(key))
    async with connect.reads() as reads:
        status = (await reads.instances([instance])).get(instance)
        if status is None:
            return None
        return Detail(
            status,
            await reads.tasks(instance),
            await reads.leases(instance),
            await reads.timers(instance),
            await reads.commands(instance),
            await reads.rejections(instance),
            len(await reads.parked_inputs(instance, _PARKED_MAX)),
        )


def facts(detail: Detail) -> dict[str, Any]:
    leases = [
        {
            "path": lease.lease.path,
            "holder": lease.lease.holder,
            "address": lease.lease.address,
            "since": lease.lease.since,
        }
        | {"fence": lease.lease.fence, "attempt": lease.lease.attempt, "renewals": lease.renewals}
        | {"expires_at": lease.lease.expires_at, "timeout_at": lease.lease.timeout_at, "details": lease.details}
        for lease in detail.leases
    ]
    return {
        "key": detail.status.key,
        "instance_id": detail.status.instance_id,
        "version": detail.status.version,
        "state": detail.status.state,
        "execution": detail.status.execution,
        "sequence": detail.status.sequence,
        "fence": detail.status.fence,
        "awaiting": detail.status.awaiting,
        "error": detail.status.error,
        "created_at": detail.status.created_at,
        "updated_at": detail.status.updated_at,
        "finished_at": detail.status.finished_at,
        "last_service": detail.status.last_service,
        "quarantined": detail.status.quarantine_reason,
        "parked_inputs": detail.parked,
        "tasks": detail.tasks,
        "leases": leases,
        "timers": [{"key": one.timer.key, "due_at": one.timer.due_at, "sent_at": one.sent_at} for one in detail.timers],
        "commands": [_command_facts(row, repeats) for row, repeats in detail.commands],
        "rejections": detail.rejections,
        "allowed": _ALLOWED.get(detail.status.state, {}),
    }


def _command_facts(row: CommandRow, repeats: int) -> dict[str, Any]:
    told = {"source": row.key.source, "id": row.key.id, "type": row.type, "outcome": row.outcome}
    return told | {"reason": row.reason, "received_at": row.received_at, "repeats": repeats}


def _print(detail: Detail) -> None:
    status = detail.status
    say(f"[bold]{plain(status.key)}[/bold]  {colored(status.state)}  version {status.version}")
    say(
        f"  created {when(status.created_at)}, updated {when(status.updated_at)} by {plain(detail.status.last_service)}"
    )
    if status.finished_at:
        say(f"  finished {when(status.finished_at)}")
    say(f"  {status.sequence} events, fence {status.fence}, awaiting {status.awaiting or 'nothing'}")
    if status.error:
        say(f"  [red]{plain(status.error.code)}[/red]: {plain(status.error.message)}")
    if status.quarantined_at:
        say(f"  [bold red]quarantined[/bold red]: {plain(status.quarantine_reason)}; {detail.parked} inputs wait")
    elif detail.parked:
        say(f"  [yellow]{detail.parked} inputs are parked[/yellow]: one could not be decided and is tried again")
    for shown in (_tasks(detail), _leases(detail), _timers(detail)):
        if shown.row_count:
            console().print(shown)
    for command, leads_to in _ALLOWED.get(status.state, {}).items():
        say(f"  you may: holdfast {command} {plain(status.key)}  → {leads_to}")


def _tasks(detail: Detail) -> Table:
    shown = table("Tasks", "task", "attempt", "status", "activity", "fence", "holder", "started", "ended", "error")
    for row in detail.tasks:
        error = f"{row.error.code}: {row.error.message}" if row.error else ""
        cells = [row.path, row.attempt, colored(row.status), row.activity, row.fence, row.holder or ""]
        shown.add_row(*(str(cell) for cell in cells), when(row.started_at), when(row.ended_at), plain(error))
    return shown


def _leases(detail: Detail) -> Table:
    shown = table("Leases", "task", "holder", "address", "since", "renewals", "expires", "says")
    for lease in detail.leases:
        row, says = lease.lease, lease.details.decode() if lease.details else ""
        cells = (row.path, row.holder, row.address, when(row.since), str(lease.renewals), when(row.expires_at), says)
        shown.add_row(*(plain(cell) for cell in cells))
    return shown


def _timers(detail: Detail) -> Table:
    shown = table("Timers", "timer", "due", "token", "sent")
    for one in detail.timers:
        shown.add_row(plain(one.timer.key), when(one.timer.due_at), str(one.timer.token), when(one.sent_at))
    return shown
