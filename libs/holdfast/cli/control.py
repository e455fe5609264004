"""`holdfast cancel` and `holdfast resume`: commands to a run that exists."""

from typing import Annotated

import typer

from holdfast.cli import connect
from holdfast.cli.output import JsonOption, plain, say, write_json
from holdfast.store.rows import CommandRow

app = typer.Typer()

KeyArgument = Annotated[str, typer.Argument(help="namespace/workflow/run_id")]
TimeoutOption = Annotated[float, typer.Option(help="Seconds to wait for the outcome.")]


@app.command("cancel")
def cancel(
    key: KeyArgument,
    reason: Annotated[str, typer.Option(help="Why; kept in the history.")] = "",
    compensate: Annotated[bool, typer.Option("--compensate", help="Undo what was done, newest first.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while it is FAILING; nothing is undone.")] = False,
    timeout: TimeoutOption = 30.0,
    json: JsonOption = False,
) -> None:
    """Cancel a workflow. Without --compensate it ends at once and nothing is undone.

    [bold]Examples[/bold]

      holdfast cancel orders/order-fulfillment/order-123 --reason "the customer called"

      holdfast cancel orders/order-fulfillment/order-123 --compensate
    """

    async def work() -> None:
        async with connect.client() as holdfast:
            sent = await holdfast.run(key).cancel(reason, compensate=compensate, force=force)
            _tell(key, await sent.accepted(timeout), json)

    connect.run(work())


@app.command("resume")
def resume(
    key: KeyArgument,
    reason: Annotated[str, typer.Option(help="Why it will work now; kept in the history.")] = "",
    timeout: TimeoutOption = 30.0,
    json: JsonOption = False,
) -> None:
    """Go on after COMPENSATION_FAILED: the compensation that failed gets fresh attempts.

    [bold]Example[/bold]

      holdfast resume orders/order-fulfillment/order-123 --reason "the bank is back"
    """

    async def work() -> None:
        async with connect.client() as holdfast:
            sent = await holdfast.run(key).resume(reason)
            _tell(key, await sent.accepted(timeout), json)

    connect.run(work())


def _tell(key: str, row: CommandRow, json: bool) -> None:
    if json:
        write_json({"key": key, "outcome": row.outcome, "reason": row.reason})
    else:
        say(f"{plain(key)} {row.outcome}{': ' + plain(row.reason) if row.reason else ''}")
