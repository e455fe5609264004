"""`holdfast start`."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from holdfast.cli import connect
from holdfast.cli.exits import ExitCode
from holdfast.cli.output import JsonOption, complain, fail, plain, say, write_json

app = typer.Typer()


@app.command("start")
def start(
    workflow: Annotated[str, typer.Argument(help="namespace/workflow")],
    run_id: Annotated[str | None, typer.Option("--run-id", "-r", help="Your business key; made up if absent.")] = None,
    input: Annotated[str | None, typer.Option("--input", "-i", help="JSON; @FILE reads a file, - reads stdin.")] = None,
    version: Annotated[int | None, typer.Option(help="The definition's version; the newest if absent.")] = None,
    run_at: Annotated[str | None, typer.Option(help="Begin later: ISO 8601 with a time zone.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the result; exit 1 unless it completes.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return as soon as Kafka has it; needs no Postgres.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait, for the acceptance or the result.")] = 60.0,
    json: JsonOption = False,
) -> None:
    """Start a workflow. A run id that was used before is the same run: starting it again changes nothing.

    [bold]Examples[/bold]

      holdfast start orders/order-fulfillment -r order-123 -i '{"order_id": "order-123", "amount": 99}' --wait

      holdfast start orders/order-fulfillment -i @order.json --json
    """
    value, moment = _read_input(input), _moment(run_at)
    connect.run(_start(workflow, run_id, value, version, moment, wait, detach, timeout, json))


async def _start(
    workflow: str,
    run_id: str | None,
    value: Any,
    version: int | None,
    run_at: datetime | None,
    wait: bool,
    detach: bool,
    timeout: float,
    json: bool,
) -> None:
    from holdfast.client.errors import NotCompleted

    async with connect.client() as holdfast:
        run = await holdfast.start(workflow, run_id=run_id, input=value, version=version, run_at=run_at)
        facts: dict[str, Any] = {"key": run.key, "run_id": run.run_id, "instance_id": run.id}
        if not detach:
            assert run.sent is not None
            facts["outcome"] = (await run.sent.accepted(timeout)).outcome
        if not wait:
            write_json(facts) if json else say(f"{plain(run.key)} {facts.get('outcome', 'sent')}")
            return
        try:
            facts |= {"state": "COMPLETED", "output": await run.result(timeout)}
        except NotCompleted as problem:
            facts |= {"state": problem.state, "error": problem.error}
            write_json(facts) if json else complain(ExitCode.NOT_COMPLETED, str(problem))
            raise typer.Exit(int(ExitCode.NOT_COMPLETED)) from None
        if json:
            write_json(facts)
        else:
            say(f"{plain(run.key)} [green]COMPLETED[/green] {plain(orjson.dumps(facts['output']).decode())}")


def _read_input(text: str | None) -> Any:
    if text is None:
        return None
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return orjson.loads(text)
    except OSError as problem:
        fail(ExitCode.USAGE, f"cannot read the input: {problem}")
    except orjson.JSONDecodeError as problem:
        fail(ExitCode.USAGE, f"the input is not JSON: {problem}")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(ExitCode.USAGE, f"--run-at is ISO 8601, like 2030-01-31T09:00:00+00:00, not {text!r}")
    if moment.tzinfo is None:
        fail(ExitCode.USAGE, f"--run-at needs a time zone: {text}+00:00 or {text}Z")
    return moment
