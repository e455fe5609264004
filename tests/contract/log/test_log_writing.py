"""What a writer may rely on, whichever log it writes to."""

import asyncio
import random

import pytest

from holdfast.core.errors import Refused
from holdfast.log.murmur2 import partition_for
from holdfast.log.protocol import Delivery, Message, TopicPartition
from tests.contract.log.harness import Harness


async def test_a_key_goes_where_murmur2_says(log: Harness) -> None:
    topic = await log.topic(13)
    chosen = random.Random(7)
    keys = [chosen.randbytes(chosen.randrange(0, 60)) for _ in range(1000)]
    keys += [f"orders/order-fulfillment/order-{n}".encode() for n in range(1000)]
    deliveries = await log.producer().send_all([Message(topic, key, b"") for key in keys])
    assert [delivery.partition for delivery in deliveries] == [partition_for(key, 13) for key in keys]


async def test_delivery_reports_tell_partition_and_offset_in_the_order_of_the_messages(log: Harness) -> None:
    topic = await log.topic(3)
    producer = log.producer()
    for start in (0, 200):
        deliveries = await producer.send_all([Message(topic, b"k", b"v", partition=n % 3) for n in range(600)])
        assert deliveries == [Delivery(topic, n % 3, start + n // 3) for n in range(600)]
    ends = await log.admin.end_offsets([TopicPartition(topic, n) for n in range(3)])
    assert set(ends.values()) == {400}


async def test_publish_calls_done_once_when_everything_is_reported(log: Harness) -> None:
    topic = await log.topic(2)
    producer = log.producer()
    reports: list[list[Delivery]] = []
    for _ in range(5):
        producer.publish([Message(topic, b"k%d" % n, b"v") for n in range(100)], reports.append)
    assert reports == []  # never from inside the call
    assert producer.outstanding == 500
    assert await producer.flush(10) == 0
    assert [len(report) for report in reports] == [100] * 5
    assert all(delivery.error is None and delivery.offset >= 0 for report in reports for delivery in report)


async def test_publishing_nothing_is_reported_too(log: Harness) -> None:
    assert await asyncio.wait_for(log.producer().send_all([]), 10) == []


async def test_send_reports_one_message(log: Harness) -> None:
    topic = await log.topic()
    reported: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    producer = log.producer()
    producer.send(Message(topic, b"k", b"silent"))
    producer.send(Message(topic, b"k", b"v"), reported.set_result)
    assert await asyncio.wait_for(reported, 10) == Delivery(topic, 0, 1)


async def test_an_unknown_topic_is_a_permanent_error_in_bounded_time(log: Harness) -> None:
    topic = await log.topic()
    deliveries = await asyncio.wait_for(
        log.producer().send_all([Message("no-such-topic", b"k", b"v"), Message(topic, b"k", b"v")]), 20
    )
    assert deliveries[1] == Delivery(topic, 0, 0)
    error = deliveries[0].error
    assert error is not None
    assert (error.permanent, error.fatal, error.retriable) == (True, False, False)
    assert deliveries[0].offset == -1


async def test_a_topic_deleted_under_the_producer_is_a_permanent_error(log: Harness) -> None:
    topic = await log.topic()
    producer = log.producer()
    assert (await producer.send_all([Message(topic, b"k", b"v")]))[0].error is None
    await log.admin.delete_topics([topic])
    (delivery,) = await asyncio.wait_for(producer.send_all([Message(topic, b"k", b"v")]), 30)
    assert delivery.error is not None
    assert delivery.error.permanent


async def test_an_unknown_partition_is_a_permanent_error(log: Harness) -> None:
    topic = await log.topic(2)
    producer = log.producer()
    await producer.send_all([Message(topic, b"k", b"v")])
    (delivery,) = await producer.send_all([Message(topic, b"k", b"v", partition=2)])
    assert delivery.error is not None
    assert delivery.error.permanent


async def test_a_message_too_large_for_the_client_is_a_permanent_error(log: Harness) -> None:
    topic = await log.topic()
    producer = log.producer(message_bytes_max=100_000)
    large, small = await producer.send_all([Message(topic, b"k", b"x" * 200_000), Message(topic, b"k", b"v")])
    assert large.error is not None
    assert large.error.permanent
    assert small == Delivery(topic, 0, 0)


async def test_a_message_too_large_for_the_topic_is_a_permanent_error_and_the_next_one_goes(log: Harness) -> None:
    topic = await log.topic(max_message_bytes="50000")
    producer = log.producer()
    (large,) = await producer.send_all([Message(topic, b"k", b"x" * 200_000)])
    assert large.error is not None
    assert large.error.permanent
    assert await producer.send_all([Message(topic, b"k", b"v")]) == [Delivery(topic, 0, 0)]


async def test_a_payload_of_one_mebibyte_and_its_headers_go_through(log: Harness) -> None:
    topic = await log.topic(max_message_bytes="1200000")
    headers = [(f"header-{n}", b"x" * 200) for n in range(9)]
    (delivery,) = await log.producer().send_all([Message(topic, b"k", b"x" * 1024 * 1024, headers)])
    assert delivery.error is None
    member = await log.member(topic)
    (record,) = await member.read(1)
    assert record.value is not None
    assert len(record.value) == 1024 * 1024


async def test_close_drains_what_was_published(log: Harness) -> None:
    topic = await log.topic()
    producer = log.producer()
    reports: list[list[Delivery]] = []
    producer.publish([Message(topic, b"k", b"%d" % n) for n in range(500)], reports.append)
    assert await producer.close() == 0
    assert [delivery.offset for delivery in reports[0]] == list(range(500))
    with pytest.raises(Refused):
        producer.send(Message(topic, b"k", b"v"))


async def test_a_callback_that_raises_keeps_no_report_from_the_others(log: Harness) -> None:
    topic = await log.topic()
    producer = log.producer()

    def wrong(_: list[Delivery]) -> None:
        raise LookupError

    producer.publish([Message(topic, b"k", b"v")], wrong)
    assert (await asyncio.wait_for(producer.send_all([Message(topic, b"k", b"v")]), 10))[0].error is None
    assert await producer.flush(10) == 0
