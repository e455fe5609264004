"""What has to exist before the services run: the schema in Postgres, the topics in Kafka. Safe to do twice."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.contracts.definitions import compile_definition
from holdfast.contracts.topics import INBOX, TopicSpec, check_topics, partitions_default, required_topics
from holdfast.core.errors import Refused
from holdfast.log import protocol as log
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.store.migrate import check_schema, ensure_partitions, migrate
from holdfast.store.pool import open_database
from holdfast.store.postgres_coordinator import PostgresCoordinatorStore
from holdfast.store.postgres_definitions import PostgresDefinitionStore

_APPEAR_S = 10.0


@dataclass(frozen=True, slots=True)
class TopicsMade:
    partitions: int
    made: tuple[str, ...]
    problems: tuple[str, ...]  # with topics that were there before and are not as they must be


async def migrate_database(dsn: str) -> list[str]:
    """The names of the migrations that were applied now."""
    return await migrate(dsn)


async def create_topics(
    kafka: str | KafkaConfig, postgres: str, *, partitions: int | None = None, replication: int = 1
) -> TopicsMade:
    """Make what is missing, for all stored definitions, and record the partition count in Postgres.

    Without `partitions`: what Postgres has on record, else what Kafka already has, else the default.
    """
    recorded, queues = await _known(postgres)
    if partitions is not None and recorded is not None and partitions != recorded:
        raise Refused(
            "partition_count", f"Postgres has {recorded} partitions on record, not {partitions}; the number is fixed"
        )
    admin = KafkaAdmin(_config(kafka))
    try:
        found = await admin.describe(INBOX)
        existing = {found[name].partitions for name in INBOX if name in found}
        count = partitions or recorded or (existing.pop() if len(existing) == 1 else partitions_default)
        required = required_topics(count, queues)
        made = await admin.create([_to_make(spec, replication) for spec in required])
        problems = check_topics(required, await _appeared(admin, [spec.name for spec in required]))
        inbox = [problem for problem in problems if problem.startswith(INBOX) and "partitions" in problem]
        if inbox:
            # Instances would be looked for on other partitions than those that hold them: nothing may run like this.
            raise Refused("partition_count", "; ".join(inbox))
        await ensure_partitions(postgres, count)
    finally:
        await admin.close()
    return TopicsMade(count, tuple(sorted(made)), tuple(problems))


async def create_queue_topics(kafka: KafkaConfig, partitions: int, queues: Iterable[str], replication: int) -> set[str]:
    admin = KafkaAdmin(kafka)
    try:
        specs = queue_topics(partitions, queues)
        made = await admin.create([_to_make(spec, replication) for spec in specs])
        await _appeared(admin, [spec.name for spec in specs])
        return made
    finally:
        await admin.close()


async def missing_queue_topics(kafka: KafkaConfig, partitions: int, queues: Iterable[str]) -> list[str]:
    specs = queue_topics(partitions, queues)
    admin = KafkaAdmin(kafka)
    try:
        found = await admin.describe([spec.name for spec in specs])
    finally:
        await admin.close()
    return [spec.name for spec in specs if spec.name not in found]


def queue_topics(partitions: int, queues: Iterable[str]) -> Sequence[TopicSpec]:
    common = {spec.name for spec in required_topics(partitions)}
    return [spec for spec in required_topics(partitions, queues) if spec.name not in common]


async def find_problems(kafka: KafkaConfig, postgres: str) -> tuple[int, list[str]]:
    """The partition count on record and everything that is wrong with the topics, each with what to do."""
    recorded, queues = await _known(postgres)
    if recorded is None:
        return 0, ["Postgres has no partition count on record; run `holdfast topics create`"]
    required = required_topics(recorded, queues)
    admin = KafkaAdmin(kafka)
    try:
        return recorded, check_topics(required, await admin.describe([spec.name for spec in required]))
    finally:
        await admin.close()


async def _appeared(admin: KafkaAdmin, names: Sequence[str]) -> dict[str, log.TopicDescription]:
    """What was made is known to the controller at once, and to the brokers that are asked a moment later."""
    until = time.monotonic() + _APPEAR_S
    while True:
        found = await admin.describe(names)
        if len(found) == len(set(names)) or time.monotonic() > until:
            return found
        await asyncio.sleep(0.05)


async def _known(postgres: str) -> tuple[int | None, set[str]]:
    """The partition count on record, and the queues of all stored definitions."""
    database = await open_database(postgres, "cli", connections_max=1)
    try:
        await check_schema(database)
        recorded = await PostgresCoordinatorStore(database).partition_count()
        queues: set[str] = set()
        for stored in await PostgresDefinitionStore(database).definitions():
            queues |= {task.queue for task in compile_definition(stored.body).tasks.values() if task.queue}
    finally:
        await database.close()
    return recorded, queues


def _to_make(spec: TopicSpec, replication: int) -> log.TopicSpec:
    return log.TopicSpec(spec.name, spec.partitions, replication, spec.configs)


def _config(kafka: str | KafkaConfig) -> KafkaConfig:
    return KafkaConfig(kafka) if isinstance(kafka, str) else kafka
