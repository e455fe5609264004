"""`Worker`: which activities a process offers, and how many at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from holdfast.contracts.topics import check_queue
from holdfast.worker.activity import Activity, RunIn


class Worker:
    """`Worker([charge, refund], concurrency=100)`, run with `holdfast worker shop.worker:worker` or `worker.run()`.

    It reads the queues of its activities (the first part of their names), or those given. `threads` bounds the sync
    activities that run at once, `processes` those with `run_in="process"`; both count within `concurrency`.
    """

    def __init__(
        self,
        activities: Iterable[Activity[..., Any]],
        *,
        concurrency: int = 100,
        queues: Iterable[str] | None = None,
        threads: int | None = None,
        processes: int | None = None,
    ) -> None:
        self.activities: dict[str, Activity[..., Any]] = {}
        for each in activities:
            self._add(each)
        if not self.activities:
            raise ValueError("a worker needs at least one activity")
        if queues is None:
            queues = {each.queue for each in self.activities.values()}
        elif isinstance(queues, str):
            raise TypeError(f"queues is a list of names, not one name: use queues=[{queues!r}]")
        self.queues = tuple(sorted({check_queue(queue) for queue in queues}))
        if not self.queues:
            raise ValueError("a worker needs at least one queue")
        self.concurrency = _positive("concurrency", concurrency)
        self.threads = _positive("threads", concurrency if threads is None else threads)
        self.processes = _positive("processes", (os.cpu_count() or 1) if processes is None else processes)

    def _add(self, each: Activity[..., Any]) -> None:
        if not isinstance(each, Activity):
            raise TypeError(f'{each!r} is no activity: decorate it with @activity("area.verb")')
        if each.name in self.activities:
            raise ValueError(f"two activities are named {each.name!r}")
        each.prepare()
        self.activities[each.name] = each

    def limit(self, concurrency: int) -> None:
        """What whoever deploys it says, instead of what is written in the code."""
        self.concurrency = _positive("concurrency", concurrency)

    def __repr__(self) -> str:
        return f"<Worker of {', '.join(self.activities)} on {', '.join(self.queues)}>"

    @property
    def uses_processes(self) -> bool:
        return any(each.run_in is RunIn.PROCESS for each in self.activities.values())

    def run(self) -> int:
        """Run until SIGTERM or Ctrl-C, with settings from the environment; returns the exit code."""
        from holdfast.worker.service import run_worker  # the service imports this module

        return run_worker(self)


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value
