"""How commands speak: tables and lines for people, JSON for machines, errors that say what to do, and exit codes."""

import os
import sys
from datetime import datetime
from functools import cache
from typing import Annotated, Any, NoReturn
from uuid import UUID

import orjson
import typer
from rich.console import Console

from holdfast.cli.exits import ExitCode
from holdfast.core.errors import Corrupt, Refused, Transient

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for machines.")]


@cache
def console() -> Console:
    # Into a pipe there is no edge to wrap at; tables keep one row per line, as grep wants it.
    width = None if sys.stdout.isatty() else 250
    return Console(highlight=False, soft_wrap=True, width=width)


@cache
def _errors() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A line for people, with rich's markup. Text that others wrote goes through `plain` first."""
    console().print(text)


def plain(text: object) -> str:
    """Text as it is, whatever brackets it contains."""
    from rich.markup import escape

    return escape(str(text))


def write_json(data: Any) -> None:
    """One JSON document per call, indented for a terminal and on one line for a pipe."""
    sys.stdout.write(to_json(data, indent=sys.stdout.isatty()) + "\n")
    sys.stdout.flush()


def to_json(data: Any, *, indent: bool = False) -> str:
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(data, _default, options).decode()


def _default(value: Any) -> Any:
    if isinstance(value, bytes):  # a payload: JSON already
        return orjson.loads(value) if value else None
    if isinstance(value, UUID):  # asyncpg's own kind
        return str(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def when(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def fail(code: ExitCode, message: str, **facts: Any) -> NoReturn:
    """Say what is wrong on stderr and end with the code."""
    complain(code, message, **facts)
    raise typer.Exit(int(code))


def complain(code: ExitCode, message: str, **facts: Any) -> None:
    if "--json" in sys.argv:
        sys.stderr.write(to_json({"error": message, "exit_code": int(code), **facts}) + "\n")
    else:
        _errors().print(f"[bold red]error[/bold red]: {plain(message)}")


def explain(problem: Exception) -> int:
    """Turn what a command raised into a message and an exit code; what is a bug keeps its traceback."""
    from holdfast.cli.local_process import LocalFailed
    from holdfast.client.errors import NotCompleted, WaitTimedOut
    from holdfast.embedded.errors import EmbeddedError

    if isinstance(problem, NotCompleted):
        complain(ExitCode.NOT_COMPLETED, str(problem), state=problem.state)
        return ExitCode.NOT_COMPLETED
    if isinstance(problem, WaitTimedOut):
        complain(ExitCode.TIMED_OUT, f"{problem}; it may still happen: look again with `holdfast show`")
        return ExitCode.TIMED_OUT
    if isinstance(problem, Refused):
        complain(ExitCode.REFUSED, problem.detail or problem.reason, reason=problem.reason)
        return ExitCode.REFUSED
    if isinstance(problem, Transient):
        complain(ExitCode.UNREACHABLE, f"{problem}; {_where()}")
        return ExitCode.UNREACHABLE
    if isinstance(problem, EmbeddedError | LocalFailed):
        complain(ExitCode.LOCAL, str(problem))
        return ExitCode.LOCAL
    if isinstance(problem, Corrupt):
        complain(ExitCode.NOT_COMPLETED, f"{problem}; nothing was changed")
        return ExitCode.NOT_COMPLETED
    raise problem


def _where() -> str:
    kafka = os.environ.get("HOLDFAST_KAFKA", "127.0.0.1:9092 (the default)")
    postgres = "set" if os.environ.get("HOLDFAST_POSTGRES") else "not set"
    return f"HOLDFAST_KAFKA is {kafka}, HOLDFAST_POSTGRES is {postgres}; is `holdfast dev` running?"
