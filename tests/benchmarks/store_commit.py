"""What one commit costs: steps/s, Postgres CPU and Python CPU per step, for batches of several sizes.

    python -m tests.benchmarks.store_commit --dsn postgresql://... [--seconds 5] [--sizes 1,20,100,500]

Without `--dsn` an embedded Postgres is started. A step is one input of the three-step order saga: about 3.3 events, one
instance row, one or two task rows, its share of an outbox row that is published and deleted; every fourth one starts
an instance (with a command and a deadline timer).
"""

import argparse
import contextlib
import hashlib
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import psutil
import uvloop

from holdfast.core import events as e
from holdfast.core.changes import Changes, InstanceRow, TaskRow, TimerRow
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath, instance_id
from holdfast.core.inputs import ActorType, Origin
from holdfast.core.transitions import TaskStatus, WorkflowState
from holdfast.embedded.postgres import at, execute
from holdfast.embedded.stack import Stack
from holdfast.store.migrate import ensure_partitions, migrate
from holdfast.store.pack import pack
from holdfast.store.pool import open_database
from holdfast.store.postgres_coordinator import PostgresCoordinatorStore
from holdfast.store.rows import Claim, CommandKey, CommandRow, Commit, PartitionAdvance

PARTITIONS = 6
PATHS = [TaskPath("reserve"), TaskPath("charge"), TaskPath("ship")]
INPUT = Payload(b'{"order":"o-12345","amount":99,"items":[{"sku":"A-1","count":2},{"sku":"B-7","count":1}]}')
OUTPUT = Payload(b'{"reservation":"r-8841","at":"2026-01-01T00:00:00Z"}')
MESSAGE = b"x" * 450


class Saga:
    """One instance on its way through the saga: each call is the next step."""

    def __init__(self, number: int, run: str) -> None:
        self.key = InstanceKey(f"orders/order-fulfillment/{run}-{number}")
        self.id = InstanceId(instance_id(self.key))
        self.step = 0
        self.sequence = 0
        self.home = number % PARTITIONS

    def advance(self, now: datetime, commit: Commit) -> int:
        origin = Origin(
            ActorType.WORKER,
            "worker-1",
            f"holdfast.reports/3/{self.sequence}",
            "4bf92f3577b34da6a3ce929d0e0e4736",
            "00f067aa0ba902b7",
        )
        events: list[e.Event] = []
        tasks: list[TaskRow] = []
        state, done, new = WorkflowState.RUNNING, None, self.step == 0
        if new:
            events += [e.WorkflowCreated("orders", "order-fulfillment", 1, self.key, INPUT), e.WorkflowStarted()]
        else:
            path = PATHS[self.step - 1]
            events.append(e.TaskCompleted(path, 1, self.step, OUTPUT))
            tasks.append(TaskRow(path, 1, 1, TaskStatus.COMPLETED, self.step, "orders", f"orders.{path}", ended_at=now))
        if self.step < 3:
            path = PATHS[self.step]
            events.append(e.TaskScheduled(path, 1, self.step + 1, f"orders.{path}", "orders", INPUT))
            events.append(e.TimerScheduled(f"queue:{path}", self.sequence, now + timedelta(hours=1)))
            tasks.append(
                TaskRow(path, 1, 1, TaskStatus.QUEUED, self.step + 1, "orders", f"orders.{path}", queued_at=now)
            )
        else:
            events += [e.WorkflowCompleting(OUTPUT), e.WorkflowCompleted(), e.TimerCancelled("deadline", 1)]
            state, done = WorkflowState.COMPLETED, now
        recorded = [Recorded(self.sequence + i, 1, event, now, origin) for i, event in enumerate(events, 1)]
        changes = Changes(
            InstanceRow(
                self.id,
                self.key,
                1,
                state,
                1,
                self.sequence + len(events),
                self.step + 1,
                "tasks",
                None,
                now if new else None,
                now,
                done,
            ),
            self.sequence,
            recorded,
            {(1, task.path, 1): task for task in tasks},
        )
        if new:
            changes.timers["deadline"] = TimerRow("deadline", 1, now + timedelta(hours=1))
            commit.homes[self.id] = self.home
            key = CommandKey(self.id, "/shop", f"c-{self.key}")
            commit.commands.append(
                CommandRow(key, self.key, "start", hashlib.sha256(self.key.encode()).digest(), "accepted", "", now)
            )
        elif done:
            changes.timers["deadline"] = None
        commit.changes.append(changes)
        self.sequence += len(events)
        self.step += 1
        return len(events) + 1


def sagas(run: str) -> Iterator[Saga]:
    number = 0
    while True:
        yield Saga(number, run)
        number += 1


class Driver:
    def __init__(self, claims: list[Claim]) -> None:
        self.source = sagas(uuid.uuid4().hex[:8])
        self.open: list[Saga] = []
        self.rows = {claim.partition: claim for claim in claims}
        self.position = {claim.partition: claim.commands_next for claim in claims}
        self.number = {claim.partition: claim.outbox_last for claim in claims}
        self.now = claims[0].now

    def batch(self, size: int) -> Commit:
        commit = Commit([], self.now, "coordinator bench")
        while len(self.open) < size * 4:
            fresh = next(self.source)
            fresh.step = 0
            self.open.append(fresh)
        chosen, self.open = self.open[:size], self.open[size:]
        messages: dict[int, int] = {}
        inputs: dict[int, int] = {}
        for saga in chosen:
            messages[saga.home] = messages.get(saga.home, 0) + saga.advance(self.now, commit)
            inputs[saga.home] = inputs.get(saga.home, 0) + 1
            if saga.step < 4:
                self.open.append(saga)
        for partition, count in messages.items():
            claim, start, done = self.rows[partition], self.position[partition], self.number[partition]
            commit.partitions.append(
                PartitionAdvance(
                    partition,
                    claim.epoch,
                    start,
                    start + inputs[partition],
                    0,
                    0,
                    0,
                    0,
                    done + 1,
                    MESSAGE * count,
                    claim.publisher_epoch,
                    done,
                )
            )
            self.position[partition] += inputs[partition]
            self.number[partition] += 1
        return commit


async def measure(dsn: str, sizes: list[int], seconds: float) -> None:
    await migrate(dsn)
    await ensure_partitions(dsn, PARTITIONS)
    database = await open_database(dsn, "bench", connections_max=1)
    store = PostgresCoordinatorStore(database)
    backend = psutil.Process(await database.fetchval("SELECT pg_backend_pid()")) if "127.0.0.1" in dsn else None
    driver = Driver(await store.claim(range(PARTITIONS), "bench", publish=True, publisher_lease_s=30))
    print(
        f"{'steps/commit':>12} {'steps/s':>9} {'ms/commit':>10} {'pg CPU us/step':>15} {'pack us/step':>13} "
        f"{'asyncpg us/step':>16}"
    )
    for size in sizes:
        await _one(store, driver, backend, size, seconds)
    await database.close()


async def _one(
    store: PostgresCoordinatorStore, driver: Driver, backend: psutil.Process | None, size: int, seconds: float
) -> None:
    for _ in range(3):
        await store.commit(driver.batch(size))
    steps, commits, wall, python = 0, 0, 0.0, 0.0
    before = sum(backend.cpu_times()[:2]) if backend else 0.0
    packing = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        commit = driver.batch(size)
        if commits % 10 == 0:
            start = time.process_time()
            pack(commit)
            packing += (time.process_time() - start) * 10
        cpu, start = time.process_time(), time.perf_counter()
        committed = await store.commit(commit)
        wall += time.perf_counter() - start
        python += time.process_time() - cpu
        driver.now = committed.now
        steps += size
        commits += 1
    used = sum(backend.cpu_times()[:2]) - before if backend else 0.0
    print(
        f"{size:>12} {steps / wall:>9,.0f} {wall / commits * 1e3:>10.2f} {used / steps * 1e6:>15.1f} "
        f"{packing / steps * 1e6:>13.1f} {(python - packing) / steps * 1e6:>16.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sizes", default="1,20,100,500")
    chosen = parser.parse_args()
    with contextlib.ExitStack() as running:
        if chosen.dsn is None:
            folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
            folder.chmod(0o755)
            stack = running.enter_context(Stack(folder, say=print, kafka=False, temporary=True))
            chosen.dsn = stack.info.postgres
        name = f"bench_{uuid.uuid4().hex[:8]}"
        execute(chosen.dsn, f"CREATE DATABASE {name} TEMPLATE template0")
        running.callback(execute, chosen.dsn, f"DROP DATABASE {name} WITH (FORCE)")
        sizes = [int(size) for size in chosen.sizes.split(",")]
        try:
            uvloop.run(measure(at(chosen.dsn, name), sizes, chosen.seconds))
        except asyncpg.PostgresError as error:
            raise SystemExit(f"{type(error).__name__}: {error}") from error


if __name__ == "__main__":
    main()
