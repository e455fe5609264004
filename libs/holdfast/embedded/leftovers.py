"""Which servers we started, who owns them, and how to end them once their owner is gone.

Each server leaves a record in its stack's folder. A record names the process so exactly (pid, start time, command)
that a reused pid can never be mistaken for it: only what we started is ever killed. `sweep` ends the servers of dead
owners; it runs at every start, and in the guard: this very file, run as a small process per stack that waits for
its owner to die, however that happens. The guard exists because PR_SET_PDEATHSIG follows the starting *thread*,
not the process, and gives no chance of a clean shutdown. The file imports nothing of Holdfast so that it stays small.
"""

import contextlib
import json
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

GRACE_S = 15.0
ALL_STOPPED = b"all stopped"
_SUFFIX = ".process.json"
_ELSEWHERE = "elsewhere.json"


@dataclass(frozen=True)
class Identity:
    """A process that cannot be mistaken for another: pids are reused, pid and start time together are not."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> "Identity":
        return cls(pid, psutil.Process(pid).create_time())

    def process(self) -> psutil.Process | None:
        """The living process, or None when it has ended (or was only waiting to be reaped)."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 0.05
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


@dataclass(frozen=True)
class Record:
    """One server we started."""

    name: str
    server: Identity
    executable: str
    owner: Identity
    stop_signal: int

    def write(self, folder: Path) -> None:
        target = folder / f"{self.name}{_SUFFIX}"
        draft = target.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(target)

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        try:
            raw = json.loads(path.read_text())
            return cls(
                name=raw["name"],
                server=Identity(**raw["server"]),
                executable=raw["executable"],
                owner=Identity(**raw["owner"]),
                stop_signal=raw["stop_signal"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def running(self) -> psutil.Process | None:
        process = self.server.process()
        if process is None:
            return None
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            return process if command and command[0] == self.executable else None
        return None


def forget(folder: Path, name: str) -> None:
    (folder / f"{name}{_SUFFIX}").unlink(missing_ok=True)


def end(process: psutil.Process, stop_signal: int, grace_s: float = GRACE_S) -> None:
    """Ask politely, then kill; with the children, because Postgres's outlive a killed postmaster for a moment."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = process.children(recursive=True)
        for stopped in [process, *children]:
            with contextlib.suppress(psutil.NoSuchProcess):
                stopped.send_signal(signal.SIGCONT)
        process.send_signal(stop_signal)
        _, alive = psutil.wait_procs([process, *children], timeout=grace_s)
        for one in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(alive, timeout=5)


def sweep(folder: Path) -> list[str]:
    """End the servers in this folder whose owner is gone; returns their names."""
    ended: list[str] = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        record = Record.read(path)
        if record is None or record.owner.process() is None:
            process = record.running() if record else None
            if record and process:
                end(process, record.stop_signal)
                ended.append(record.name)
            path.unlink(missing_ok=True)
    return ended


def note_elsewhere(folder: Path, other: Path) -> None:
    """Remember a folder outside this one that belongs to it."""
    (folder / _ELSEWHERE).write_text(json.dumps(str(other)))


def remove(folder: Path) -> None:
    """Remove a stack's folder and what it keeps elsewhere."""
    with contextlib.suppress(OSError, ValueError):
        shutil.rmtree(json.loads((folder / _ELSEWHERE).read_text()), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _guard(folder: Path, owner: Identity, temporary: bool) -> None:
    # Whoever signals our session means the owner; we end when it has ended, not before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Ends when the owner closes it or dies; only a living owner can have said that it stopped everything itself.
    if sys.stdin.buffer.read() == ALL_STOPPED:
        return
    deadline = time.monotonic() + GRACE_S
    while owner.process() is not None and time.monotonic() < deadline:
        time.sleep(0.05)  # A dying process closes its files a moment before it is gone.
    sweep(folder)
    if temporary and owner.process() is None:
        remove(folder)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), Identity(int(sys.argv[2]), float(sys.argv[3])), sys.argv[4] == "temporary")
