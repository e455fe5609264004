"""One stack for all workers of a pytest-xdist run.

The first worker that needs servers starts this file as a process of its own, under a file lock; the others find its
addresses. It ends, servers and folder with it, when the run's controller ends, however that happens.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from holdfast.embedded.leftovers import Identity
from holdfast.embedded.stack import Stack
from tests.support.folders import open_folder

_CHECKOUT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def addresses(run: str, wanted: set[str]) -> dict[str, str]:
    """Settings with the addresses of the run's servers, started now if we are the first."""
    note = Path(tempfile.gettempdir()) / f"holdfast-test-{run}.json"
    with note.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            _start_keeper(note, wanted)
    return dict(json.loads(note.read_text()))


def _start_keeper(note: Path, wanted: set[str]) -> None:
    controller = Identity.of(os.getppid())
    command = [sys.executable, "-m", "tests.support.shared", str(note), str(controller.pid), repr(controller.started)]
    log = note.with_suffix(".log")
    with log.open("w") as out:
        keeper = subprocess.Popen(
            [*command, *sorted(wanted)], stdout=out, stderr=out, start_new_session=True, cwd=_CHECKOUT
        )
    while not note.exists():
        if keeper.poll() is not None:
            raise RuntimeError(f"no servers for this run:\n{log.read_text()}")
        time.sleep(0.1)


def _keep(note: Path, controller: Identity, wanted: set[str]) -> None:
    folder = open_folder("holdfast-test-")
    try:
        with Stack(
            folder, postgres="HOLDFAST_POSTGRES" in wanted, kafka="HOLDFAST_KAFKA" in wanted, temporary=True
        ) as stack:
            found = {"HOLDFAST_POSTGRES": stack.info.postgres, "HOLDFAST_KAFKA": stack.info.kafka}
            draft = note.with_suffix(".draft")
            draft.write_text(json.dumps({name: value for name, value in found.items() if name in wanted}))
            draft.replace(note)
            while controller.process() is not None:
                time.sleep(0.3)
    finally:
        for suffix in (".json", ".lock", ".log"):
            note.with_suffix(suffix).unlink(missing_ok=True)


if __name__ == "__main__":
    with contextlib.suppress(psutil.NoSuchProcess):
        _keep(Path(sys.argv[1]), Identity(int(sys.argv[2]), float(sys.argv[3])), set(sys.argv[4:]))
