"""Running the loops side by side: each waits out its own troubles, and each has its own line in /readyz."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from holdfast.core.errors import HoldfastError
from holdfast.kit.backoff import Backoff

_log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[float]]
"""One round; returns how long to pause before the next."""

Note = Callable[[str, str | None], None]
"""Told of each loop why it does not get on, or None when it does."""


class Loops:
    def __init__(self, steps: Mapping[str, Step], note: Note) -> None:
        self._steps = steps
        self._note = note
        for name in steps:
            note(name, "has not completed a round yet")

    async def run(self, stopping: asyncio.Event) -> None:
        """Until told to stop. A loop ends only by a bug, which ends all of them: better none than some, unnoticed."""
        tasks = [asyncio.create_task(self._forever(name, step), name=name) for name, step in self._steps.items()]
        stopped = asyncio.create_task(stopping.wait())
        try:
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in [stopped, *tasks]:
                task.cancel()
            await asyncio.gather(stopped, *tasks, return_exceptions=True)

    async def _forever(self, name: str, step: Step) -> None:
        backoff = Backoff(cap_s=2.0)
        while True:
            try:
                pause_s = await step()
            except HoldfastError as problem:
                if not backoff.failures:
                    _log.warning("%s waits: %s", name, problem)
                self._note(name, str(problem))
                await asyncio.sleep(backoff.next_s())
            else:
                self._note(name, None)
                backoff.reset()
                await asyncio.sleep(pause_s)
