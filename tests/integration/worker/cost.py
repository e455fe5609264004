"""What one simple task costs a worker on real Kafka, in CPU: `python -m tests.integration.worker.cost KAFKA [tasks]`.

The worker runs in this process; dispatches are written before it starts measuring, by a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid

import uvloop

from holdfast import ActivityContext, Worker, activity
from holdfast.contracts.messages import encode_task
from holdfast.contracts.topics import CANCELLATIONS, DLQ, REPORTS, task_topic
from holdfast.core.changes import Dispatch
from holdfast.core.ids import InstanceKey, Payload, TaskPath, instance_id
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import Message, TopicSpec
from holdfast.worker.kafka_port import KafkaPort
from holdfast.worker.process import Options, WorkerProcess


async def simple(ctx: ActivityContext, value: dict[str, int]) -> dict[str, int]:
    return {"doubled": value["number"] * 2}


async def fill(kafka: str, queue: str, tasks: int) -> None:
    producer = KafkaProducer(KafkaConfig(kafka))
    messages = []
    for number in range(tasks):
        key = InstanceKey(f"cost/{queue}/{number}")
        dispatch = Dispatch(
            key, instance_id(key), 1, TaskPath("step"), 1, number + 1, f"{queue}.simple", queue,
            Payload(b'{"number": %d}' % number), 30.0, 3600.0,
        )  # fmt: skip
        messages.append(Message(task_topic(queue), str(number).encode(), encode_task(dispatch)))
    deliveries = await producer.send_all(messages)
    assert all(delivery.error is None for delivery in deliveries), next(d for d in deliveries if d.error)
    await producer.close()


async def measure(kafka: str, tasks: int) -> None:
    queue = f"cost{uuid.uuid4().hex[:8]}"
    admin = KafkaAdmin(KafkaConfig(kafka))
    names = [(REPORTS, 8), (CANCELLATIONS, 1), (DLQ, 1), (task_topic(queue), 8)]
    await admin.create([TopicSpec(name, count) for name, count in names])
    await admin.close()
    worker = Worker([activity(f"{queue}.simple")(simple)])  # type: ignore[list-item]
    process = WorkerProcess(worker, KafkaPort(KafkaConfig(kafka)), Options())
    stopping = asyncio.Event()
    running = asyncio.create_task(process.run(stopping))
    while not all(intake.joined for intake in process.intakes):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    filler = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.worker.cost", kafka, str(tasks), queue
    )
    counted = process.engine.stats.attempts
    cpu, wall = time.process_time(), time.monotonic()
    while sum(counted.values()) < tasks:
        if not counted:
            cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(0.01)
    await process.engine.reporter.drained(30)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    print(f"{1e6 * cpu / tasks:.1f} us of CPU per task, {tasks / wall:.0f} tasks/s, {cpu / wall:.2f} cores")
    await filler.wait()
    stopping.set()
    await running


if __name__ == "__main__":
    if len(sys.argv) > 3:
        asyncio.run(fill(sys.argv[1], sys.argv[3], int(sys.argv[2])))
    else:
        uvloop.run(measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50_000))
