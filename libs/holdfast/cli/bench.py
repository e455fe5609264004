"""`holdfast bench`: measure Holdfast on this machine, on an embedded stack of its own."""

import asyncio
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer

from holdfast.cli.output import JsonOption, plain, say, write_json

app = typer.Typer(no_args_is_help=True, help="Measure this machine.")
group = True


@app.callback()
def bench() -> None:
    """Measure this machine."""


@app.command("saga")
def saga(
    sagas: Annotated[int, typer.Option(min=1, help="How many sagas in the burst.")] = 10_000,
    latency_sagas: Annotated[int, typer.Option(min=1, help="How many sagas one after another.")] = 300,
    warm_up: Annotated[int, typer.Option(min=0, help="How many sagas before anything is measured.")] = 30_000,
    partitions: Annotated[int, typer.Option(min=1, help="Of the inbox topics and of each queue.")] = 4,
    relay: Annotated[
        str, typer.Option(help="hosted (in the coordinator) or service (a process of its own).")
    ] = "hosted",
    json: JsonOption = False,
) -> None:
    """The three-step order saga: steps/s, latency, and CPU per step by role, with all services on this machine.

    [bold]Example[/bold]

      holdfast bench saga --sagas 20000 --relay service
    """
    from holdfast.cli.bench_saga import measure
    from holdfast.cli.local import LocalSystem

    if relay not in ("hosted", "service"):
        raise typer.BadParameter("must be hosted or service", param_hint="--relay")

    def tell(text: str) -> None:
        if not json:
            say(plain(text))

    folder = Path(mkdtemp(prefix="holdfast-bench-"))
    with LocalSystem(folder, env={"HOLDFAST_RELAY": relay}, partitions=partitions, temporary=True, say=tell) as system:
        result = asyncio.run(measure(system, sagas, latency_sagas, warm_up, tell))
    if json:
        write_json(result.as_dict())
        return
    took = f"{result.sagas:,} sagas in {result.seconds:.1f} s, relay {relay}"
    say(f"\n[bold]{result.steps_per_s:,.0f} steps/s[/bold]  ({took})")
    say(f"one saga at a time: p50 {result.latency_p50_ms:.1f} ms, p99 {result.latency_p99_ms:.1f} ms")
    parts = ", ".join(f"{role} {cost:.0f}" for role, cost in result.cpu_us_per_step.items())
    say(f"CPU per step in us: {parts}; together {sum(result.cpu_us_per_step.values()):.0f}")
