"""`holdfast dev`: everything on this machine, until Ctrl-C."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.local import LocalSystem
from holdfast.cli.looks import table
from holdfast.cli.output import JsonOption, console, plain, say, write_json

app = typer.Typer()

_LOOK_S = 0.5
_QUICK_CRASHES_MAX = 5
_QUICK_CRASH_S = 10.0


@app.command("dev")
def dev(
    folder: Annotated[Path, typer.Option(help="Where data, logs and dev.env are kept between runs.")] = Path(
        ".holdfast"
    ),
    coordinators: Annotated[int, typer.Option(min=1)] = 1,
    relays: Annotated[int, typer.Option(min=0)] = 1,
    recoveries: Annotated[int, typer.Option(min=1)] = 1,
    worker: Annotated[
        list[str] | None, typer.Option(help="Also run this worker: package.module:attribute; may be repeated.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run Kafka, Postgres and all services here until Ctrl-C. Data stays in the folder between runs.

    The other commands find this system by the file dev.env in the folder.

    [bold]Examples[/bold]

      holdfast dev

      holdfast dev --coordinators 2 --worker examples.orders.worker:worker
    """
    system = LocalSystem(
        folder,
        coordinators=coordinators,
        relays=relays,
        recoveries=recoveries,
        say=(lambda text: None) if json else (lambda text: say(plain(text))),
    )
    environment = folder / "dev.env"
    with ended_by_signals():
        try:
            system.start()
            for number, target in enumerate(worker or [], 1):
                system.start_worker(target, name=f"worker-{number}")
            _write_environment(environment, system)
            _show(system, environment, json)
            _keep(system, json)
        except KeyboardInterrupt:
            if not json:
                say("stopping")
        finally:
            environment.unlink(missing_ok=True)
            system.stop()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does. While it stops, a second one is not heard, so that nothing is left over."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_environment(path: Path, system: LocalSystem) -> None:
    text = f"HOLDFAST_KAFKA={system.info.kafka}\nHOLDFAST_POSTGRES={system.info.postgres}\n"
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)  # The DSN has a password in it.
    draft.write_text(text)
    draft.replace(path)


def _show(system: LocalSystem, environment: Path, json: bool) -> None:
    if json:
        processes = [
            {"name": one.name, "pid": one.pid, "url": one.url, "log": one.log_file} for one in system.processes
        ]
        write_json(
            {"kafka": system.info.kafka, "postgres": system.info.postgres, "pid": os.getpid()}
            | {"processes": [{**one, "log": str(one["log"])} for one in processes]}
        )
        return
    shown = table("Running", "what", "where", "log")
    shown.add_row("Kafka", system.info.kafka, "")
    shown.add_row("Postgres", _without_password(system.info.postgres), "")
    for one in system.processes:
        shown.add_row(one.name, f"{one.url}/metrics", plain(_near(one.log_file)))
    console().print(shown)
    say(f"Settings for other programs are in {plain(_near(environment))}; holdfast commands read it by themselves.")
    say("Try: [bold]holdfast define examples/orders/order-fulfillment.yaml[/bold]. Ctrl-C stops everything.")


def _keep(system: LocalSystem, json: bool) -> None:
    """Start again what crashes; give up on what crashes over and over at once."""
    crashes: dict[str, list[float]] = {}
    while True:
        for crash in system.crashed():
            now = time.monotonic()
            recent = [at for at in crashes.get(crash.name, []) if now - at < _QUICK_CRASH_S]
            crashes[crash.name] = [*recent, now]
            code, log = crash.exit_code, plain(_near(crash.log_file))
            if len(recent) >= _QUICK_CRASHES_MAX:
                crash.stopping = True
                _tell(f"{crash.name} crashes again and again (code {code}) and stays down; see {log}", json)
                continue
            _tell(f"{crash.name} ended with code {code}; starting it again. Its log is {log}", json)
            system.restart(crash.name, ready=False)
        time.sleep(_LOOK_S)


def _tell(text: str, json: bool) -> None:
    if json:
        write_json({"message": text})
    else:
        say(f"[yellow]{text}[/yellow]")


def _near(path: Path) -> Path:
    try:
        return path.absolute().relative_to(Path.cwd())
    except ValueError:
        return path


def _without_password(dsn: str) -> str:
    head, at, tail = dsn.rpartition("@")
    scheme, slashes, login = head.partition("://")
    return f"{scheme}{slashes}{login.partition(':')[0]}@{tail}" if at else dsn
