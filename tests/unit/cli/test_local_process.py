"""A process by its name: ready, killed, frozen, crashed, and never left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.cli.local_process import LocalFailed, LocalProcess
from holdfast.embedded.ports import free_ports

SERVER = """
import http.server, os, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
        if self.path == "/die":
            os._exit(9)
    def log_message(self, *_): pass
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["HOLDFAST_HEALTH_PORT"])), Answer).serve_forever()
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[LocalProcess]:
    yield from started(tmp_path, SERVER)


def started(folder: Path, code: str) -> Iterator[LocalProcess]:
    port = free_ports(1)[0]
    env = {**os.environ, "HOLDFAST_HEALTH_PORT": str(port)}
    one = LocalProcess("relay-1", "relay", ("-c", code), env, folder, folder / "logs" / "relay-1.log", port)
    one.start()
    yield one
    one.stop(5.0)


def status(pid: int) -> str:
    return str(psutil.Process(pid).status())


def test_it_becomes_ready_and_keeps_a_log(process: LocalProcess) -> None:
    process.wait_ready(10)
    assert process.running
    assert "serving" in process.log_file.read_text()


def test_killed_is_not_crashed_and_it_can_start_again(process: LocalProcess) -> None:
    process.wait_ready(10)
    before = process.pid
    process.kill()
    assert not process.running
    assert not process.crashed
    assert process.exit_code == -signal.SIGKILL
    process.start()
    process.wait_ready(10)
    assert process.pid != before
    assert process.starts == 2


def test_frozen_it_does_not_answer_and_thawed_it_does(process: LocalProcess) -> None:
    process.wait_ready(10)
    process.freeze()
    assert status(process.pid) == psutil.STATUS_STOPPED
    assert not process.ready(timeout_s=0.2)
    process.thaw()
    process.wait_ready(10)


def test_a_frozen_process_can_be_stopped(process: LocalProcess) -> None:
    process.wait_ready(10)
    process.freeze()
    began = time.monotonic()
    process.stop(10.0)
    assert not process.running
    assert time.monotonic() - began < 5


def test_a_crash_is_seen(process: LocalProcess) -> None:
    process.wait_ready(10)
    os.kill(process.pid, signal.SIGKILL)
    until = time.monotonic() + 5
    while not process.crashed and time.monotonic() < until:
        time.sleep(0.01)
    assert process.crashed


def test_one_that_ends_before_it_is_ready_shows_the_end_of_its_log(tmp_path: Path) -> None:
    for one in started(tmp_path, "print('the port is taken'); raise SystemExit(7)"):
        with pytest.raises(LocalFailed, match=r"(?s)code 7.*the port is taken"):
            one.wait_ready(10)


def test_two_starts_at_once_are_refused(process: LocalProcess) -> None:
    with pytest.raises(LocalFailed, match="already running"):
        process.start()


def test_it_is_recorded_for_the_guard_while_it_runs(process: LocalProcess, tmp_path: Path) -> None:
    record = tmp_path / "relay-1.process.json"
    assert record.exists()
    process.stop(5.0)
    assert not record.exists()


def test_what_a_killed_parent_leaves_behind_is_swept(tmp_path: Path) -> None:
    parent = textwrap.dedent(
        f"""
        import os, sys, time
        from pathlib import Path
        from holdfast.cli.local_process import LocalProcess
        folder = Path({str(tmp_path)!r})
        one = LocalProcess("relay-1", "relay", ("-c", "import time; time.sleep(600)"), os.environ, folder,
                           folder / "relay-1.log", 1)
        one.start()
        print(one.pid, flush=True)
        time.sleep(600)
        """
    )
    running = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    orphan = int(running.stdout.readline())
    running.kill()
    running.wait()
    assert psutil.pid_exists(orphan)

    from holdfast.embedded.leftovers import sweep

    assert sweep(tmp_path) == ["relay-1"]
    assert not psutil.pid_exists(orphan) or status(orphan) == psutil.STATUS_ZOMBIE
