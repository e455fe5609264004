"""The order saga under load: three steps, real Kafka and Postgres, every service a process of its own.

Two figures, after a warm-up. Throughput: a burst of sagas, from the first start that is sent to the last saga that is
finished in Postgres; CPU is what each role's processes used meanwhile. Latency: one saga at a time on the idle system,
from sending its start to seeing its WORKFLOW_COMPLETED on `holdfast.events`, as a service that subscribes would see it.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from uuid import uuid4

import psutil

from holdfast.cli import setup
from holdfast.cli.local import LocalSystem
from holdfast.client.payloads import encode
from holdfast.contracts.cloudevents_in import START
from holdfast.contracts.commands import encode_command, start_data
from holdfast.contracts.definitions import parse_definition
from holdfast.contracts.topics import COMMANDS, EVENTS
from holdfast.core.ids import instance_key
from holdfast.core.transitions import WorkflowState
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.kafka_tail import KafkaTail
from holdfast.log.protocol import Message
from holdfast.store.rows import StoredDefinition
from holdfast.store.stores import Stores, open_stores

STEPS = 3
_WINDOW = 20_000  # starts that may be under way, so that a slow machine is not flooded
_COMPLETED = b"io.holdfast.workflow.completed.v1"

DEFINITION = {
    "namespace": "bench",
    "workflow": "order",
    "version": 1,
    "tasks": {
        "reserve": {"activity": "inventory.reserve", "compensate": "release"},
        "charge": {"activity": "payment.charge", "after": ["reserve"], "compensate": "refund"},
        "ship": {"activity": "shipping.create", "after": ["charge"]},
        "release": {"activity": "inventory.release", "compensation": True},
        "refund": {"activity": "payment.refund", "compensation": True},
    },
    "output": "{'tracking': tasks.ship.output.tracking}",
}
ORDER = {"items": ["book", "pen"], "amount": 42, "customer": "c-1", "address": "1 Long Street, Springfield"}


@dataclass(frozen=True, slots=True)
class Result:
    sagas: int
    seconds: float
    steps_per_s: float
    cpu_us_per_step: dict[str, float]  # by role
    latency_sagas: int
    latency_p50_ms: float
    latency_p99_ms: float
    relay: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


async def measure(
    system: LocalSystem, sagas: int, latency_sagas: int, warm_up: int, say: Callable[[str], None]
) -> Result:
    """Kafka's Java compiles itself while it runs, which is half of what it costs in its first half minute."""
    stores = await open_stores(system.info.postgres, "bench")
    kafka = KafkaConfig(system.info.kafka)
    producer = KafkaProducer(kafka, linger_ms=5)
    quick = KafkaProducer(kafka)
    try:
        await _define(stores, kafka)
        await asyncio.to_thread(system.start_worker, "holdfast.cli.bench_worker:worker", name="worker-1")
        say(f"warming up: {warm_up} sagas")
        await _burst(stores, producer, warm_up, lambda done: None)
        say(f"throughput: {sagas} sagas at once")
        before = _cpu_s(system)
        began = time.monotonic()
        await _burst(stores, producer, sagas, lambda done: say(f"  {done} of {sagas} finished"))
        seconds = time.monotonic() - began
        after = _cpu_s(system)
        say(f"latency: {latency_sagas} sagas, one at a time")
        latencies = sorted(await _one_by_one(kafka, quick, latency_sagas))
    finally:
        await producer.close()
        await quick.close()
        await stores.close()
    steps = sagas * STEPS
    return Result(
        sagas,
        round(seconds, 2),
        round(steps / seconds, 1),
        {role: round((after[role] - before[role]) * 1e6 / steps, 1) for role in after},
        latency_sagas,
        round(_quantile(latencies, 0.50) * 1000, 2),
        round(_quantile(latencies, 0.99) * 1000, 2),
        system.env.get("HOLDFAST_RELAY", "hosted"),
    )


async def _define(stores: Stores, kafka: KafkaConfig) -> None:
    body, definition = parse_definition(DEFINITION)
    now = await stores.queries.now()
    stored = StoredDefinition(definition.namespace, definition.name, definition.version, body, now)
    await stores.definitions.define(stored)
    queues = {task.queue for task in definition.tasks.values() if task.queue}
    partitions = await stores.coordinator.partition_count() or 1
    await setup.create_queue_topics(kafka, partitions, queues, 1)


def _start(run_id: str) -> Message:
    data = start_data(encode(ORDER))
    key = instance_key("bench", "order", run_id)
    made = encode_command(key, START, data, source="/bench", id=run_id)
    return Message(COMMANDS, made.key, made.value, made.headers)


async def _burst(stores: Stores, producer: KafkaProducer, sagas: int, progress: Callable[[int], None]) -> None:
    finished_before = await _finished(stores)
    batch = uuid4().hex[:8]
    sent = 0
    told = time.monotonic()
    while True:
        done = await _finished(stores) - finished_before
        if done >= sagas:
            return
        upto = min(sagas, done + _WINDOW)
        for number in range(sent, upto):
            producer.send(_start(f"{batch}-{number}"))
            if number % 500 == 499:
                await asyncio.sleep(0)
        sent = max(sent, upto)
        if time.monotonic() - told > 2:
            told = time.monotonic()
            progress(done)
        await asyncio.sleep(0.25)


async def _finished(stores: Stores) -> int:
    return (await stores.queries.counts()).instances.get(WorkflowState.COMPLETED, 0)


async def _one_by_one(kafka: KafkaConfig, producer: KafkaProducer, sagas: int) -> list[float]:
    tail = KafkaTail(kafka, EVENTS)
    await tail.start()
    latencies = []
    try:
        for number in range(sagas + 20):
            message = _start(f"l-{uuid4().hex}-{number}")
            began = time.perf_counter()
            producer.send(message)
            await _completed(tail, message.key or b"")
            if number >= 20:  # the first ones find cold connections
                latencies.append(time.perf_counter() - began)
    finally:
        await tail.close()
    return latencies


async def _completed(tail: KafkaTail, key: bytes) -> None:
    while True:
        for record in await tail.batch(1_000):
            if record.key == key and ("ce_type", _COMPLETED) in record.headers:
                return


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _cpu_s(system: LocalSystem) -> dict[str, float]:
    """Seconds of CPU so far, by role; a role's processes with all their children."""
    roles: dict[str, list[int]] = {"driver": [psutil.Process().pid]}
    for process in system.processes:
        roles.setdefault(process.kind, []).append(process.pid)
    for name, server in (("postgres", system.stack.postgres), ("kafka", system.stack.kafka)):
        if server.pid is not None:
            roles[name] = [server.pid]
    return {role: sum(_tree_s(pid, alone=role == "driver") for pid in pids) for role, pids in roles.items()}


def _tree_s(pid: int, *, alone: bool) -> float:
    process = psutil.Process(pid)
    family = [process] if alone else [process, *process.children(recursive=True)]
    return sum(times.user + times.system for one in family for times in [one.cpu_times()])
