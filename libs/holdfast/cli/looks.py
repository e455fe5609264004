"""Colours of states and the one style of tables."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

_COLORS = {
    "CREATED": "cyan",
    "PENDING": "cyan",
    "QUEUED": "cyan",
    "RUNNING": "blue",
    "PAUSED": "yellow",
    "COMPLETING": "green",
    "COMPLETED": "green",
    "FAILING": "yellow",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "COMPENSATING": "yellow",
    "COMPENSATED": "magenta",
    "COMPENSATION_FAILED": "bold red",
    "CANCELLED": "magenta",
    "SKIPPED": "dim",
}


def colored(state: str) -> str:
    return f"[{_COLORS.get(state, 'white')}]{state}[/]"


def table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
