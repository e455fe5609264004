"""A server as a child process: start, ask until it answers, stop, kill, freeze, thaw, start again.

The child gets its own session, so Ctrl-C reaches us first and we stop it in order; see `leftovers` for what happens
when we do not get the chance.
"""

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import psutil

from holdfast.embedded.account import Account
from holdfast.embedded.errors import EmbeddedError
from holdfast.embedded.leftovers import GRACE_S, Identity, Record, end, forget

Say = Callable[[str], None]

_STARTS_MAX = 3


class Server(ABC):
    """One server of a stack, wherever it runs."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def kill(self) -> None:
        """End it at once, as a crash would."""

    @abstractmethod
    def pause(self) -> None:
        """Freeze it: it holds its connections and answers nothing."""

    @abstractmethod
    def resume(self) -> None: ...

    @property
    @abstractmethod
    def pid(self) -> int: ...

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port and data."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Remove what it keeps outside the stack's folder."""
        return


class LocalServer(Server):
    """A server that is our child process."""

    name: str
    stop_signal: int
    ready_s: float = 60.0

    def __init__(self, folder: Path, say: Say, account: Account | None = None) -> None:
        self.folder = folder
        self.say = say
        self.account = account
        self.log_file = folder / f"{self.name}.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._addressed = False

    @abstractmethod
    def prepare(self) -> None:
        """What must exist before the first start; cheap when it already does."""

    @abstractmethod
    def choose_address(self) -> None:
        """Pick the ports; called before the first start, and again when one was taken under our feet."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server answers a real request now."""

    def working_folder(self) -> Path:
        return self.folder

    @property
    def pid(self) -> int:
        if self._child is None or self._child.poll() is not None:
            raise EmbeddedError(f"{self.name} is not running")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        if self.running:
            return
        self.prepare()
        known = self._addressed
        for attempt in range(1, _STARTS_MAX + 1):
            if not known:
                self.choose_address()
            self._spawn()
            if self._wait_until_ready():
                self._addressed = True
                return
            # Somebody may have taken the port between our look and the server's bind. After the first start the
            # address is a promise, so there is nothing else to try.
            if known or attempt == _STARTS_MAX:
                break
        raise EmbeddedError(f"{self.name} did not come up; the end of {self.log_file}:\n{self._log_tail()}")

    def _spawn(self) -> None:
        command = self.command()
        with self.log_file.open("ab") as log:
            switch = self.account if self.account is not None and self.account.switch else None
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.working_folder(),
                start_new_session=True,
                user=switch.uid if switch else None,
                group=switch.gid if switch else None,
                extra_groups=[] if switch else None,
            )
        Record(
            name=self.name,
            server=Identity.of(self._child.pid),
            executable=command[0],
            owner=Identity.of(os.getpid()),
            stop_signal=self.stop_signal,
        ).write(self.folder)

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + self.ready_s
        while time.monotonic() < deadline:
            if not self.running:
                return False
            if self.answers():
                return True
            time.sleep(0.05)
        self.kill()
        raise EmbeddedError(
            f"{self.name} did not answer within {self.ready_s:.0f} s; the end of {self.log_file}:\n{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-20:])
        return "(no log)"

    def stop(self) -> None:
        self._end(self.stop_signal, GRACE_S)

    def kill(self) -> None:
        self._end(signal.SIGKILL, 5.0)

    def _end(self, how: int, grace_s: float) -> None:
        if self._child is None:
            return
        if self.running:
            end(psutil.Process(self._child.pid), how, grace_s)
        self._child.wait()
        self._child = None
        forget(self.folder, self.name)

    def pause(self) -> None:
        # The parent first: a running postmaster would go on to fork children that we did not stop.
        parent = psutil.Process(self.pid)
        parent.suspend()
        for child in parent.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.suspend()

    def resume(self) -> None:
        parent = psutil.Process(self.pid)
        for child in parent.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.resume()
        parent.resume()


class External(Server):
    """A server that somebody else runs: we use it and never stop it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    @property
    def pid(self) -> int:
        raise self._not_ours()

    def kill(self) -> None:
        raise self._not_ours()

    def pause(self) -> None:
        raise self._not_ours()

    def resume(self) -> None:
        raise self._not_ours()

    def restart(self) -> None:
        raise self._not_ours()

    def _not_ours(self) -> EmbeddedError:
        return EmbeddedError(f"{self.name} is run by somebody else; Holdfast does not kill, freeze or restart it")
