"""An outbox in real Postgres, a topic in real Kafka, and relays as real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import confluent_kafka

from holdfast.contracts.frame import FramedMessage, encode_frame
from holdfast.embedded.ports import free_ports
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.protocol import TopicSpec
from holdfast.store.rows import Claim, Commit, PartitionAdvance
from holdfast.store.stores import Stores

PARTITIONS = 4
WAIT_S = 60.0


async def until(condition: Callable[[], Awaitable[bool]], what: str, wait_s: float = WAIT_S) -> None:
    end = time.monotonic() + wait_s
    while not await condition():
        assert time.monotonic() < end, f"not within {wait_s} s: {what}"
        await asyncio.sleep(0.02)


async def make_topic(kafka: str, partitions: int = 3) -> str:
    name = f"relay-test-{uuid.uuid4().hex[:12]}"
    admin = KafkaAdmin(KafkaConfig(kafka))
    await admin.create([TopicSpec(name, partitions)])
    return name


@dataclass
class Writer:
    """The coordinator's part: commits rows of messages, numbered without gaps."""

    stores: Stores
    topic: str
    claims: dict[int, Claim] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    async def claim(self, *, publish: bool = False, lease_s: float = 1.0) -> list[Claim]:
        claims = await self.stores.coordinator.claim(
            range(PARTITIONS), "coordinator-1", publish=publish, publisher_lease_s=lease_s
        )
        self.claims = {claim.partition: claim for claim in claims}
        self.last = {claim.partition: claim.outbox_last for claim in claims}
        return claims

    def next_messages(self, partition: int, count: int = 4, instances: int = 3) -> list[FramedMessage]:
        made: list[FramedMessage] = []
        for place in range(count):
            instance = f"shop/order/{partition}-{place % instances}"
            number = self.counts[instance] = self.counts.get(instance, 0) + 1
            made.append((self.topic, instance.encode(), f"{instance}#{number}".encode(), [("ce_id", b"%d" % number)]))
        return made

    async def commit(
        self, partition: int, messages: list[FramedMessage], *, epoch: int | None = None, done: int | None = None
    ) -> int:
        claim = self.claims[partition]
        number = self.last[partition] + 1
        inbox = (claim.commands_next, claim.reports_next, claim.ticks_next)
        advance = PartitionAdvance(
            partition,
            claim.epoch,
            *(offset for at in inbox for offset in (at, at)),
            outbox_number=number,
            outbox_body=encode_frame(messages),
            publisher_epoch=epoch,
            outbox_done=done,
        )
        committed = await self.stores.coordinator.commit(Commit([advance], claim.now, "writer"))
        self.last[partition] = number
        if committed.relay_waiting:
            await self.stores.coordinator.wake_relay()
        return number

    async def write(self, rows: int) -> None:
        for row in range(rows):
            partition = row % PARTITIONS
            await self.commit(partition, self.next_messages(partition))

    async def published(self) -> bool:
        positions = await self.stores.recovery.outbox_positions()
        return all(last == done for last, done in positions.values())

    async def done(self) -> int:
        return sum(done for _, done in (await self.stores.recovery.outbox_positions()).values())


def read_topic(kafka: str, topic: str) -> list[tuple[str, str]]:
    """Everything in the topic as (key, value), in the order of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "relay-test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        ends, found = 0, []
        while ends < len(partitions):
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    ends += 1
                else:
                    found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
        return found
    finally:
        consumer.close()


def check_topic(kafka: str, writer: Writer) -> int:
    """Nothing is lost, nothing is made up, first occurrences are in order; how many repetitions there were."""
    seen: dict[str, list[str]] = {}
    records = read_topic(kafka, writer.topic)
    for key, value in records:
        if value not in seen.setdefault(key, []):
            seen[key].append(value)
    assert seen == {key: [f"{key}#{n}" for n in range(1, count + 1)] for key, count in writer.counts.items()}
    return len(records) - sum(writer.counts.values())


class RelayProcess:
    """`python -m holdfast_relay`, in a process group of its own."""

    def __init__(self, kafka: str, database: str, log: Path, **settings: object) -> None:
        self.log = log
        [self.port] = free_ports(1)
        env = {
            **os.environ,
            "HOLDFAST_KAFKA": kafka,
            "HOLDFAST_POSTGRES": database,
            "HOLDFAST_HEALTH_PORT": str(self.port),
            "HOLDFAST_RELAY_LEASE_S": "1",
            **{f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()},
        }
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast_relay"], env=env, stdout=out, stderr=out, start_new_session=True
            )

    async def ready(self) -> bool:
        return await asyncio.to_thread(self._status, "/readyz") == 200

    def _status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=1) as answer:
                return int(answer.status)
        except OSError:
            assert self.process.poll() is None, self.log.read_text()
            return 0

    async def metric(self, name: str) -> float:
        def read() -> float:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(f"{name} "):
                        return float(line.split()[1])
            return 0.0

        return await asyncio.to_thread(read)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.thaw()
            self.process.terminate()
        return self.process.wait(30)


async def holders(database: str) -> dict[str, list[int]]:
    """holder -> partitions, of leases that have not run out."""
    connection = await asyncpg.connect(database)
    try:
        rows = await connection.fetch(
            "SELECT holder, partition FROM holdfast.outbox_partitions WHERE lease_until > clock_timestamp() ORDER BY 2"
        )
    finally:
        await connection.close()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["holder"], []).append(row["partition"])
    return found
