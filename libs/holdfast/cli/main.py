"""The command line. This module knows every command's name and nothing else: a command's module is imported when the
command is run, so that `holdfast --help` and completion are quick.
"""

import importlib
import importlib.util
import os
import sys
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.exits import ExitCode


class _Entry(NamedTuple):
    module: str
    panel: str
    help: str


_EVERYTHING, _WORKFLOWS, _LOOK, _SERVICES = "On this machine", "Workflows", "Looking", "Services"

COMMANDS: dict[str, _Entry] = {
    "demo": _Entry("demo", _EVERYTHING, "Run order sagas through crashes on real Kafka and Postgres, and verify them."),
    "dev": _Entry("dev", _EVERYTHING, "Run Kafka, Postgres and all services here until Ctrl-C."),
    "bench": _Entry("bench", _EVERYTHING, "Measure this machine."),
    "migrate": _Entry("migrate", _SERVICES, "Bring the database to the newest schema. Safe to run twice."),
    "topics": _Entry("topics", _SERVICES, "Make or check the Kafka topics."),
    "define": _Entry("define", _WORKFLOWS, "Validate and store workflow definitions."),
    "start": _Entry("start", _WORKFLOWS, "Start a workflow."),
    "cancel": _Entry("control", _WORKFLOWS, "Cancel a workflow, with or without compensation."),
    "resume": _Entry("control", _WORKFLOWS, "Go on after COMPENSATION_FAILED."),
    "show": _Entry("show", _LOOK, "Show one workflow: state, what is awaited, tasks, leases, timers."),
    "events": _Entry("events", _LOOK, "Show the history of a workflow."),
    "list": _Entry("listing", _LOOK, "List workflows."),
    "watch": _Entry("watch", _LOOK, "Watch workflows live."),
    "verify": _Entry("verify", _LOOK, "Replay histories and compare them with every row."),
    "coordinator": _Entry("services", _SERVICES, "Run a coordinator: the only writer of workflow events."),
    "relay": _Entry("services", _SERVICES, "Run a relay: from the outbox to Kafka."),
    "recovery": _Entry("services", _SERVICES, "Run recovery: timers, leases, lost dispatches."),
    "worker": _Entry("services", _SERVICES, "Run a worker: your activities."),
}


def load(name: str) -> Any:
    """The real command. A module's `app` holds its commands by name; `group` marks a command with subcommands."""
    module = importlib.import_module(f"holdfast.cli.{COMMANDS[name].module}")
    group = typer.main.get_group(module.app)
    return group if getattr(module, "group", False) else group.commands[name]


def _present(entry: _Entry) -> bool:
    # Only the benchmark may be absent: it is not part of every build.
    return entry.module != "bench" or importlib.util.find_spec("holdfast.cli.bench") is not None


class LazyGroup(TyperGroup):
    """Shows stubs in the help and imports a command's module only when that command is run."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, entry in COMMANDS.items():
            if _present(entry):
                self.add_command(TyperCommand(name, help=entry.help, rich_help_panel=entry.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = load(name)
            command.name = name
        return name, command, rest


app = typer.Typer(
    cls=LazyGroup,
    name="holdfast",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Settings come from the environment (HOLDFAST_*); where a variable is unset, from .holdfast/dev.env of a "
        "running [bold]holdfast dev[/bold].\n\n"
        "Exit codes: 0 fine; 1 the workflow did not complete, or a check found problems; 2 wrong usage; "
        "3 refused by Holdfast; 4 Kafka or Postgres cannot be reached; 5 something on this machine did not start; "
        "6 time-out while waiting; 130 interrupted."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


@app.callback()
def holdfast(
    kafka: Annotated[str | None, typer.Option(help="Kafka's bootstrap servers; wins over HOLDFAST_KAFKA.")] = None,
    postgres: Annotated[str | None, typer.Option(help="Postgres's DSN; wins over HOLDFAST_POSTGRES.")] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Holdfast: durable workflows and sagas on Kafka and Postgres. Start with [bold]holdfast demo[/bold]."""
    if kafka:
        os.environ["HOLDFAST_KAFKA"] = kafka
    if postgres:
        os.environ["HOLDFAST_POSTGRES"] = postgres


def main() -> None:
    try:
        app(prog_name="holdfast")
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as problem:
        from holdfast.cli.output import explain

        sys.exit(explain(problem))
