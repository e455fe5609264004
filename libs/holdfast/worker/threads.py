"""A bounded pool of daemon threads. Not concurrent.futures: its threads keep a process from ending, and an activity
that hangs must not be able to do that to a worker that is told to go."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from holdfast.worker.attempt import Attempt
from holdfast.worker.outcome import Outcome, failure

_log = logging.getLogger(__name__)


class Runner(Protocol):
    """What one thread of a pool does with an attempt. `close` is called on the event loop."""

    def run(self, attempt: Attempt) -> Outcome: ...

    def close(self) -> None: ...


class ThreadPool:
    """`finished` is called on the loop. Results of many threads wake the loop once."""

    def __init__(
        self,
        name: str,
        threads_max: int,
        make: Callable[[], Runner],
        finished: Callable[[Attempt, Outcome | None], None],
    ) -> None:
        self._name = name
        self._max = threads_max
        self._make = make
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Attempt | None] = SimpleQueue()
        self._runners: list[Runner] = []
        self._busy = 0
        self._results: deque[tuple[Attempt, Outcome | None]] = deque()
        self._scheduled = False

    def submit(self, attempt: Attempt) -> None:
        """At most as many as there are slots in the worker are ever waiting here."""
        self._busy += 1
        if self._busy > len(self._runners) < self._max:
            runner = self._make()
            self._runners.append(runner)
            name = f"holdfast-{self._name}-{len(self._runners)}"
            threading.Thread(target=self._serve, args=(runner,), name=name, daemon=True).start()
        self._queue.put(attempt)

    def close(self) -> None:
        """Idle threads end; a busy one ends with its call, or with the process."""
        for runner in self._runners:
            self._queue.put(None)
            runner.close()

    def _serve(self, runner: Runner) -> None:
        while (attempt := self._queue.get()) is not None:
            outcome: Outcome | None = None
            if attempt.stop is None:  # Told to stop while it waited for a thread: it never runs.
                attempt.entered = True
                try:
                    outcome = runner.run(attempt)
                except BaseException as problem:
                    _log.exception("running %s failed outside the activity", attempt.dispatch.activity)
                    outcome = failure(problem)
            self._results.append((attempt, outcome))
            if not self._scheduled:  # Set before it is read by `_hand_over`, so nothing is left behind.
                self._scheduled = True
                try:
                    self._loop.call_soon_threadsafe(self._hand_over)
                except RuntimeError:
                    return  # The loop is closed: the worker is gone.

    def _hand_over(self) -> None:
        self._scheduled = False
        results = self._results
        while results:
            attempt, outcome = results.popleft()
            self._busy -= 1
            self._finished(attempt, outcome)
