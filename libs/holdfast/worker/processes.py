"""Child processes for activities that keep the CPU busy, from the parent's side.

A child belongs to one thread of a pool, which talks to it and waits; so a child that dies fails the one attempt it was
running (`process_died`) and the next attempt gets a new child. Children are spawned, never forked: the parent has
threads of librdkafka, and a fork would inherit their locks. Cancellations go through a pipe of their own, which the
child reads at any time, with messages so small that writing never blocks the event loop.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from holdfast.core.inputs import Error
from holdfast.worker.attempt import Attempt
from holdfast.worker.child import Beat, Cancel, ChildLogs, Request, serve
from holdfast.worker.outcome import Failed, Outcome

_log = logging.getLogger(__name__)
_spawn = multiprocessing.get_context("spawn")
_reason_chars_max = 500


class ChildRunner:
    """One child at a time, started when there is something to run."""

    def __init__(self, logs: ChildLogs) -> None:
        self._logs = logs
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._control: Connection | None = None
        self._control_lock = threading.Lock()
        self._number = 0
        self._current: Attempt | None = None

    def run(self, attempt: Attempt) -> Outcome:
        activity = attempt.activity
        assert activity is not None
        self._number += 1
        try:
            pipe = self._running_child()
            self._current = attempt
            attempt.child = self
            module, qualname = activity.fn.__module__, activity.fn.__qualname__
            pipe.send(Request(self._number, module, qualname, activity.name, attempt.dispatch))
            if attempt.cancelled is not None:
                self.cancel(attempt, attempt.cancelled)  # Came before there was a child to tell.
            while True:
                answer = pipe.recv()
                if not isinstance(answer, Beat):
                    outcome: Outcome = answer
                    return outcome
                attempt.beat(answer.details)
        except (EOFError, OSError):
            return self._died(activity.name)
        finally:
            self._current = attempt.child = None

    def cancel(self, attempt: Attempt, reason: str) -> None:
        """Called on the loop, or by the thread itself."""
        with self._control_lock, contextlib.suppress(OSError):
            if self._current is attempt and self._control is not None:
                self._control.send(Cancel(self._number, reason[:_reason_chars_max]))

    def close(self) -> None:
        """The child sees the end of its pipe and goes; one that hangs is killed."""
        process = self._process
        if process is not None and process.is_alive():
            process.kill()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def _running_child(self) -> Connection:
        if self._pipe is not None and self._process is not None and self._process.is_alive():
            return self._pipe
        self._bury()
        pipe, far_pipe = _spawn.Pipe()
        far_control, control = _spawn.Pipe(duplex=False)
        # Not a daemon, because those may have no children of their own; so it is on us to end it at exit.
        process = _spawn.Process(
            target=serve, args=(far_pipe, far_control, self._logs), name="holdfast-activity", daemon=False
        )
        process.start()
        atexit.register(self.close)
        far_pipe.close()  # Ours would keep the pipe open after the child's death.
        far_control.close()
        self._process, self._pipe, self._control = process, pipe, control
        return pipe

    def _died(self, activity: str) -> Outcome:
        process = self._process
        how = "could not be started"
        if process is not None:
            process.join(5.0)
            how = _how_it_died(process.exitcode)
        self._bury()
        _log.error("the child process that ran %s %s", activity, how)
        return Failed(Error("process_died", f"the child process that ran the activity {how}"))

    def _bury(self) -> None:
        with self._control_lock:
            for pipe in (self._pipe, self._control):
                if pipe is not None:
                    pipe.close()
            self._pipe = self._control = None
        atexit.unregister(self.close)
        if self._process is not None:
            if self._process.is_alive():
                self._process.kill()
            self._process.join(5.0)
            self._process = None


def _how_it_died(code: int | None) -> str:
    if code is None:
        return "closed its pipe without ending"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
