"""The coordinator's side of the store on Postgres."""

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import orjson

from holdfast.contracts.event_codec import decode_event
from holdfast.core.errors import Corrupt
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceId, InstanceKey, TaskPath, instance_key
from holdfast.core.inputs import ActorType, Origin
from holdfast.core.state import STATE_SHAPE
from holdfast.store import queries
from holdfast.store.errors import Unstorable
from holdfast.store.failures import translated
from holdfast.store.pack import pack
from holdfast.store.pool import Database
from holdfast.store.postgres_definitions import PostgresDefinitionStore
from holdfast.store.rows import (
    Claim,
    CommandKey,
    CommandRow,
    Commit,
    Committed,
    Loaded,
    LoadedInstance,
    ParkedInput,
    Settled,
    StoredDefinition,
)

_SQL = queries.load("coordinator")
_COMMIT, _LOAD = _SQL["commit"], _SQL["load"]
_HEADERS = msgspec.msgpack.Decoder(tuple[tuple[str, bytes | None], ...])
_ACTORS = {actor.value: actor for actor in ActorType}


class PostgresCoordinatorStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._definitions = PostgresDefinitionStore(database)

    async def claim(
        self, partitions: Sequence[int], holder: str, *, publish: bool, publisher_lease_s: float
    ) -> list[Claim]:
        with translated():
            rows = await self._database.fetch(_SQL["claim"], list(partitions), holder, publish, publisher_lease_s)
        return [_claim(row) for row in rows]

    async def load(
        self,
        instances: Sequence[InstanceId],
        commands: Sequence[CommandKey] = (),
        workflows: Sequence[tuple[str, str]] = (),
    ) -> Loaded:
        with translated():
            rows = await self._database.fetch(
                _LOAD,
                list(instances),
                STATE_SHAPE,
                [key.instance_id for key in commands],
                [key.source for key in commands],
                [key.id for key in commands],
                [namespace for namespace, _ in workflows],
                [workflow for _, workflow in workflows],
            )
        loaded = Loaded({}, {}, {})
        for row in rows:
            _take(loaded, row)
        return loaded

    async def commit(self, commit: Commit) -> Committed:
        try:
            arguments = pack(commit)
        except (orjson.JSONEncodeError, UnicodeError, struct.error) as error:
            raise Unstorable(f"cannot be sent to Postgres: {error}") from error
        with translated(committing=True):
            row = await self._database.fetchrow(_COMMIT, *arguments)
        assert row is not None
        return Committed(row[0], row[1], frozenset(row[2]))

    async def settle(self, partitions: Sequence[int]) -> list[Settled]:
        with translated():
            rows = await self._database.fetch(_SQL["settle"], list(partitions))
        return [Settled(*row) for row in rows]

    async def partition_count(self) -> int | None:
        with translated():
            count: int | None = await self._database.fetchval(_SQL["partition_count"])
        return count

    async def definition(self, namespace: str, workflow: str, version: int) -> StoredDefinition | None:
        return await self._definitions.definition(namespace, workflow, version)

    async def parked_due(self, partitions: Sequence[int], now: datetime) -> list[InstanceId]:
        with translated():
            rows = await self._database.fetch(_SQL["parked_due"], list(partitions), now)
        return [InstanceId(row[0]) for row in rows]

    async def parked_inputs(self, instance: InstanceId, limit: int) -> list[ParkedInput]:
        with translated():
            rows = await self._database.fetch(_SQL["parked_inputs"], instance, limit)
        return [parked_input(row) for row in rows]

    async def parked_state(self, instance: InstanceId) -> int:
        with translated():
            tries = await self._database.fetchval(_SQL["parked_state"], instance)
        return int(tries or 0)

    async def wake_relay(self) -> None:
        with translated():
            await self._database.execute(_SQL["wake_relay"])

    async def wake_recovery(self, due_at: datetime) -> None:
        with translated():
            await self._database.execute(_SQL["wake_recovery"], due_at.isoformat())

    async def now(self) -> datetime:
        with translated():
            now: datetime = await self._database.fetchval(_SQL["now"])
        return now


def parked_input(row: asyncpg.Record) -> ParkedInput:
    return ParkedInput(
        number=row["number"],
        partition=row["partition"],
        instance_id=InstanceId(row["instance_id"]),
        instance=InstanceKey(row["instance"]),
        topic=row["topic"],
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        headers=_HEADERS.decode(row["headers"]),
        error=row["error"],
        parked_at=row["parked_at"],
    )


def _claim(row: asyncpg.Record) -> Claim:
    return Claim(
        partition=row["partition"],
        epoch=row["epoch"],
        commands_next=row["commands_next"],
        reports_next=row["reports_next"],
        ticks_next=row["ticks_next"],
        outbox_last=row["outbox_last"],
        publisher_epoch=row["publisher_epoch"],
        outbox_done=row["outbox_done"],
        parked=frozenset(InstanceId(parked) for parked in row["parked"]),
        now=row["now"],
    )


def _take(loaded: Loaded, row: asyncpg.Record) -> None:
    kind, instance, texts, numbers, body, at = row[0], row[1], row[2], row[3], row[4], row[5]
    if kind == "w":
        loaded.newest[texts[0], texts[1]] = numbers[0]
    elif kind == "c":
        key = CommandKey(InstanceId(instance), texts[0], texts[1])
        loaded.commands[key] = CommandRow(key, InstanceKey(texts[2]), texts[3], body, texts[4], texts[5], at)
    else:
        loaded.instances[InstanceId(instance)] = _loaded_instance(InstanceId(instance), texts, numbers, body, row)


def _loaded_instance(
    instance: InstanceId, texts: list[str], numbers: list[int], snapshot: bytes | None, row: asyncpg.Record
) -> LoadedInstance:
    renewals = {
        TaskPath(path): (fence, count, expires_at)
        for path, (fence, count), expires_at in zip(row[10] or (), row[11] or (), row[12] or (), strict=True)
    }
    return LoadedInstance(
        instance_id=instance,
        key=instance_key(texts[0], texts[1], texts[2]),
        version=numbers[0],
        sequence=numbers[1],
        snapshot=snapshot,
        snapshot_sequence=numbers[2],
        events=_events(instance, row[6] or (), row[7] or (), row[8] or (), row[9] or ()),
        renewals=renewals,
        quarantined=bool(numbers[3]),
    )


def _events(
    instance: UUID, integers: Sequence[Any], texts: Sequence[Any], payloads: Sequence[Any], times: Sequence[Any]
) -> list[Recorded]:
    return [
        recorded(instance, three[0], three[1], three[2], six, payload, at)
        for three, six, payload, at in zip(integers, texts, payloads, times, strict=True)
    ]


def recorded(
    instance: UUID,
    sequence: int,
    execution: int,
    schema_version: int,
    texts: Sequence[Any],
    payload: str,
    occurred_at: datetime,
) -> Recorded:
    """An event that does not decode is never skipped: it parks its instance, naming the sequence."""
    kind, cause, actor_type, actor_id, trace_id, span_id = texts
    try:
        event = decode_event(kind, schema_version, payload.encode())
        origin = Origin(_ACTORS[actor_type], actor_id, cause, trace_id, span_id)
    except Corrupt as error:
        raise Corrupt(f"event {sequence} of {instance}: {error}") from error
    except KeyError as error:
        raise Corrupt(f"event {sequence} of {instance}: unknown actor type {actor_type!r}") from error
    return Recorded(sequence, execution, event, occurred_at, origin)
