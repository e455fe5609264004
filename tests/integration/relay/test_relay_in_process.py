"""One relay inside the test: what Kafka refuses, no LISTEN, and the way from a hosted relay to the service and back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.contracts.frame import encode_frame
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.relay.hosted import HostedLimits, HostedPublisher
from holdfast.store.listen import Listener
from holdfast.store.postgres_relays import PostgresRelays
from holdfast.store.rows import Publisher
from holdfast.store.stores import Stores
from holdfast_relay.relay import Relay, RelayLimits
from tests.integration.relay.support import PARTITIONS, Writer, check_topic, read_topic, until


@contextlib.asynccontextmanager
async def running(kafka: str, stores: Stores, holder: str = "relay/test", **limits: float) -> AsyncIterator[Relay]:
    assert stores.database is not None
    config = KafkaConfig(kafka)
    relay = Relay(
        stores.outbox,
        PostgresRelays(stores.database),
        lambda: KafkaProducer(config, unknown_topic_ms=300),
        holder=holder,
        limits=RelayLimits(lease_s=1.0, **limits),  # type: ignore[arg-type]
    )
    stopping = asyncio.Event()
    task = asyncio.create_task(relay.run(stopping))
    try:
        yield relay
    finally:
        stopping.set()
        await task


def hosted(kafka: str, stores: Stores) -> HostedPublisher:
    config = KafkaConfig(kafka)
    limits = HostedLimits(lease_s=1.0, flush_s=0.1)
    return HostedPublisher(lambda: KafkaProducer(config), stores.outbox, holder="coordinator-1", limits=limits)


async def abandon(publisher: HostedPublisher) -> None:
    """As if its process had been killed: nothing is stored, nothing is given back."""
    for task in publisher._tasks:
        task.cancel()
    await publisher._publisher.close()


async def test_an_unknown_topic_parks_its_instance_only(kafka: str, stores: Stores, writer: Writer) -> None:
    bad = "shop/order/bad"
    headers = [("hf_instance", bad.encode()), ("hf_fence", b"1")]
    async with running(kafka, stores):
        await writer.commit(0, [*writer.next_messages(0), ("no-such-topic", b"idempotency", b"bad#1", headers)])

        async def parked() -> bool:
            return await stores.outbox.parked_instances([0]) == {bad}

        await until(parked, "parked")
        follows = (writer.topic, bad.encode(), b"bad#2", [])
        await writer.commit(0, [follows, *writer.next_messages(0)])
        await writer.write(20)
        await until(writer.published, "the partition goes on")
    assert not [value for _, value in read_topic(kafka, writer.topic) if value.startswith("bad")]
    assert check_topic(kafka, writer) == 0
    assert stores.database is not None
    rows = await stores.database.fetch("SELECT number, position, error FROM holdfast.outbox_parked ORDER BY 1, 2")
    assert [(row["number"], row["position"]) for row in rows] == [(1, 4), (2, 0)]
    assert "nknown" in rows[0]["error"]
    # The next one, whoever it is, knows.
    async with running(kafka, stores, holder="relay/next"):
        await writer.commit(0, [(writer.topic, bad.encode(), b"bad#3", [])])
        await until(writer.published, "parked by another relay")
    assert await stores.database.fetchval("SELECT count(*) FROM holdfast.outbox_parked") == 3


async def test_a_commit_that_did_not_know_of_the_sleep_is_found(
    kafka: str, stores: Stores, writer: Writer, database: str
) -> None:
    """It looked for sleepers before the relay lay down, and was through only afterwards: nobody is told."""
    slow = await asyncpg.connect(database)
    async with running(kafka, stores, poll_s=600):
        await writer.write(4)
        await until(writer.published, "the relay runs")
        async with slow.transaction():
            body = encode_frame(writer.next_messages(0))
            await slow.execute("UPDATE holdfast.inbox_partitions SET outbox_last = outbox_last + 1 WHERE partition = 0")
            await slow.execute("INSERT INTO holdfast.outbox (partition, number, body) VALUES (0, 2, $1)", body)

            async def asleep() -> bool:
                return bool(await slow.fetchval("SELECT count(*) FROM holdfast.relay_waiting"))

            await until(asleep, "the relay sleeps")
            await asyncio.sleep(0.15)  # Past the second look that the store takes.
        await until(writer.published, "found", 20)
    await slow.close()
    assert check_topic(kafka, writer) == 0


async def test_it_works_without_listen(
    kafka: str, stores: Stores, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: Listener) -> bool:
        return False

    monkeypatch.setattr(Listener, "ready", never)
    async with running(kafka, stores, poll_s=0.5):
        for _ in range(3):
            await asyncio.sleep(0.2)
            await writer.write(8)
            await until(writer.published, "published", 10)
    assert check_topic(kafka, writer) == 0


async def test_hosted_and_service_hand_over_to_each_other(kafka: str, stores: Stores, writer: Writer) -> None:
    async with running(kafka, stores) as relay:
        await writer.write(40)
        await until(writer.published, "published by the service")

        publisher = hosted(kafka, stores)
        claims = await writer.claim(publish=True)
        await publisher.take(claims)
        await _commit_hosted(writer, publisher, 40)
        await until(writer.published, "published by the coordinator")

        async def nothing_held() -> bool:
            return relay.partitions == []

        await until(nothing_held, "the service has noticed")
        await _commit_hosted(writer, publisher, 40)
        await abandon(publisher)
        for partition in range(PARTITIONS):
            await writer.commit(partition, writer.next_messages(partition))
        await until(writer.published, "published by the service again")
        await _again(kafka, stores, writer)
    check_topic(kafka, writer)


async def _again(kafka: str, stores: Stores, writer: Writer) -> None:
    """A backlog written while somebody else published is published before what is newer."""
    publisher = hosted(kafka, stores)
    await publisher.take(await writer.claim(publish=True))
    await _commit_hosted(writer, publisher, 40)
    await until(writer.published, "published by the coordinator again")
    await publisher.close()


async def _commit_hosted(writer: Writer, publisher: HostedPublisher, rows: int) -> None:
    for row in range(rows):
        partition = row % PARTITIONS
        messages = writer.next_messages(partition)
        epoch, done = publisher.epoch(partition), publisher.done(partition)
        number = await writer.commit(partition, messages, epoch=epoch, done=done)
        if done is not None:
            publisher.stored(partition, done)
        publisher.publish(partition, number, messages)


async def test_done_is_where_the_delivery_reports_are(kafka: str, stores: Stores, writer: Writer) -> None:
    """Kafka is told nothing yet, so nothing is done, however much was produced."""
    producers: list[KafkaProducer] = []

    def slow() -> KafkaProducer:
        producers.append(KafkaProducer(KafkaConfig(kafka), linger_ms=1500))
        return producers[-1]

    assert stores.database is not None
    publisher = HostedPublisher(slow, stores.outbox, holder="coordinator-1", limits=HostedLimits(flush_s=0.05))
    await publisher.take(await writer.claim(publish=True, lease_s=30))
    await _commit_hosted(writer, publisher, 8)
    assert producers[0].outstanding == 32
    assert [publisher.done(partition) for partition in range(PARTITIONS)] == [None] * PARTITIONS
    assert await writer.done() == 0
    await until(writer.published, "published")
    assert producers[0].outstanding == 0
    await publisher.close()
    assert check_topic(kafka, writer) == 0


async def test_an_old_epoch_moves_nothing(stores: Stores, writer: Writer) -> None:
    await writer.write(4)
    [zombie, *_] = await stores.outbox.claim_publishers("relay/zombie", lease_s=0.0, most=PARTITIONS)
    await stores.outbox.claim_publishers("relay/heir", lease_s=60.0, most=PARTITIONS)
    assert await stores.outbox.advance([Publisher(zombie.partition, zombie.epoch, 1)]) == frozenset()
    assert await writer.done() == 0
