"""Whatever a service needs may come later than the service: not ready until then, for as long as it takes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.core.errors import Refused, Transient
from holdfast.kit.backoff import Backoff
from holdfast.kit.service import Runtime

T = TypeVar("T")


async def patiently(what: str, runtime: Runtime, ask: Callable[[], Awaitable[T]]) -> T | None:
    """Ask until there is an answer; None if we are told to stop first. /readyz says meanwhile what is missing."""
    backoff = Backoff()
    while not runtime.stopping.is_set():
        try:
            answer = await ask()
        except (Transient, Refused) as problem:
            runtime.log.warning("waits", needs=what, reason=str(problem))
            runtime.health.fails(what, str(problem))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(runtime.stopping.wait(), backoff.next_s())
        else:
            runtime.health.passes(what)
            return answer
    return None
