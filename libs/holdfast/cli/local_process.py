"""One service or worker as a real process that can be killed, frozen, thawed and started again by its name.

Each child gets its own session, so that Ctrl-C reaches the parent first and the parent stops everything in order. A
record in the stack's folder (holdfast.embedded.leftovers) lets the stack's guard end the child when the parent dies
without the chance to do so.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from holdfast.core.errors import HoldfastError
from holdfast.embedded.leftovers import Identity, Record, end, forget

_LOG_TAIL_LINES = 8
_FREEZE_S = 2.0


class LocalFailed(HoldfastError):
    """A process of the local system did not do what it should; the message has the end of its log."""


@dataclass
class LocalProcess:
    """What is needed to start the process, and the process once it runs."""

    name: str
    kind: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path  # the stack's, where the guard looks
    log_file: Path
    port: int
    working_folder: Path | None = None
    starts: int = 0
    stopping: bool = False  # an end is expected: by us, not by a crash
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        if self._child is None:
            raise LocalFailed(f"{self.name} is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._child is None else self._child.poll()

    @property
    def crashed(self) -> bool:
        """It ended, and nobody here asked it to."""
        return self._child is not None and not self.running and not self.stopping

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """CPU seconds of the process and its living children, for benchmarks."""
        process = psutil.Process(self.pid)
        times = [one.cpu_times() for one in [process, *process.children(recursive=True)]]
        return float(sum(one.user + one.system for one in times))

    def start(self) -> None:
        if self.running:
            raise LocalFailed(f"{self.name} is already running")
        self.stopping = False
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, *self.arguments],
                env=dict(self.env),
                cwd=self.working_folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.starts += 1
        with contextlib.suppress(psutil.NoSuchProcess):
            server, owner = Identity.of(self._child.pid), Identity.of(os.getpid())
            Record(self.name, server, sys.executable, owner, signal.SIGTERM).write(self.folder)

    def stop(self, grace_s: float) -> None:
        """Ask it to drain, wait, then kill. A frozen process is thawed first, or it could not obey."""
        self.stopping = True
        if self._child is not None:
            if self.running:
                end(psutil.Process(self._child.pid), signal.SIGTERM, grace_s)
            self._child.wait()
        forget(self.folder, self.name)

    def kill(self) -> None:
        """SIGKILL, with its children: a worker's process pool would otherwise finish the task of a dead parent."""
        self.stopping = True
        for one in reversed(self._family()):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        if self._child is not None:
            self._child.wait()
        forget(self.folder, self.name)

    def freeze(self) -> None:
        """SIGSTOP, and wait until it has taken effect: afterwards it does nothing more."""
        for one in self._family():
            one.suspend()
            until = time.monotonic() + _FREEZE_S
            while one.status() != psutil.STATUS_STOPPED and time.monotonic() < until:
                time.sleep(0.001)

    def thaw(self) -> None:
        for one in reversed(self._family()):
            one.resume()

    def _family(self) -> list[psutil.Process]:
        """The process and its children; the parent first, so that it forks nothing more while we go on."""
        if not self.running:
            return []
        process = psutil.Process(self.pid)
        return [process, *process.children(recursive=True)]

    def ready(self, timeout_s: float = 1.0) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=timeout_s) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def wait_ready(self, timeout_s: float, *, give_up: Callable[[], bool] = lambda: False) -> None:
        until = time.monotonic() + timeout_s
        while not self.ready():
            if not self.running:
                raise LocalFailed(f"{self.name} ended with code {self.exit_code}; {self.log_tail()}")
            if give_up() or time.monotonic() > until:
                raise LocalFailed(f"{self.name} was not ready within {timeout_s:.0f} s; {self.log_tail()}")
            time.sleep(0.05)

    def log_tail(self) -> str:
        """The end of the log, as part of an error message."""
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        except OSError:
            lines = []
        return "\n".join([f"the end of {self.log_file}:", *(f"  {line}" for line in lines)])
