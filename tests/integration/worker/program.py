"""A worker as its own process: `python -m tests.integration.worker.program <queue> <folder>`.

The test sees what its activities do by the files they make, and lets them go on by making files itself.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import ActivityContext, Worker, activity

folder = Path(sys.argv[2] if len(sys.argv) > 2 else os.environ.get("WORKER_FOLDER", "."))


def mark(what: str, number: int) -> None:
    (folder / f"{what}-{number}-{os.getpid()}").touch()


async def gate(ctx: ActivityContext, number: int) -> int:
    """Waits for the file `go-<number>`."""
    mark("entered", number)
    try:
        while not (folder / f"go-{number}").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        mark(f"cancelled:{ctx.cancelled}", number)
        raise
    return number


async def quick(number: int) -> int:
    mark("ran", number)
    return number


async def busy(number: int) -> int:
    """Keeps the event loop for itself until the file `go-<number>` is there."""
    mark("entered", number)
    while not (folder / f"go-{number}").exists():
        time.sleep(0.001)  # noqa: ASYNC251
    return number


def main() -> int:
    queue = sys.argv[1]
    activities: list[Any] = [activity(f"{queue}.{fn.__name__}")(fn) for fn in (gate, quick, busy)]
    return Worker(activities).run()


if __name__ == "__main__":
    sys.exit(main())
