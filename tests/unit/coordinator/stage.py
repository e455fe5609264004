"""A coordinator over the in-memory twins, with a store that can be told to fail, and a hand that plays the workers."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import structlog

from holdfast.contracts.cloudevents_in import CANCEL, START
from holdfast.contracts.commands import cancel_data, encode_command, start_data
from holdfast.contracts.definitions import parse_definition
from holdfast.contracts.messages import decode_task, encode_report
from holdfast.contracts.topics import COMMANDS, COORDINATOR_GROUP, DLQ, EVENTS, INBOX, REPORTS, TICKS, required_topics
from holdfast.core.changes import Dispatch
from holdfast.core.ids import InstanceKey, Payload, TaskPath, instance_id
from holdfast.core.inputs import ActorType, Origin, TaskReportedCompleted
from holdfast.kit.clock import DatabaseClock
from holdfast.kit.health import Health
from holdfast.log.memory import MemoryLog
from holdfast.log.memory_consumer import MemoryConsumer
from holdfast.log.memory_producer import MemoryProducer
from holdfast.log.protocol import Message, Record, TopicSpec
from holdfast.store.rows import Commit, StoredDefinition
from holdfast.store.stores import Stores, memory_stores
from holdfast_coordinator.coordinator import Coordinator
from holdfast_coordinator.settings import CoordinatorSettings

PARTITIONS = 4
ORIGIN = Origin(ActorType.WORKER, "worker-1", "")
DEFINITION: dict[str, Any] = {
    "namespace": "shop",
    "workflow": "order",
    "version": 1,
    "tasks": {
        "reserve": {"activity": "inventory.reserve", "compensate": "release"},
        "charge": {"activity": "payment.charge", "after": ["reserve"]},
        "release": {"activity": "inventory.release", "compensation": True},
    },
}


def now() -> datetime:
    return datetime.now(UTC)


class FaultyStore:
    """The twin, with a way to fail a commit before or after it took effect, or to hold it up."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.before: list[Exception] = []  # raised instead of committing
        self.after: list[Exception] = []  # raised although it is committed
        self.gate = asyncio.Event()
        self.gate.set()
        self.commits: list[Commit] = []
        self.refuse: Callable[[Commit], Exception | None] = lambda commit: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, commit: Commit) -> Any:
        await self.gate.wait()
        if self.before:
            raise self.before.pop(0)
        problem = self.refuse(commit)
        if problem is not None:
            raise problem
        committed = await self._inner.commit(commit)
        self.commits.append(commit)
        if self.after:
            raise self.after.pop(0)
        return committed


class Stage:
    def __init__(self, **settings: Any) -> None:
        self.log = MemoryLog()
        for spec in required_topics(PARTITIONS, ["inventory", "payment"]):
            self.log.create(TopicSpec(spec.name, spec.partitions))
        twins = memory_stores(now, PARTITIONS)
        self.store = FaultyStore(twins.coordinator)
        self.stores = Stores(self.store, twins.definitions, twins.outbox, twins.recovery, twins.queries)
        self.settings = CoordinatorSettings(
            **{"parked_first_delay_s": 0.01, "parked_tries_max": 30, "reclaim_s": 0.01, **settings}
        )
        self.producer = MemoryProducer(self.log)
        self.running: list[tuple[Coordinator, asyncio.Event, asyncio.Task[None]]] = []
        self.commands_sent = 0

    async def define(self, body: dict[str, Any] = DEFINITION) -> None:
        normal, definition = parse_definition(body)
        row = StoredDefinition(definition.namespace, definition.name, definition.version, normal, now())
        await self.stores.definitions.define(row)

    async def coordinate(self, holder: str = "coordinator-1") -> Coordinator:
        clock = DatabaseClock()
        clock.observe(now())
        coordinator = Coordinator(
            self.settings,
            self.stores,
            PARTITIONS,
            holder=holder,
            clock=clock,
            health=Health("coordinator"),
            log=structlog.get_logger(),
            consumer=lambda mine: MemoryConsumer(self.log, INBOX, COORDINATOR_GROUP, mine, first=(TICKS, REPORTS)),
            producer=lambda: MemoryProducer(self.log),
        )
        stopping = asyncio.Event()
        task = asyncio.create_task(coordinator.run(stopping))
        self.running.append((coordinator, stopping, task))
        await eventually(lambda: task.done() or len(coordinator.assignment.owned) > 0)
        return coordinator

    async def close(self) -> None:
        for _, stopping, task in self.running:
            stopping.set()
            self.store.gate.set()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(task, 10)

    async def send(self, topic: str, key: bytes | None, value: bytes | None, headers: Any = ()) -> None:
        [delivery] = await self.producer.send_all([Message(topic, key, value, headers)])
        assert delivery.error is None

    async def start(self, run_id: str, *, key: bytes | None = None, id: str | None = None, input: bytes = b"{}") -> str:
        instance = InstanceKey(f"shop/order/{run_id}")
        self.commands_sent += 1
        data = start_data(Payload(input))
        made = encode_command(instance, START, data, source="/test", id=id or f"c-{self.commands_sent}")
        await self.send(COMMANDS, made.key if key is None else key, made.value, made.headers)
        return instance

    async def cancel(self, instance: str) -> None:
        self.commands_sent += 1
        data = cancel_data(reason="test")
        made = encode_command(InstanceKey(instance), CANCEL, data, source="/test", id=f"c-{self.commands_sent}")
        await self.send(COMMANDS, made.key, made.value, made.headers)

    async def complete(self, dispatch: Dispatch, output: bytes = b"1") -> None:
        report = TaskReportedCompleted(
            dispatch.instance, ORIGIN, dispatch.path, dispatch.execution, dispatch.fence, "worker-1", Payload(output)
        )
        await self.send(REPORTS, dispatch.instance.encode(), encode_report(report))

    def records(self, topic: str) -> list[Record]:
        return [record for partition in self.log.topics[topic].partitions for record in partition.records]

    def dispatches(self, instance: str, path: str) -> list[Dispatch]:
        found = []
        for queue in ("inventory", "payment"):
            found += [decode_task(record.value or b"") for record in self.records(f"holdfast.tasks.{queue}")]
        return [one for one in found if one.instance == instance and one.path == TaskPath(path)]

    async def dispatch(self, instance: str, path: str) -> Dispatch:
        await eventually(lambda: bool(self.dispatches(instance, path)))
        return self.dispatches(instance, path)[-1]

    async def finish(self, instance: str) -> None:
        for path in ("reserve", "charge"):
            await self.complete(await self.dispatch(instance, path))

    async def state(self, instance: str) -> str | None:
        found = await self.stores.queries.instances([instance_id(InstanceKey(instance))])
        return next((str(view.state) for view in found.values()), None)

    async def has_state(self, instance: str, state: str) -> None:
        async def reached() -> bool:
            return await self.state(instance) == state

        await eventually_async(reached, lambda: f"{instance} to be {state}")

    async def sequences(self, instance: str) -> list[int]:
        recorded = await self.stores.queries.events(instance_id(InstanceKey(instance)))
        return [entry.sequence for entry in recorded]

    async def outcomes(self, instance: str) -> list[tuple[str, str]]:
        rows = await self.stores.queries.commands(instance_id(InstanceKey(instance)))
        return [(row.outcome, row.reason) for row, _ in rows]

    def published(self, instance: str) -> list[bytes]:
        """The ids of the events of an instance, in the order in which they were published."""
        found = [record for record in self.records(EVENTS) if record.key == instance.encode()]
        return [dict(record.headers)["ce_id"] or b"" for record in found if "ce_sequence" in dict(record.headers)]

    def dead(self) -> list[Record]:
        return self.records(DLQ)


async def eventually(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async def reached() -> bool:
        return true()

    await eventually_async(reached, lambda: "the condition", timeout_s)


async def eventually_async(true: Any, what: Callable[[], str], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@contextlib.contextmanager
def patched(target: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)
