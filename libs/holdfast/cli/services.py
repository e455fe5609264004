"""One command per service. Settings come from the environment; SIGTERM drains."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from holdfast.kit.settings import load_dev_env

app = typer.Typer()


@app.command("coordinator")
def coordinator() -> None:
    """Run a coordinator: it consumes commands, reports and ticks, decides, and is the only writer of workflow events.

    [bold]Example[/bold]

      HOLDFAST_KAFKA=kafka:9092 HOLDFAST_POSTGRES=postgresql://… holdfast coordinator
    """
    from holdfast_coordinator.service import run

    _serve(run)


@app.command("relay")
def relay() -> None:
    """Run a relay: it publishes the outbox of partitions that no coordinator publishes itself.

    [bold]Example[/bold]

      holdfast relay
    """
    from holdfast_relay.service import run

    _serve(run)


@app.command("recovery")
def recovery() -> None:
    """Run recovery: timers at their due time, expired leases, lost dispatches. It writes no events.

    [bold]Example[/bold]

      holdfast recovery
    """
    from holdfast_recovery.service import run

    _serve(run)


@app.command("worker")
def worker(
    target: Annotated[str, typer.Argument(help="package.module:attribute, where the attribute is a Worker")],
) -> None:
    """Run a worker: your activities, as a Kafka consumer group per queue.

    [bold]Example[/bold]

      holdfast worker examples.orders.worker:worker
    """
    from holdfast.worker import load_worker, run_worker

    sys.path.insert(0, "")  # as `python -m` does: the user's code is where the user is
    load_dev_env()
    raise typer.Exit(run_worker(load_worker(target)))


def _serve(run: Callable[[], int]) -> None:
    load_dev_env()
    raise typer.Exit(run())
