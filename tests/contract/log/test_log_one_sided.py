"""What only one of the two logs can be asked: Kafka's full queue and broker that is away, the twin's switches."""

import asyncio

from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_consumer import KafkaConsumer
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import Delivery, Message, Record, TopicPartition
from tests.contract.log.harness import KafkaHarness, Member, MemoryHarness, until


async def test_messages_that_find_the_queue_full_wait_in_order(kafka: str) -> None:
    harness = KafkaHarness(kafka)
    topic = await harness.topic()
    producer = KafkaProducer(KafkaConfig(kafka, {"queue.buffering.max.messages": "50"}))
    waiting = [
        asyncio.create_task(producer.send_all([Message(topic, b"k", b"%d" % (start + n)) for n in range(400)]))
        for start in (0, 400, 800)
    ]
    deliveries = [delivery for reports in await asyncio.gather(*waiting) for delivery in reports]
    assert [delivery.offset for delivery in deliveries] == list(range(1200))
    member = await harness.member(topic)
    assert [record.value for record in await member.read(1200)] == [b"%d" % n for n in range(1200)]
    assert await producer.close() == 0
    await harness.close()


async def test_nothing_is_given_up_while_no_broker_answers_until_it_is_purged() -> None:
    producer = KafkaProducer(KafkaConfig("127.0.0.1:1"))
    reports: list[list[Delivery]] = []
    producer.publish([Message("anywhere", b"k", b"%d" % n) for n in range(10)], reports.append)
    assert await producer.flush(0.5) == 10
    assert reports == []
    assert await producer.close(0.1) == 10
    errors = [delivery.error for delivery in reports[0]]
    assert len(errors) == 10
    assert all(error is not None and error.retriable for error in errors)


async def test_records_that_were_read_before_the_thread_got_to_a_seek_are_dropped() -> None:
    # From the inside: the moment between a seek and the reader thread's next round is too short to hit from outside.
    member = Member()
    consumer = KafkaConsumer(KafkaConfig("127.0.0.1:1"), ["t"], "g", member)
    partition = TopicPartition("t", 0)
    stale = [Record("t", 0, 7, None, b"stale", (), 0), Record("t", 1, 3, None, b"other", (), 0)]
    consumer.seek({partition: 40})
    consumer.seek({partition: 50})
    consumer._deliver(stale)
    consumer._sought(partition, 1)  # the first of the two seeks: the second is still on its way
    consumer._deliver([Record("t", 0, 40, None, b"stale", (), 0)])
    consumer._sought(partition, 2)
    consumer._deliver([Record("t", 0, 50, None, b"fresh", (), 0)])
    assert [(record.partition, record.offset) for record in await consumer.batch(10)] == [(1, 3), (0, 50)]


async def test_the_twin_keeps_what_is_written_while_its_broker_is_away() -> None:
    harness = MemoryHarness()
    topic = await harness.topic()
    member = await harness.member(topic)
    producer = harness.producer()
    harness.log.stop()
    reports: list[list[Delivery]] = []
    for number in range(3):
        producer.publish([Message(topic, b"k", b"%d" % number)], reports.append)
    assert await producer.flush(0.01) == 3
    harness.log.start()
    assert [record.value for record in await member.read(3)] == [b"0", b"1", b"2"]
    await until(lambda: len(reports) == 3)
    await harness.close()


async def test_the_twin_has_zombies_that_go_on_until_they_find_out() -> None:
    harness = MemoryHarness()
    topic, group = await harness.topic(1), harness.group()
    await harness.write(topic, 10)
    zombie = await harness.member(topic, group)
    await zombie.read(2, records_max=2)
    found_out = asyncio.Event()
    await harness.expel(group, zombie.consumer, unaware_until=found_out)
    heir = await harness.member(topic, group)
    assert heir.owned == zombie.owned  # as each of them sees it
    assert [record.offset for record in await zombie.read(2, records_max=2)] == [2, 3]
    assert [record.offset for record in await heir.read(2, records_max=2)] == [0, 1]
    found_out.set()
    await until(lambda: "lost" in zombie.words, "lost")
    assert zombie.consumer.assignment == frozenset() or zombie.words[-1] == "assigned"
    await harness.close()


async def test_the_twin_does_the_same_thing_twice() -> None:
    async def run() -> list[object]:
        harness = MemoryHarness()
        topics = [await harness.topic(3, name=f"t{n}") for n in range(2)]
        one = await harness.member(topics, "g")
        for n in range(200):
            producer = harness.producer()
            await producer.send_all([Message(topics[n % 2], b"key-%d" % n, b"%d" % n)])
        seen: list[object] = [(r.topic, r.partition, r.offset) for r in await one.read(50, records_max=7)]
        two = await harness.member(topics, "g")
        await harness.expel("g", two.consumer)
        await until(lambda: "lost" in two.words and two.words[-1] == "assigned", "back again")
        seen += [one.heard, two.heard]
        seen += [(r.topic, r.partition, r.offset) for r in await one.read(50, records_max=7)]
        partition = TopicPartition(topics[0], 0)
        seen.append(await harness.admin.end_offsets([partition]))
        await harness.close()
        return seen

    assert await run() == await run()
