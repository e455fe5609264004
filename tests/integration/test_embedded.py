"""The embedded stack: real servers that start, answer, stop, and leave nothing behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.embedded import kafka as kafka_server
from holdfast.embedded import leftovers
from holdfast.embedded.errors import EmbeddedError, FolderInUse
from holdfast.embedded.postgres import answers, execute
from holdfast.embedded.stack import Stack
from tests.support.folders import open_folder

MakeStack = Callable[..., Stack]

OWNER = """
import json, sys, time
from pathlib import Path
from holdfast.embedded.stack import Stack
stack = Stack(Path(sys.argv[1]), say=lambda line: None, kafka=sys.argv[2] == "both")
info = stack.start()
pids = [stack.postgres.pid] + ([stack.kafka.pid] if sys.argv[2] == "both" else [])
print(json.dumps({"pids": pids, "postgres": info.postgres, "guard": stack._guard.pid}), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    # These tests are about the servers we start ourselves, whatever the rest of the run uses.
    monkeypatch.delenv("HOLDFAST_POSTGRES", raising=False)
    monkeypatch.delenv("HOLDFAST_KAFKA", raising=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that stays between runs, and goes after the test whatever happened in it."""
    made = open_folder("holdfast-test-")
    yield made
    leftovers.sweep(made)
    leftovers.remove(made)


def owner(folder: Path, what: str = "postgres") -> tuple[subprocess.Popen[str], dict[str, object]]:
    """Another process with a running stack."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(folder), what], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def gone(pids: list[int], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # Held: the request dies with its client.
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)


def test_both_servers_start_answer_and_stop(private_stack: MakeStack) -> None:
    stack = private_stack()
    execute(stack.info.postgres, "CREATE TABLE t AS SELECT 1 AS one")
    create_topic(stack.info.kafka, "t")
    producer = Producer({"bootstrap.servers": stack.info.kafka})
    producer.produce("t", b"hello")
    assert producer.flush(10) == 0
    pids, folder = [stack.postgres.pid, stack.kafka.pid], stack.folder
    assert set(stack.info.chosen) == {"postgres", "kafka"}

    stack.stop()

    assert gone(pids, within_s=1)
    assert not answers(stack.info.postgres)
    assert not folder.exists(), "a temporary stack removes its folder"


def test_postgres_never_runs_as_root(private_stack: MakeStack) -> None:
    stack = private_stack(kafka=False)
    postmaster = psutil.Process(stack.postgres.pid)
    assert all(process.uids().real != 0 for process in [postmaster, *postmaster.children(recursive=True)])


def test_postgres_listens_on_loopback_only_and_wants_the_password(private_stack: MakeStack) -> None:
    stack = private_stack(kafka=False)
    listening = [c.laddr.ip for c in psutil.Process(stack.postgres.pid).net_connections() if c.status == "LISTEN"]
    assert listening == ["127.0.0.1"]
    with pytest.raises(asyncpg.InvalidPasswordError):
        execute(stack.info.postgres.replace("holdfast:", "holdfast:not", 1), "SELECT 1")
    assert (stack.folder / "postgres.password").stat().st_mode & 0o777 == 0o600


def test_two_stacks_run_side_by_side_and_share_nothing(private_stack: MakeStack) -> None:
    one, two = private_stack(kafka=False), private_stack(kafka=False)
    assert one.info.postgres != two.info.postgres
    one.stop()
    assert answers(two.info.postgres)


def test_a_folder_has_one_owner_at_a_time(private_stack: MakeStack) -> None:
    stack = private_stack(kafka=False)
    with pytest.raises(FolderInUse, match=str(os.getpid())):
        Stack(stack.folder, say=lambda _: None, kafka=False).start()
    assert answers(stack.info.postgres)


def test_data_and_addresses_stay_between_runs(private_stack: MakeStack, folder: Path) -> None:
    first = private_stack(folder)
    before = first.info
    execute(before.postgres, "CREATE TABLE kept AS SELECT 1 AS one")
    create_topic(before.kafka, "kept")
    first.stop()

    second = private_stack(folder)

    assert (second.info.postgres, second.info.kafka) == (before.postgres, before.kafka)
    execute(second.info.postgres, "SELECT one FROM kept")
    assert "kept" in AdminClient({"bootstrap.servers": second.info.kafka}).list_topics(timeout=10).topics
    second.stop()


@pytest.mark.parametrize(
    ("how", "what"), [(signal.SIGKILL, "both"), (signal.SIGTERM, "postgres"), (signal.SIGINT, "postgres")]
)
def test_servers_end_with_their_owner_however_it_dies(how: signal.Signals, what: str, folder: Path) -> None:
    process, told = owner(folder, what)
    pids = told["pids"]
    assert isinstance(pids, list)
    process.send_signal(how)
    process.wait(10)
    assert gone(pids)
    assert "database system is shut down" in (folder / "postgres.log").read_text(), "a clean shutdown, not a crash"


def test_a_killed_owner_s_temporary_folder_goes_too(folder: Path) -> None:
    """Also when no server was ours to end: the guard must not take a dying owner for a living one."""
    script = OWNER.replace('kafka=sys.argv[2] == "both"', "kafka=False, temporary=True").replace(
        "stack.postgres.pid", "0"
    )
    settings = {**os.environ, "HOLDFAST_POSTGRES": "postgresql://somewhere/else"}
    for _ in range(5):
        command = [sys.executable, "-c", script, str(folder), "postgres"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings)
        assert process.stdout is not None
        guard = json.loads(process.stdout.readline())["guard"]
        process.kill()
        process.wait(10)
        assert gone([guard])
        assert not folder.exists()


def test_what_a_killed_run_left_is_ended_at_the_next_start(private_stack: MakeStack, folder: Path) -> None:
    process, told = owner(folder)
    pids, guard = told["pids"], told["guard"]
    assert isinstance(pids, list)
    assert isinstance(guard, int)
    os.kill(guard, signal.SIGKILL)  # Nobody is left to clean up.
    process.kill()
    process.wait(10)
    assert all(psutil.pid_exists(pid) for pid in pids)

    stack = private_stack(folder, kafka=False)

    assert gone(pids, within_s=1)
    assert answers(stack.info.postgres)
    stack.stop()


def test_a_reused_pid_is_never_killed(folder: Path) -> None:
    innocent = subprocess.Popen(["sleep", "60"])
    dead = leftovers.Identity(pid=2**22 - 1, started=1.0)
    now = leftovers.Identity.of(innocent.pid)
    for name, server, executable in (
        ("other-start-time", leftovers.Identity(innocent.pid, now.started - 100), "sleep"),
        ("other-command", now, "/usr/bin/postgres"),
    ):
        leftovers.Record(name, server, executable, owner=dead, stop_signal=signal.SIGKILL).write(folder)
    assert leftovers.sweep(folder) == []
    assert innocent.poll() is None
    innocent.kill()
    innocent.wait()


def test_a_frozen_postgres_answers_after_it_is_thawed(private_stack: MakeStack) -> None:
    stack = private_stack(kafka=False)

    async def ask(connection: asyncpg.Connection) -> object:
        return await connection.fetchval("SELECT 1", timeout=1)

    async def check() -> None:
        connection = await asyncpg.connect(stack.info.postgres)
        stack.postgres.pause()
        with pytest.raises(TimeoutError):
            await connection.fetchval("SELECT 1", timeout=1)
        stack.postgres.resume()
        connection.terminate()
        again = await asyncpg.connect(stack.info.postgres)
        assert await ask(again) == 1
        await again.close()

    asyncio.run(check())


def test_a_frozen_kafka_answers_after_it_is_thawed(private_stack: MakeStack) -> None:
    stack = private_stack(postgres=False)
    stack.kafka.pause()
    assert not kafka_server.answers(stack.info.kafka)
    stack.kafka.resume()
    deadline = time.monotonic() + 20
    while not kafka_server.answers(stack.info.kafka):
        assert time.monotonic() < deadline


def test_killed_servers_come_back_on_the_same_port_with_their_data(private_stack: MakeStack) -> None:
    stack = private_stack()
    execute(stack.info.postgres, "CREATE TABLE kept AS SELECT 1 AS one")
    before = [stack.postgres.pid, stack.kafka.pid]
    stack.postgres.kill()
    stack.kafka.kill()
    assert gone(before, within_s=2)
    stack.postgres.restart()
    stack.kafka.restart()
    execute(stack.info.postgres, "SELECT one FROM kept")
    assert kafka_server.answers(stack.info.kafka)


def test_stopping_while_frozen_does_not_hang(private_stack: MakeStack) -> None:
    stack = private_stack(kafka=False)
    pid = stack.postgres.pid
    stack.postgres.pause()
    stack.stop()
    assert gone([pid], within_s=1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that Postgres's user cannot enter")
def test_a_folder_postgres_cannot_enter_puts_its_data_elsewhere(folder: Path) -> None:
    folder.chmod(0o700)
    said: list[str] = []
    stack = Stack(folder, say=said.append, kafka=False, temporary=True)
    with stack:
        assert answers(stack.info.postgres)
        [line] = [line for line in said if "cannot enter" in line]
        elsewhere = Path(line.rsplit(" ", 1)[1])
        assert elsewhere.is_dir()
    assert not elsewhere.exists()


def test_a_server_that_cannot_start_says_why(private_stack: MakeStack, folder: Path) -> None:
    stack = private_stack(folder, kafka=False)
    stack.stop()
    [conf] = folder.glob("postgres/data/postgresql.conf")
    conf.write_text(conf.read_text() + "\nno_such_setting = on\n")
    with pytest.raises(EmbeddedError, match="no_such_setting"):
        Stack(folder, say=lambda _: None, kafka=False).start()
