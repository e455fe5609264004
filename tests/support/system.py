"""A whole Holdfast under test: real processes, real Kafka, real Postgres, and what tests ask of them.

Settings are short (leases of a second or two, recovery looks often), so that tests wait for conditions that come soon.
Each test works in a namespace and a queue of its own, so that many share one system.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from holdfast.cli import define as definitions
from holdfast.cli.local import LocalSystem, apart
from holdfast.cli.local_process import LocalProcess
from holdfast.client import Status, SyncClient
from holdfast.client.sync import SyncRun
from holdfast.core.events import Event, Recorded
from holdfast.core.ids import instance_id
from tests.support import shop
from tests.support.folders import open_folder
from tests.support.topics import Topics

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0

SHORT = {
    "HOLDFAST_LEASES_ASK_S": "0.25",
    "HOLDFAST_LEASES_SURVEY_S": "0.5",
    "HOLDFAST_DISPATCHES_EVERY_S": "1",
    "HOLDFAST_DISPATCHES_PATIENCE_S": "2",
    "HOLDFAST_TICKS_EVERY_S": "1",
    "HOLDFAST_TIMERS_CLAIM_S": "2",
    "HOLDFAST_RELAY_LEASE_S": "2",
    "HOLDFAST_PUBLISHER_LEASE_S": "2",
    "HOLDFAST_SESSION_TIMEOUT_S": "6",  # the least that a broker takes
    "HOLDFAST_PARKED_FIRST_DELAY_S": "0.8",
    "HOLDFAST_DRAIN_S": "5",
}

T = TypeVar("T")


class Sql:
    """Postgres with the owner's rights, for plain code: a loop of its own in a thread."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sql", daemon=True)
        self._thread.start()
        self._pool: Any = self.run(self._open())

    async def _open(self) -> Any:
        return await asyncpg.create_pool(self.dsn, min_size=1, max_size=3)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def all(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        return list(self.run(self._pool.fetch(statement, *arguments)))

    def one(self, statement: str, *arguments: Any) -> Any:
        return self.run(self._pool.fetchval(statement, *arguments))

    def do(self, statement: str, *arguments: Any) -> str:
        return str(self.run(self._pool.execute(statement, *arguments)))

    @contextlib.contextmanager
    def transaction(self, statement: str, *arguments: Any) -> Iterator[None]:
        """Run the statement in a transaction that stays open (and keeps its locks) until the block ends."""
        connection = self.run(asyncpg.connect(self.dsn))
        try:
            self.run(connection.execute("BEGIN"))
            self.run(connection.fetch(statement, *arguments))
            yield
            self.run(connection.execute("ROLLBACK"))
        finally:
            self.run(connection.close())

    def close(self) -> None:
        self.run(self._pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class System:
    def __init__(self, local: LocalSystem, sql: Sql, client: SyncClient) -> None:
        self.local = local
        self.sql = sql
        self.client = client
        self.topics = Topics(local.info.kafka)
        self.shop_folder = local.folder / "shop"
        self.shop_folder.mkdir(exist_ok=True)
        self.ledger = shop.Ledger(self.shop_folder)

    # --- processes

    def worker(self, queue: str, name: str, **env: str) -> LocalProcess:
        """A shop worker on this queue; its name is unique by the queue."""
        settings = {shop.FOLDER: str(self.shop_folder), shop.QUEUES: queue, **env}
        target, folder = "tests.support.shop:worker", CHECKOUT
        return self.local.start_worker(target, settings, f"{queue}-{name}", working_folder=folder)

    def holder_of(self, key: str, task: str, attempt: int = 1) -> LocalProcess:
        """The worker that has begun this attempt, by the ledger."""

        def found() -> LocalProcess | None:
            pids = {line.pid for line in self.ledger.lines(key, task, "began") if line.attempt == attempt}
            running = (one for one in self.local.processes if one.kind == "worker" and one.running)
            return next((one for one in running if one.pid in pids), None)

        return self.eventually(found, f"a worker that has begun {task} of {key}")

    def open_gate(self, name: str) -> None:
        (self.shop_folder / f"{name}.go").touch()

    def block_gate(self, name: str) -> None:
        (self.shop_folder / f"{name}.block").touch()

    def cli(self, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast.cli", *arguments]
        env = {**self.local.env, "NO_COLOR": "1", "COLUMNS": "300"}
        return subprocess.run(
            command, env=env, cwd=CHECKOUT, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    # --- workflows

    def define(self, body: Mapping[str, Any]) -> str:
        """Store a definition; returns `namespace/workflow`."""
        name = f"{body['namespace']}-{body['workflow']}-{body['version']}.json"
        file = self.local.folder / name
        file.write_text(json.dumps(body))
        apart(definitions.store([file], self.local.info.kafka, self.local.info.postgres))
        return f"{body['namespace']}/{body['workflow']}"

    def start(self, workflow: str, run_id: str, given: Any = None, **options: Any) -> SyncRun:
        return self.client.start(workflow, run_id=run_id, input=given, **options)

    def history(self, key: str) -> list[Recorded]:
        return self.client.run(key).events()

    def of(self, key: str, kind: type[Event], path: str | None = None) -> list[Any]:
        events = [recorded.event for recorded in self.history(key)]
        return [one for one in events if isinstance(one, kind) and (path is None or getattr(one, "path", None) == path)]

    def wait_event(self, key: str, kind: type[Event], path: str | None = None, **having: Any) -> Any:
        def found() -> Any:
            matching = [
                one
                for one in self.of(key, kind, path)
                if all(getattr(one, name) == value for name, value in having.items())
            ]
            return matching[0] if matching else None

        return self.eventually(found, f"a {kind.__name__} of {key} {path or ''} {having or ''}")

    def finished(self, key: str, timeout_s: float = PATIENCE_S) -> Status:
        return self.client.run(key).finished(timeout_s)

    def row(self, key: str) -> asyncpg.Record | None:
        found = self.sql.all("SELECT * FROM holdfast.workflow_instances WHERE instance_id = $1", instance_id(key))
        return found[0] if found else None

    def command(self, key: str, id: str) -> asyncpg.Record:
        """What is on record about a command, as soon as it is."""
        statement = "SELECT * FROM holdfast.command_log WHERE instance = $1 AND id = $2"
        return self.eventually(lambda: self.sql.all(statement, key, id), f"the outcome of {id} for {key}")[0]

    def dead_letters(self, **having: str) -> list[Any]:
        every = self.topics.read("holdfast.dlq")
        return [one for one in every if all(one.errors.get(name) == value for name, value in having.items())]

    # --- waiting

    def eventually(self, ask: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
        """The first answer that is true; a crash of a service ends the wait."""
        until = time.monotonic() + timeout_s
        while not (answer := ask()):
            for one in self.local.crashed():
                if one.kind != "worker":  # Some tests make workers crash.
                    raise AssertionError(f"{one.name} crashed while waiting for {what}; {one.log_tail()}")
            if time.monotonic() > until:
                raise AssertionError(f"waited {timeout_s:.0f} s for {what}; the last answer was {answer!r}")
            time.sleep(0.05)
        return answer

    def quiet(self, timeout_s: float = PATIENCE_S) -> None:
        """Until every inbox message is decided and every outbox row is published: then checks have a fixed world."""

        def nothing_left() -> bool:
            positions = self.sql.all("SELECT * FROM holdfast.inbox_partitions")
            for topic in ("commands", "reports", "ticks"):
                ends = self.topics.ends(f"holdfast.{topic}")
                if any(row[f"{topic}_next"] != ends[row["partition"]] for row in positions):
                    return False
            return self.sql.one("SELECT count(*) FROM holdfast.outbox") == 0

        self.eventually(nothing_left, "every input decided and every message published", timeout_s)


@contextlib.contextmanager
def running(logs: Path, env: Mapping[str, str] | None = None, **wanted: int) -> Iterator[System]:
    """A system of its own, with servers of its own: tests freeze and kill, so other people's will not do."""
    folder = open_folder("holdfast-test-")
    folder.chmod(0o777)
    with without_servers():
        local = LocalSystem(
            folder,
            env={**SHORT, **(env or {})},
            partitions=4,
            temporary=True,
            logs=logs,
            say=lambda _: None,
            **wanted,
        )
        local.start()
    try:
        sql = Sql(local.info.postgres)
        try:
            with SyncClient.connect(local.info.kafka, local.info.postgres, source="/test") as client:
                yield System(local, sql, client)
        finally:
            sql.close()
    finally:
        local.stop()


@contextlib.contextmanager
def without_servers() -> Iterator[None]:
    """A developer's dev.env, or the shared stack of this run, must not become ours."""
    names = ("HOLDFAST_KAFKA", "HOLDFAST_POSTGRES")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def metric(process: LocalProcess, name: str, label: str = "") -> float:
    """A Prometheus metric of a process, the sum over its labels."""
    with urllib.request.urlopen(f"{process.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and label in line)


def order(namespace: str, queue: str, **overrides: Any) -> dict[str, Any]:
    """Reserve, charge, cool off, ship; ship's failure undoes charge and reserve. Tasks may be overridden by name."""
    retry = {"max_attempts": 4, "initial": "PT0.2S", "factor": 1.5, "cap": "PT1S", "jitter": 0.2}
    common = {"activity": "shop.do", "queue": queue, "lease": "PT2S", "timeout": "PT60S", "retry": retry}
    tasks: dict[str, Any] = {
        "reserve": {**common, "compensate": "release"},
        "charge": {**common, "after": ["reserve"], "compensate": "refund"},
        "cool_off": {"sleep": "PT0.3S", "after": ["charge"]},
        "ship": {**common, "after": ["cool_off"]},
        "release": {**common, "compensation": True},
        "refund": {**common, "compensation": True},
    }
    for name, changes in overrides.items():
        tasks[name] = {**tasks.get(name, {}), **changes}
    return {
        "namespace": namespace,
        "workflow": "order",
        "version": 1,
        "deadline": "PT10M",
        "tasks": tasks,
        "output": "{'shipped': tasks.ship.output}",
    }


def one_task(namespace: str, queue: str, **task: Any) -> dict[str, Any]:
    """A workflow of a single task, `work`, with a lease of two seconds."""
    retry = {"max_attempts": 3, "initial": "PT0.2S", "factor": 1.0, "cap": "PT1S", "jitter": 0.0}
    given = {"activity": "shop.do", "queue": queue, "lease": "PT2S", "timeout": "PT60S", "retry": retry, **task}
    body = {"namespace": namespace, "workflow": "single", "version": 1, "tasks": {"work": given}}
    return {**body, "output": "tasks.work.output"}
