"""Who has been running long enough to say `started`.

Attempts begin in order and the grace is the same for all, so a deque is a timer queue: one timer for the oldest
instead of one for each. Most attempts are over when their turn comes and cost nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.worker.attempt import Attempt

_grain_s = 0.02  # Under load: at most one look in this time.


class Grace:
    def __init__(self, grace_s: float, outlived: Callable[[Attempt], None]) -> None:
        self._grace_s = grace_s
        self._outlived = outlived
        self._loop = asyncio.get_running_loop()
        self._young: deque[Attempt] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, attempt: Attempt) -> None:
        self._young.append(attempt)
        if self._timer is None:
            self._timer = self._loop.call_at(attempt.begun_at + self._grace_s, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        young, now = self._young, self._loop.time()
        old = now - self._grace_s
        while young and (young[0].ended or young[0].begun_at <= old):
            attempt = young.popleft()
            if not attempt.ended:
                self._outlived(attempt)
        if young:
            self._timer = self._loop.call_at(max(young[0].begun_at + self._grace_s, now + _grain_s), self._look)
