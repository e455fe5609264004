"""A child process that runs activities, from the inside. It knows nothing of Kafka: requests in, outcomes out."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

from holdfast.core.changes import Dispatch
from holdfast.core.ids import Payload
from holdfast.kit.logging import LogFormat, configure
from holdfast.worker.activity import Activity, find_activity
from holdfast.worker.calls import call
from holdfast.worker.context import ActivityContext
from holdfast.worker.outcome import Outcome, failure

ChildLogs: TypeAlias = tuple[str, str, LogFormat]
"""The holder, and how its log lines look: a child's look the same."""


class Request(NamedTuple):
    number: int
    module: str
    qualname: str
    activity: str
    dispatch: Dispatch


class Beat(NamedTuple):
    details: Payload


class Cancel(NamedTuple):
    number: int
    reason: str


class ChildLink:
    """The context's way back to the parent."""

    def __init__(self, pipe: Connection, lock: threading.Lock, control: _Control, number: int) -> None:
        self._pipe = pipe
        self._lock = lock
        self._control = control
        self._number = number
        self._begun_at = time.monotonic()

    @property
    def cancelled(self) -> str | None:
        last = self._control.last
        return last.reason if last is not None and last.number == self._number else None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun_at

    def beat(self, details: Payload | None) -> bool:
        # Without details there is nothing to tell: the parent keeps the lease alive.
        if details is not None:
            with self._lock:  # The activity may have threads of its own.
                self._pipe.send(Beat(details))
        return self.cancelled is None


class _Control(threading.Thread):
    """Listens for cancellations while the activity runs."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(name="holdfast-control", daemon=True)
        self._pipe = pipe
        self.last: Cancel | None = None

    def run(self) -> None:
        try:
            while True:
                self.last = self._pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # The parent is gone, and with it everyone who could use the result.


def serve(pipe: Connection, control_pipe: Connection, logs: ChildLogs) -> None:
    holder, level, style = logs
    configure("worker", holder, level=level, style=style)
    # Ctrl-C and a service manager's SIGTERM reach the whole group; the parent drains, so we must live until it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control = _Control(control_pipe)
    control.start()
    lock = threading.Lock()
    while True:
        try:
            request: Request = pipe.recv()
        except (EOFError, OSError):
            return
        link = ChildLink(pipe, lock, control, request.number)
        outcome = _run(request, link)
        with lock:
            pipe.send(outcome)


def _run(request: Request, link: ChildLink) -> Outcome:
    try:
        activity = _find(request.module, request.qualname, request.activity)
    except Exception as problem:
        return failure(problem)
    return call(activity, ActivityContext(request.dispatch, link), request.dispatch.input)


@cache
def _find(module: str, qualname: str, name: str) -> Activity[..., Any]:
    return find_activity(importlib.import_module(module), qualname, name)
