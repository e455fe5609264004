"""The coordinator's part, played by a test on real Kafka: writes dispatches, reads reports, watches offsets."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.contracts.messages import decode_report, encode_cancellation, encode_task
from holdfast.contracts.topics import CANCELLATIONS, DLQ, REPORTS, task_topic, worker_group
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.ids import InstanceKey, Payload, TaskPath, instance_id
from holdfast.core.inputs import Report
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.kafka_tail import KafkaTail
from holdfast.log.protocol import Message, TopicPartition, TopicSpec

patience_s = 60.0


async def until(holds: Callable[[], Any], what: Callable[[], object] = lambda: "") -> None:
    try:
        async with asyncio.timeout(patience_s):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never came true; there was {what()}") from None


class Coordinator:
    def __init__(self, kafka: str, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.queue = f"q{uuid.uuid4().hex[:10]}"
        self.run = uuid.uuid4().hex[:10]  # the reports topic is shared: ours are told by the run id
        self.seen: list[Report] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._fence = 0

    @asynccontextmanager
    async def playing(self, partitions: int = 1) -> AsyncIterator[Coordinator]:
        config = KafkaConfig(self.kafka)
        self.admin = KafkaAdmin(config)
        names = [(REPORTS, 4), (CANCELLATIONS, 1), (DLQ, 1), (task_topic(self.queue), partitions)]
        await self.admin.create([TopicSpec(name, count) for name, count in names])
        self._producer = KafkaProducer(config)
        tail = KafkaTail(config, REPORTS)
        await tail.start()
        reading = asyncio.create_task(self._read(tail))
        try:
            yield self
        finally:
            for worker in self.workers:
                if worker.poll() is None:
                    worker.kill()
                worker.wait()
            reading.cancel()
            await tail.close()
            await self._producer.close()
            await self.admin.close()

    async def _read(self, tail: KafkaTail) -> None:
        while True:
            for record in await tail.batch(1000):
                if (record.key or b"").decode().startswith(f"test/{self.run}/"):
                    self.seen.append(decode_report(record.value or b"", ""))

    async def dispatch(self, activity: str, number: int, **other: Any) -> Dispatch:
        self._fence += 1
        instance = InstanceKey(f"test/{self.run}/{number}")
        given: dict[str, Any] = {
            "execution": 1,
            "path": TaskPath("step"),
            "attempt": 1,
            "fence": self._fence,
            "lease_s": 30.0,
            "timeout_s": 3600.0,
        }
        dispatch = Dispatch(
            instance=instance,
            instance_id=instance_id(instance),
            activity=f"{self.queue}.{activity}",
            queue=self.queue,
            input=Payload(str(number).encode()),
            **(given | other),
        )
        await self._write(task_topic(self.queue), encode_task(dispatch))
        return dispatch

    async def cancel(self, d: Dispatch, reason: str, holder: str | None = None) -> None:
        told = Cancellation(d.instance, d.execution, d.path, d.fence, holder, reason)
        await self._write(CANCELLATIONS, encode_cancellation(told))

    async def _write(self, topic: str, value: bytes) -> None:
        (delivery,) = await self._producer.send_all([Message(topic, self.run.encode(), value)])
        assert delivery.error is None

    def reports(self, dispatch: Dispatch) -> list[Report]:
        return [r for r in self.seen if (r.instance, r.fence) == (dispatch.instance, dispatch.fence)]

    async def report(self, dispatch: Dispatch, kind: type, count: int = 1) -> Any:
        """The newest of a kind, when there are that many."""
        found: list[Report] = []

        def look() -> bool:
            found[:] = [r for r in self.reports(dispatch) if isinstance(r, kind)]
            return len(found) >= count

        await until(look, lambda: self.seen)
        return found[-1]

    async def committed(self) -> int:
        partition = TopicPartition(task_topic(self.queue), 0)
        return (await self.admin.committed(worker_group(self.queue), [partition])).get(partition, 0)

    async def until_committed(self, offset: int) -> None:
        async with asyncio.timeout(patience_s):
            while await self.committed() != offset:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def worker(self, **settings: str) -> subprocess.Popen[bytes]:
        """A worker process of this test's queue."""
        environment = os.environ | {
            "HOLDFAST_KAFKA": self.kafka,
            "HOLDFAST_SESSION_TIMEOUT_S": "6",
            "HOLDFAST_LOG_LEVEL": "WARNING",
            "WORKER_FOLDER": str(self.folder),
        }
        environment |= {f"HOLDFAST_{name.upper()}": value for name, value in settings.items()}
        command = [sys.executable, "-m", "tests.integration.worker.program", self.queue, str(self.folder)]
        self.workers.append(subprocess.Popen(command, env=environment))
        return self.workers[-1]

    async def entered(self, number: int, worker: subprocess.Popen[bytes]) -> None:
        await until(lambda: (self.folder / f"entered-{number}-{worker.pid}").exists(), self.marks)

    def let(self, number: int) -> None:
        (self.folder / f"go-{number}").touch()

    def marks(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir())


def freeze(worker: subprocess.Popen[bytes]) -> None:
    os.kill(worker.pid, signal.SIGSTOP)


def wake(worker: subprocess.Popen[bytes]) -> None:
    os.kill(worker.pid, signal.SIGCONT)
