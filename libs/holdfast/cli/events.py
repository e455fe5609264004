"""`holdfast events`: the history of one workflow, and its future with --follow."""

import asyncio
from typing import Annotated, Any

import typer

from holdfast.cli import connect
from holdfast.cli.output import JsonOption, plain, say, to_json, when
from holdfast.cli.sentences import sentence, type_name
from holdfast.core.events import Recorded

app = typer.Typer()

_PAGE = 500
_FOLLOW_PAUSE_S = 0.2


@app.command("events")
def events(
    key: Annotated[str, typer.Argument(help="namespace/workflow/run_id")],
    after: Annotated[int, typer.Option(help="Only events after this sequence.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the workflow has finished.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the history of a workflow; with --json one event per line.

    [bold]Examples[/bold]

      holdfast events orders/order-fulfillment/order-123

      holdfast events orders/order-fulfillment/order-123 --follow --json | jq .type
    """
    connect.run(_events(key, after, follow, json))


async def _events(key: str, after: int, follow: bool, json: bool) -> None:
    from holdfast.client.reads import is_finished
    from holdfast.contracts.limits import check_instance_key
    from holdfast.core.errors import Refused
    from holdfast.core.ids import InstanceKey, instance_id

    check_instance_key(key)
    instance = instance_id(InstanceKey(key))
    async with connect.reads() as reads:
        while True:
            status = (await reads.instances([instance])).get(instance)
            if status is None and not follow:
                raise Refused("unknown_instance", f"{key} does not exist; see `holdfast list`")
            while page := await reads.events(instance, after=after, limit=_PAGE):
                for recorded in page:
                    _write(recorded, json)
                after = page[-1].sequence
            if not follow or (status is not None and is_finished(status) and after >= status.sequence):
                return
            await asyncio.sleep(_FOLLOW_PAUSE_S)


def _write(recorded: Recorded, json: bool) -> None:
    if json:
        typer.echo(to_json(facts(recorded)))
    else:
        name, told = type_name(recorded.event), plain(sentence(recorded.event))
        say(f"{recorded.sequence:>5}  {when(recorded.occurred_at)}  [bold]{name:<22}[/bold] {told}")


def facts(recorded: Recorded) -> dict[str, Any]:
    import orjson

    from holdfast.contracts.event_codec import encode_event

    origin = recorded.origin
    return {
        "sequence": recorded.sequence,
        "execution": recorded.execution,
        "type": type_name(recorded.event),
        "occurred_at": recorded.occurred_at,
        "data": orjson.Fragment(encode_event(recorded.event)),
        "actor": {"type": origin.actor_type, "id": origin.actor_id},
        "caused_by": origin.cause,
        "trace_id": origin.trace_id,
    }
