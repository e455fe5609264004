"""A stage for workers: an in-memory Kafka, and the coordinator played by the test.

The test writes dispatches and cancellations and reads the reports. Nothing here waits for time: `until` gives the loop
its turns until something is so, and fails with what there was instead if it never is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from holdfast.contracts.messages import decode_report, encode_cancellation, encode_task
from holdfast.contracts.topics import CANCELLATIONS, DLQ, REPORTS, task_topic, worker_group
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.ids import InstanceKey, Payload, TaskPath, instance_id
from holdfast.core.inputs import Report, TaskHeartbeat, TaskReportedStarted
from holdfast.log.memory import MemoryLog
from holdfast.log.memory_admin import MemoryAdmin
from holdfast.log.memory_consumer import MemoryConsumer, MemoryTail
from holdfast.log.memory_producer import MemoryProducer
from holdfast.log.protocol import (
    Admin,
    Assignments,
    Consumer,
    Message,
    OnDeliveries,
    Producer,
    Record,
    Tail,
    TopicPartition,
    TopicSpec,
)
from holdfast.worker import Activity, Worker
from holdfast.worker.process import Options, WorkerProcess

patience_s = 20.0


async def until(holds: Callable[[], Any], what: Callable[[], object] = lambda: "") -> None:
    """Wait for a condition. The limit is only there for tests that fail."""
    try:
        async with asyncio.timeout(patience_s):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never came true; there was {what()}") from None


class Slow:
    """While `on`, what producers are given does not reach Kafka."""

    def __init__(self) -> None:
        self.on = False
        self.kept: list[Callable[[], None]] = []

    def release(self) -> None:
        self.on = False
        kept, self.kept = self.kept, []
        for write in kept:
            write()


class SlowProducer(MemoryProducer):
    def __init__(self, log: MemoryLog, slow: Slow) -> None:
        super().__init__(log)
        self._slow = slow

    def publish(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        if self._slow.on:
            self._slow.kept.append(partial(super().publish, messages, done))
        else:
            super().publish(messages, done)


class MemoryPort:
    def __init__(self, log: MemoryLog, slow: Slow) -> None:
        self.log = log
        self.slow = slow
        self.consumers: list[MemoryConsumer] = []

    def consumer(self, topic: str, group: str, assignments: Assignments) -> Consumer:
        self.consumers.append(MemoryConsumer(self.log, [topic], group, assignments))
        return self.consumers[-1]

    def tail(self, topic: str) -> Tail:
        return MemoryTail(self.log, topic)

    def producer(self) -> Producer:
        return SlowProducer(self.log, self.slow)

    def admin(self) -> Admin:
        return MemoryAdmin(self.log)


class Stage:
    def __init__(self, *queues: str, partitions: int = 1) -> None:
        self.log = MemoryLog()
        self.queues = queues or ("test",)
        for name, count in ((REPORTS, 2), (CANCELLATIONS, 1), (DLQ, 1)):
            self.log.create(TopicSpec(name, count))
        for queue in self.queues:
            self.log.create(TopicSpec(task_topic(queue), partitions))
        self.fence = 0
        self.slow = Slow()

    # The coordinator's part.

    def make(self, activity: str, input: object = None, **other: Any) -> Dispatch:
        self.fence += 1
        instance = InstanceKey(other.pop("instance", f"shop/orders/order-{self.fence}"))
        given: dict[str, Any] = {
            "execution": 1,
            "path": TaskPath("step"),
            "attempt": 1,
            "fence": self.fence,
            "activity": activity,
            "queue": self.queues[0],
            "input": Payload(json.dumps(input).encode()),
            "lease_s": 30.0,
            "timeout_s": 3600.0,
        }
        return Dispatch(instance=instance, instance_id=instance_id(instance), **(given | other))

    def send(self, dispatch: Dispatch, partition: int = 0) -> Dispatch:
        self.write(task_topic(dispatch.queue), encode_task(dispatch), partition)
        return dispatch

    def dispatch(self, activity: str, input: object = None, *, partition: int = 0, **other: Any) -> Dispatch:
        return self.send(self.make(activity, input, **other), partition)

    def cancel(self, dispatch: Dispatch, reason: str = "cancelled", holder: str | None = None) -> None:
        told = Cancellation(dispatch.instance, dispatch.execution, dispatch.path, dispatch.fence, holder, reason)
        self.write(CANCELLATIONS, encode_cancellation(told), 0)

    def write(self, topic: str, value: bytes, partition: int | None = None) -> None:
        delivery = self.log.append(Message(topic, b"key", value, (), partition), 10_000_000)
        assert delivery.error is None

    # What is seen from outside.

    def records(self, topic: str) -> list[Record]:
        return [record for each in self.log.topics[topic].partitions for record in each.records]

    def reports(self, dispatch: Dispatch | None = None) -> list[Report]:
        found = [decode_report(record.value or b"", "") for record in self.records(REPORTS)]
        return found if dispatch is None else [r for r in found if (r.instance, r.fence) == _key(dispatch)]

    def outcomes(self, dispatch: Dispatch | None = None) -> list[Report]:
        return [r for r in self.reports(dispatch) if not isinstance(r, TaskReportedStarted | TaskHeartbeat)]

    async def outcome(self, dispatch: Dispatch) -> Any:
        await until(lambda: self.outcomes(dispatch), self.reports)
        (only,) = self.outcomes(dispatch)
        return only

    async def report(self, dispatch: Dispatch, kind: type) -> Any:
        """The first report of a kind."""
        await until(lambda: any(isinstance(r, kind) for r in self.reports(dispatch)), self.reports)
        return next(r for r in self.reports(dispatch) if isinstance(r, kind))

    def committed(self, partition: int = 0, queue: str | None = None) -> int:
        queue = queue or self.queues[0]
        return self.log.group(worker_group(queue)).committed.get(TopicPartition(task_topic(queue), partition), 0)

    async def until_committed(self, offset: int, partition: int = 0) -> None:
        await until(lambda: self.committed(partition) == offset, lambda: self.committed(partition))

    @asynccontextmanager
    async def worker(
        self, activities: Iterable[Activity[..., Any]], *, concurrency: int = 100, processes: int = 1, **options: Any
    ) -> AsyncIterator[Running]:
        worker = Worker(activities, concurrency=concurrency, queues=self.queues, processes=processes)
        options.setdefault("drain_s", 0.0)
        running = Running(self, worker, Options(heartbeat_thread=False, **options))
        try:
            await until(lambda: all(intake.joined for intake in running.process.intakes))
            yield running
        finally:
            self.log.start()  # A broker that a test left stopped would hold up the drain.
            self.slow.release()
            await running.end()


class Running:
    """One worker on the stage."""

    def __init__(self, stage: Stage, worker: Worker, options: Options) -> None:
        self.port = MemoryPort(stage.log, stage.slow)
        self.process = WorkerProcess(worker, self.port, options)
        self.holder = self.process.holder
        self.stopping = asyncio.Event()
        self.killed = False
        self.task = asyncio.create_task(self.process.run(self.stopping))

    @property
    def engine(self) -> Any:
        return self.process.engine

    async def end(self) -> None:
        self.stopping.set()
        if not self.killed:
            await self.task

    async def kill(self) -> None:
        """As `kill -9`, as far as Kafka can see: nothing is sent, committed or said."""
        self.killed = True
        self.task.cancel()
        self.process.engine.closed = True
        for consumer in self.port.consumers:
            consumer._group.members.remove(consumer)
        for intake in self.process.intakes:
            intake._closed = True
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


def _key(dispatch: Dispatch) -> tuple[InstanceKey, int]:
    return dispatch.instance, dispatch.fence
