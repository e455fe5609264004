"""`holdfast demo`: order sagas through real Kafka and Postgres, with crashes, and a verdict."""

import asyncio
import contextlib
import importlib
import importlib.util
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli import connect, define
from holdfast.cli.demo_scenes import Check, Scene, Scenes
from holdfast.cli.demo_stage import LiveStage, SilentStage, Stage
from holdfast.cli.dev import ended_by_signals
from holdfast.cli.exits import ExitCode
from holdfast.cli.local import LocalFailed, LocalSystem
from holdfast.cli.looks import table
from holdfast.cli.output import JsonOption, console, plain, say, write_json
from holdfast.client import Client
from holdfast.client.reads import PostgresReads
from holdfast.client.verify import Verifier

app = typer.Typer()

_WORKERS = ("worker-1", "worker-2")
_TARGET = "examples.orders.worker:worker"


@app.command("demo")
def demo(
    folder: Annotated[Path, typer.Option(help="Where it runs; removed at the end.")] = Path(".holdfast/demo"),
    json: JsonOption = False,
) -> None:
    """Run the order sagas of examples/orders through real Kafka and Postgres, every service its own process:
    ten orders complete; one is compensated; a worker freezes and its late completion is refused; the coordinator is
    killed with -9 and comes back. Ends with what happened and a verification of every history; exit 0 only if all of
    it is as it should be.

    [bold]Examples[/bold]

      holdfast demo

      holdfast demo --json | jq .ok
    """
    began = time.monotonic()
    connect.quiet()
    logs = folder.with_name(f"{folder.name}-logs")
    shutil.rmtree(logs, ignore_errors=True)
    root = _examples()
    system = LocalSystem(
        folder,
        env=_environment(folder),
        temporary=True,
        logs=logs,
        say=(lambda text: None) if json else (lambda text: say(f"[dim]{plain(text)}[/dim]")),
    )
    with ended_by_signals(), system:
        for name in _WORKERS:
            system.start_worker(_TARGET, name=name, ready=False, working_folder=root)
        scenes = asyncio.run(_play(system, root, silent=json))
        if not json:
            say("[dim]stopping[/dim]")
    ok = all(scene.ok for scene in scenes)
    took_s = time.monotonic() - began
    if json:
        write_json(_facts(scenes, ok, took_s, logs))
    else:
        _show(scenes, ok, took_s, logs)
    raise typer.Exit(int(ExitCode.OK if ok else ExitCode.NOT_COMPLETED))


def _environment(folder: Path) -> dict[str, str]:
    # The shortest that Kafka allows: whoever is killed or frozen is missed after six seconds instead of ten.
    return {"ORDERS_LEDGER": str(folder.absolute() / "ledger.sqlite"), "HOLDFAST_SESSION_TIMEOUT_S": "6"}


async def _play(system: LocalSystem, root: Path, *, silent: bool) -> list[Scene]:
    definition = root / "examples" / "orders" / "order-fulfillment.yaml"
    reads = await PostgresReads.open(system.info.postgres)
    try:
        await define.store([definition], system.info.kafka, system.info.postgres)
        for name in _WORKERS:
            await asyncio.to_thread(system.wait_ready, name)
        ledger = importlib.import_module("examples.orders.ledger").Ledger(system.folder / "ledger.sqlite")
        async with Client.connect(system.info.kafka, system.info.postgres) as holdfast, _stage(reads, silent) as stage:
            scenes = Scenes(system, holdfast, reads, ledger, stage, _WORKERS)
            played = await scenes.play()
            # The relay and recovery have a moment to end what they do, so that nothing moves while it is compared.
            played.append(await _verify(reads, scenes))
        return played
    finally:
        await reads.close()


@asynccontextmanager
async def _stage(reads: PostgresReads, silent: bool) -> AsyncIterator[Stage]:
    if silent:
        yield SilentStage()
        return
    stage = LiveStage(reads)
    showing = asyncio.create_task(stage.run())
    try:
        yield stage
        await asyncio.sleep(0.3)  # for the last events to be shown
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


async def _verify(reads: PostgresReads, scenes: Scenes) -> Scene:
    scene, began = Scene("✓", "holdfast verify over everything"), time.monotonic()
    verifier = Verifier(reads, reads.definitions)
    differences = [difference async for difference in verifier.all()]
    seen = f"{verifier.report.instances} workflows, {verifier.report.events} events"
    scene.check("every order is there", verifier.report.instances == len(scenes.runs), seen)
    told = "; ".join(str(one) for one in differences[:3]) or "no difference"
    scene.check("every row is what the events say", not differences, told)
    counts = await _settled(reads)
    left = counts.leases + counts.timers + counts.outbox + counts.outbox_parked + counts.parked_inputs
    seen = f"{counts.leases} leases, {counts.timers} timers, {counts.outbox} outbox rows, {counts.parked_inputs} parked"
    scene.check("nothing is left over", left == 0, seen)
    scene.took_s = time.monotonic() - began
    return scene


async def _settled(reads: PostgresReads) -> Any:
    """The outbox is drained a moment after the last commit; wait for that moment, not for ever."""
    for _ in range(100):
        counts = await reads.counts()
        if counts.outbox + counts.leases + counts.timers == 0:
            break
        await asyncio.sleep(0.1)
    return counts


def _examples() -> Path:
    """The folder that holds `examples`, put on the path."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "examples" / "orders").is_dir():
        root = Path.cwd()
    if not (root / "examples" / "orders").is_dir():
        raise LocalFailed("the demo needs examples/orders of the repository: run it in a checkout of Holdfast")
    sys.path.insert(0, str(root))
    return root


def _show(scenes: list[Scene], ok: bool, took_s: float, logs: Path) -> None:
    shown = table("What happened", "", "should", "seen", "")
    for scene in scenes:
        shown.add_row(f"[bold]{scene.name}[/bold]", f"[bold]{scene.title}[/bold]", f"[dim]{scene.took_s:.1f} s[/dim]")
        for check in scene.checks:
            shown.add_row("", plain(check.what), plain(check.seen), _mark(check))
        shown.add_section()
    console().print(shown)
    verdict = "[green]All of it is as it should be[/green]" if ok else "[red]Not all of it is as it should be[/red]"
    say(f"{verdict}: {took_s:.0f} s. The logs of every process are in {plain(logs)}.")


def _mark(check: Check) -> str:
    return "[green]yes[/green]" if check.ok else "[bold red]NO[/bold red]"


def _facts(scenes: list[Scene], ok: bool, took_s: float, logs: Path) -> dict[str, Any]:
    listed = [
        {"scene": one.name, "title": one.title, "ok": one.ok, "took_s": round(one.took_s, 2), "checks": one.checks}
        for one in scenes
    ]
    return {"ok": ok, "took_s": round(took_s, 1), "scenes": listed, "logs": str(logs)}
