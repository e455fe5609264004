"""The client against the in-memory log: what it sends, what it refuses to send, what waiting tells."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.client import (
    Client,
    CompensationFailed,
    NotCompleted,
    WaitTimedOut,
    WorkflowCancelled,
    WorkflowCompensated,
    WorkflowFailed,
)
from holdfast.contracts import topics
from holdfast.contracts.cloudevents_in import decode_command
from holdfast.core.errors import Refused, Transient
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, Payload, instance_id
from holdfast.core.inputs import CancelWorkflow, Error, ResumeWorkflow, StartWorkflow
from holdfast.core.transitions import WorkflowState
from holdfast.log.memory import MemoryLog
from holdfast.log.memory_producer import MemoryProducer
from holdfast.log.protocol import Record, TopicPartition, TopicSpec
from holdfast.store.rows import CommandKey, CommandRow, InstanceView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class FakeReads:
    known_outcomes: dict[CommandKey, CommandRow] = field(default_factory=dict)
    views: dict[InstanceId, InstanceView] = field(default_factory=dict)
    known_outputs: dict[InstanceId, Payload] = field(default_factory=dict)
    questions: int = 0

    async def outcomes(self, commands: Sequence[CommandKey]) -> dict[CommandKey, CommandRow]:
        self.questions += 1
        return {key: self.known_outcomes[key] for key in commands if key in self.known_outcomes}

    async def instances(self, instances: Sequence[InstanceId]) -> dict[InstanceId, InstanceView]:
        self.questions += 1
        return {one: self.views[one] for one in instances if one in self.views}

    async def outputs(self, instances: Sequence[InstanceId]) -> dict[InstanceId, Payload]:
        self.questions += 1
        return {one: self.known_outputs[one] for one in instances if one in self.known_outputs}

    async def events(self, instance: InstanceId, *, after: int = 0, limit: int = 1000) -> list[Recorded]:
        return []

    async def close(self) -> None:
        return


class World:
    """A log, reads, and a client between them."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.create(TopicSpec(topics.COMMANDS, 1))
        self.reads = FakeReads()

    def client(self, *, postgres: bool = True, ack_timeout_s: float = 5.0) -> Client:
        async def opened() -> FakeReads:
            return self.reads

        reads = opened if postgres else None
        return Client(lambda: MemoryProducer(self.log), reads, source="/shop", ack_timeout_s=ack_timeout_s)

    def sent(self) -> list[Record]:
        partition = self.log.partition(TopicPartition(topics.COMMANDS, 0))
        assert partition is not None
        return partition.read(0, 1000)

    def last(self) -> Any:
        record = self.sent()[-1]
        return decode_command(record.headers, record.key, record.value).command

    def answer(self, key: CommandKey, instance: str, outcome: str, reason: str = "") -> None:
        row = CommandRow(key, InstanceKey(instance), "start", b"", outcome, reason, NOW)
        self.reads.known_outcomes[key] = row

    def state(self, key: str, state: WorkflowState, error: Error | None = None) -> None:
        instance = instance_id(InstanceKey(key))
        self.reads.views[instance] = InstanceView(
            instance, InstanceKey(key), 0, 1, state, 1, 9, 3, None, error, "c-1", NOW, NOW, NOW, None, None
        )


@pytest.fixture
async def world() -> World:
    return World()


class Order(BaseModel):
    amount: float
    at: datetime | None = None


@dataclass
class Parcel:
    weight: int


# --- sending


async def test_a_start_is_a_cloudevent_with_the_instance_as_its_key(world: World) -> None:
    async with world.client() as holdfast:
        run = await holdfast.start("orders/fulfil", run_id="o-1", input={"amount": 5}, version=2)
    assert run.key == "orders/fulfil/o-1"
    assert world.sent()[0].key == b"orders/fulfil/o-1"
    command = world.last()
    assert isinstance(command, StartWorkflow)
    assert (json.loads(command.input), command.version) == ({"amount": 5}, 2)
    assert command.origin.actor_id == "/shop"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Order(amount=1.5), {"amount": 1.5, "at": None}),
        (Order(amount=1, at=NOW), {"amount": 1.0, "at": "2026-01-01T00:00:00Z"}),
        (Parcel(3), {"weight": 3}),
        ([1, "ä", None], [1, "ä", None]),
        (None, None),
    ],
)
async def test_models_dataclasses_and_plain_json_are_inputs(world: World, value: Any, expected: Any) -> None:
    async with world.client() as holdfast:
        await holdfast.start("orders/fulfil", input=value)
    assert json.loads(world.last().input) == expected


async def test_without_a_run_id_the_client_makes_one(world: World) -> None:
    async with world.client() as holdfast:
        first = await holdfast.start("orders/fulfil")
        second = await holdfast.start("orders/fulfil")
    assert first.run_id != second.run_id


async def test_run_at_travels_as_utc(world: World) -> None:
    async with world.client() as holdfast:
        await holdfast.start("orders/fulfil", run_at=NOW + timedelta(hours=1))
    assert world.last().run_at == NOW + timedelta(hours=1)


async def test_cancel_and_resume_say_what_was_asked(world: World) -> None:
    async with world.client() as holdfast:
        run = holdfast.run("orders/fulfil/o-1")
        await run.cancel("called", compensate=True)
        cancel = world.last()
        await run.resume("bank is back")
    assert isinstance(cancel, CancelWorkflow)
    assert (cancel.reason, cancel.compensate, cancel.force) == ("called", True, False)
    assert isinstance(world.last(), ResumeWorkflow)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"workflow": "fulfil"}, "name_invalid"),
        ({"workflow": "orders/ful/fil"}, "name_invalid"),
        ({"workflow": "orders/ful fil"}, "name_invalid"),
        ({"workflow": "orders/fulfil", "run_id": ""}, "name_invalid"),
        ({"workflow": "orders/fulfil", "run_id": "a\0b"}, "name_invalid"),
        ({"workflow": "orders/fulfil", "run_id": "x" * 256}, "name_invalid"),
        ({"workflow": "orders/fulfil", "version": 0}, "version_invalid"),
        ({"workflow": "orders/fulfil", "run_at": datetime(2026, 1, 1)}, "run_at_invalid"),
        ({"workflow": "orders/fulfil", "input": float("nan")}, "payload_invalid"),
        ({"workflow": "orders/fulfil", "input": "a\0b"}, "payload_invalid"),
        ({"workflow": "orders/fulfil", "input": "\ud800"}, "payload_invalid"),
        ({"workflow": "orders/fulfil", "input": object()}, "payload_invalid"),
        ({"workflow": "orders/fulfil", "input": "x" * (1024 * 1024)}, "payload_too_large"),
    ],
)
async def test_what_would_be_refused_later_is_refused_before_anything_is_sent(
    world: World, arguments: dict[str, Any], reason: str
) -> None:
    async with world.client() as holdfast:
        with pytest.raises(Refused) as refused:
            await holdfast.start(**arguments)
    assert refused.value.reason == reason
    assert world.sent() == []


async def test_a_missing_topic_is_refused_with_what_kafka_says() -> None:
    world = World()
    world.log.delete(topics.COMMANDS)
    async with world.client() as holdfast:
        with pytest.raises(Refused) as refused:
            await holdfast.start("orders/fulfil")
    assert refused.value.reason == "not_written"


async def test_a_silent_kafka_is_transient() -> None:
    world = World()
    world.log.stop()
    async with world.client(ack_timeout_s=0.05) as holdfast:
        with pytest.raises(Transient, match="acknowledge"):
            await holdfast.start("orders/fulfil")
        world.log.start()


async def test_a_closed_client_sends_nothing(world: World) -> None:
    holdfast = world.client()
    with pytest.raises(Refused, match="async with"):
        await holdfast.start("orders/fulfil")


# --- waiting


async def test_accepted_and_duplicate_are_the_same_run(world: World) -> None:
    async with world.client() as holdfast:
        for outcome in ("accepted", "duplicate"):
            run = await holdfast.start("orders/fulfil", run_id="o-1")
            assert run.sent is not None
            world.answer(run.sent.command, run.key, outcome)
            assert (await run.accepted(1)).key == "orders/fulfil/o-1"


async def test_a_refused_start_raises_its_reason_also_from_result(world: World) -> None:
    async with world.client() as holdfast:
        run = await holdfast.start("orders/nope")
        assert run.sent is not None
        world.answer(run.sent.command, run.key, "refused", "unknown_workflow: no definition for orders/nope")
        for waiting in (run.accepted(1), run.result(1)):
            with pytest.raises(Refused) as refused:
                await waiting
            assert refused.value.reason == "unknown_workflow"
            assert "orders/nope" in refused.value.detail


async def test_result_returns_the_output(world: World) -> None:
    async with world.client() as holdfast:
        run = holdfast.run("orders/fulfil/o-1")
        world.state(run.key, WorkflowState.RUNNING)
        waiting = asyncio.create_task(run.result(5))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        world.reads.known_outputs[run.id] = Payload(b'{"tracking": "t-1"}')
        world.state(run.key, WorkflowState.COMPLETED)
        assert await waiting == {"tracking": "t-1"}


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (WorkflowState.FAILED, WorkflowFailed),
        (WorkflowState.COMPENSATED, WorkflowCompensated),
        (WorkflowState.COMPENSATION_FAILED, CompensationFailed),
        (WorkflowState.CANCELLED, WorkflowCancelled),
    ],
)
async def test_every_other_end_raises_with_state_and_error(
    world: World, state: WorkflowState, kind: type[NotCompleted]
) -> None:
    async with world.client() as holdfast:
        run = holdfast.run("orders/fulfil/o-1")
        world.state(run.key, state, Error("no_carrier", "nobody ships it"))
        with pytest.raises(kind, match="nobody ships it") as raised:
            await run.result(1)
    assert raised.value.state is state


async def test_a_thousand_results_cost_a_few_questions(world: World) -> None:
    async with world.client() as holdfast:
        runs = [holdfast.run(f"orders/fulfil/o-{n}") for n in range(1000)]
        waiting = [asyncio.create_task(run.result(10)) for run in runs]
        await asyncio.sleep(0.02)
        for run in runs:
            world.reads.known_outputs[run.id] = Payload(b"1")
            world.state(run.key, WorkflowState.COMPLETED)
        assert sum(await asyncio.gather(*waiting)) == 1000
    assert world.reads.questions < 20


async def test_waiting_in_vain_says_so_and_harms_nothing(world: World) -> None:
    async with world.client() as holdfast:
        run = holdfast.run("orders/fulfil/o-1")
        with pytest.raises(WaitTimedOut, match="has not finished"):
            await run.result(0.05)
        world.reads.known_outputs[run.id] = Payload(b"1")
        world.state(run.key, WorkflowState.COMPLETED)
        assert await run.result(1) == 1


async def test_without_postgres_starting_works_and_waiting_says_what_is_missing(world: World) -> None:
    async with world.client(postgres=False) as holdfast:
        run = await holdfast.start("orders/fulfil")
        for waiting in (run.accepted(1), run.result(1), run.status()):
            with pytest.raises(Refused, match="HOLDFAST_POSTGRES"):
                await waiting
    assert len(world.sent()) == 1


async def test_the_status_of_what_does_not_exist_is_refused(world: World) -> None:
    async with world.client() as holdfast:
        with pytest.raises(Refused, match="does not exist"):
            await holdfast.run("orders/fulfil/o-1").status()
        with pytest.raises(Refused, match="run_id"):
            holdfast.run("orders/fulfil")
