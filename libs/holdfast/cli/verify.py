"""`holdfast verify`: do the tables say what the events say?"""

from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.looks import table
from holdfast.cli.output import JsonOption, console, fail, plain, say, write_json
from holdfast.client.verify import Difference, Report, Verifier
from holdfast.contracts.limits import check_instance_key
from holdfast.core.ids import InstanceKey, instance_id

app = typer.Typer()


@app.command("verify")
def verify(
    keys: Annotated[list[str] | None, typer.Argument(help="namespace/workflow/run_id, one or several")] = None,
    all: Annotated[bool, typer.Option("--all", help="Every instance there is.")] = False,
    json: JsonOption = False,
) -> None:
    """Replay the events of workflows, rebuild every row, and compare with the tables. Changes nothing; exit 1 if they
    differ, if a sequence has a gap, or if an illegal move was made.

    [bold]Examples[/bold]

      holdfast verify orders/order-fulfillment/order-123

      holdfast verify --all --json
    """
    if bool(keys) == all:
        fail(ExitCode.USAGE, "name the workflows to verify, or say --all")
    for key in keys or []:
        check_instance_key(key)
    differences, report = connect.run(_verify([InstanceKey(key) for key in keys or []]))
    if json:
        write_json(facts(differences, report))
    else:
        show(differences, report)
    if differences:
        raise typer.Exit(int(ExitCode.NOT_COMPLETED))


async def _verify(keys: list[InstanceKey]) -> tuple[list[Difference], Report]:
    async with connect.reads() as reads:
        verifier = Verifier(reads, reads.definitions)
        if not keys:
            return [difference async for difference in verifier.all()], verifier.report
        found = [await verifier.one(instance_id(key), key) for key in keys]
        return [difference for some in found for difference in some], verifier.report


def facts(differences: list[Difference], report: Report) -> dict[str, Any]:
    listed = [asdict(replace(one, expected=_text(one.expected), found=_text(one.found))) for one in differences]
    return {"instances": report.instances, "events": report.events, "differences": listed}


def show(differences: list[Difference], report: Report) -> None:
    if differences:
        shown = table("Differences", "instance", "table", "row", "column", "the events say", "the table says")
        for one in differences:
            cells = (one.instance, one.table, one.row, one.column, _text(one.expected), _text(one.found))
            shown.add_row(*(plain(cell) for cell in cells))
        console().print(shown)
    verdict = f"[red]{len(differences)} differences[/red]" if differences else "[green]no difference[/green]"
    say(f"verified {report.instances} workflows and {report.events} events: {verdict}")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
