"""What a reader may rely on, whichever log it reads."""

import asyncio

import pytest

from holdfast.log.protocol import Message, TopicPartition
from tests.contract.log.harness import Harness, read, until


async def test_a_batch_returns_what_is_there_and_never_waits_to_be_full(log: Harness) -> None:
    topic = await log.topic()
    member = await log.member(topic)
    for number in range(3):
        # Were it waiting for 500, the next message, which is written only afterwards, would never come.
        await log.write(topic, 1, start=number)
        batch = await asyncio.wait_for(member.consumer.batch(500), 10)
        assert [record.value for record in batch] == [b"%d" % number]


async def test_a_batch_has_at_most_as_many_records_as_asked_for(log: Harness) -> None:
    topic = await log.topic()
    await log.write(topic, 25)
    member = await log.member(topic)
    sizes, values = [], []
    while len(values) < 25:
        batch = await member.consumer.batch(10)
        sizes.append(len(batch))
        values += [record.value for record in batch]
    assert max(sizes) <= 10
    assert values == [b"%d" % n for n in range(25)]


async def test_order_holds_within_a_partition(log: Harness) -> None:
    topic = await log.topic(4)
    member = await log.member(topic)
    messages = [Message(topic, b"key-%d" % (n % 20), b"%d" % n) for n in range(3000)]
    await log.producer().send_all(messages)
    seen: dict[bytes, list[int]] = {}
    next_offset = dict.fromkeys(range(4), 0)
    for record in await member.read(3000, records_max=170):
        assert record.key is not None
        assert record.value is not None
        seen.setdefault(record.key, []).append(int(record.value))
        assert record.offset == next_offset[record.partition]
        next_offset[record.partition] += 1
    assert sorted(seen) == sorted({message.key for message in messages if message.key})
    assert all(numbers == sorted(numbers) and len(numbers) == 150 for numbers in seen.values())


async def test_headers_null_keys_and_tombstones_survive(log: Harness) -> None:
    topic = await log.topic()
    member = await log.member(topic)
    headers = [("ce_type", b"x"), ("empty", b""), ("null", None), ("ce_type", b"again"), ("bytes", b"\x00\xff")]
    await log.producer().send_all(
        [
            Message(topic, b"tombstone", None, partition=0),
            Message(topic, None, b"no key", headers, partition=0),
            Message(topic, b"", b"", (), partition=0),
        ]
    )
    tombstone, keyless, empty = await member.read(3)
    assert (tombstone.key, tombstone.value, list(tombstone.headers)) == (b"tombstone", None, [])
    assert (keyless.key, keyless.value, list(keyless.headers)) == (None, b"no key", headers)
    assert (empty.key, empty.value) == (b"", b"")


async def test_start_offsets_of_the_caller_win_over_committed_ones(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.write(topic, 10, partition=0)
    await log.write(topic, 10, partition=1)
    before = await log.member(topic, group)
    await before.consumer.commit({one: 2, two: 7}, wait=True)
    await before.consumer.close()
    member = await log.member(topic, group, starts={one: 5})
    offsets = {(r.partition, r.offset) for r in await member.read(8)}
    assert offsets == {(0, n) for n in range(5, 10)} | {(1, n) for n in range(7, 10)}


async def test_a_new_group_starts_at_the_earliest_record_that_is_still_there(log: Harness) -> None:
    topic = await log.topic()
    await log.write(topic, 10)
    await log.admin.delete_records_before({TopicPartition(topic, 0): 4})
    member = await log.member(topic)
    assert [record.offset for record in await member.read(6)] == list(range(4, 10))


async def test_a_start_offset_below_the_log_start_reads_on_from_there(log: Harness) -> None:
    topic = await log.topic()
    await log.write(topic, 10)
    await log.admin.delete_records_before({TopicPartition(topic, 0): 4})
    member = await log.member(topic, starts={TopicPartition(topic, 0): 1})
    assert (await member.read(1))[0].offset == 4


async def test_a_paused_partition_is_silent_and_loses_nothing(log: Harness) -> None:
    topic = await log.topic(2)
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.write(topic, 100, partition=0)
    member = await log.member(topic)
    head = await member.read(10, records_max=10)  # the rest of the hundred sits in some buffer now
    member.consumer.pause([paused])
    await log.write(topic, 50, partition=0, start=100)
    await log.write(topic, 50, partition=1)
    assert {record.partition for record in await member.read(50)} == {other.partition}
    member.consumer.resume([paused])
    rest = await member.read(140)
    assert [record.offset for record in head + rest] == list(range(150))


async def test_a_pause_ends_with_the_assignment(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    await log.write(topic, 5, partition=0)
    member = await log.member(topic, group)
    member.consumer.pause([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    second = await log.member(topic, group)
    await until(lambda: len(member.owned) == 1 and len(second.owned) == 1, "one partition each")
    await second.consumer.close()
    await until(lambda: len(member.owned) == 2, "both again")
    assert len(await member.read(5)) == 5


async def test_seek_decides_what_comes_next_whatever_was_buffered(log: Harness) -> None:
    topic = await log.topic()
    partition = TopicPartition(topic, 0)
    await log.write(topic, 1000)
    member = await log.member(topic)
    for target in (900, 10, 500, 0):
        member.consumer.seek({partition: target})
        assert [r.offset for r in await member.read(20, records_max=20)] == list(range(target, target + 20))


async def test_of_two_seeks_the_later_one_counts(log: Harness) -> None:
    topic = await log.topic()
    partition = TopicPartition(topic, 0)
    await log.write(topic, 100)
    member = await log.member(topic)
    await member.read(1)
    member.consumer.seek({partition: 80})
    member.consumer.seek({partition: 40})
    assert [r.offset for r in await member.read(60)] == list(range(40, 100))


async def test_a_paused_partition_can_be_sought(log: Harness) -> None:
    topic = await log.topic()
    partition = TopicPartition(topic, 0)
    await log.write(topic, 100)
    member = await log.member(topic)
    await member.read(5, records_max=5)
    member.consumer.pause([partition])
    member.consumer.seek({partition: 50})
    member.consumer.wake()
    assert await member.consumer.batch(10) == []
    member.consumer.resume([partition])
    assert [r.offset for r in await member.read(50)] == list(range(50, 100))


async def test_a_seek_right_after_the_assignment_is_obeyed(log: Harness) -> None:
    topic = await log.topic(2)
    await log.write(topic, 30, partition=0)
    member = await log.member(topic)
    member.consumer.seek({TopicPartition(topic, 0): 20})
    assert [r.offset for r in await member.read(10)] == list(range(20, 30))


async def test_position_is_after_the_last_record_returned_not_the_last_one_fetched(log: Harness) -> None:
    topic = await log.topic()
    partition = TopicPartition(topic, 0)
    await log.write(topic, 100)
    member = await log.member(topic, starts={partition: 10})
    assert await member.consumer.position([partition]) == {partition: 10}
    await member.read(7, records_max=7)
    assert await member.consumer.position([partition]) == {partition: 17}
    member.consumer.seek({partition: 60})
    assert await member.consumer.position([partition]) == {partition: 60}


@pytest.mark.parametrize("wait", [True, False])
async def test_a_committed_offset_is_where_the_next_member_starts(log: Harness, wait: bool) -> None:
    topic, group = await log.topic(2), log.group()
    partition, never = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.write(topic, 10)
    member = await log.member(topic, group)
    assert await member.consumer.committed([partition]) == {}
    await member.read(4, records_max=4)
    await member.consumer.commit({partition: 4}, wait=wait)
    async with asyncio.timeout(10):
        while not await member.consumer.committed([partition]):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert await log.admin.committed(group, [partition, never]) == {partition: 4}
    await member.consumer.close()
    heir = await log.member(topic, group)
    assert [r.offset for r in await heir.read(6)] == list(range(4, 10))


async def test_wake_and_close_end_a_batch_that_waits(log: Harness) -> None:
    topic = await log.topic()
    member = await log.member(topic)
    waiting = asyncio.create_task(member.consumer.batch(10))
    await asyncio.sleep(0)
    member.consumer.wake()
    assert await asyncio.wait_for(waiting, 10) == []
    waiting = asyncio.create_task(member.consumer.batch(10))
    await asyncio.sleep(0)
    await member.consumer.close()
    assert await asyncio.wait_for(waiting, 10) == []
    assert await member.consumer.batch(10) == []


async def test_topics_named_first_are_handed_out_first(log: Harness) -> None:
    late, urgent = await log.topic(), await log.topic()
    await log.write(late, 4000)
    member = await log.member([late, urgent], first=[urgent])
    await member.read(100, records_max=100)
    await log.write(urgent, 10)
    before = 0
    async with asyncio.timeout(30):
        while True:
            batch = await member.consumer.batch(10)
            if any(record.topic == urgent for record in batch):
                break
            before += len(batch)
            await asyncio.sleep(0.02)  # a consumer that works on what it got
    assert [record.topic for record in batch] == [urgent] * 10
    assert before < 1000  # thousands were waiting already


async def test_a_reader_that_falls_behind_is_not_thrown_out_and_misses_nothing(log: Harness) -> None:
    topic = await log.topic(3)
    options = {} if type(log).__name__ == "MemoryHarness" else {"buffer_records_max": 50, "poll_interval_max_ms": 6000}
    member = await log.member(topic, **options)
    for partition in range(3):
        await log.write(topic, 5000, partition=partition)
    if options:
        # Longer than its poll interval: only time can show that it goes on polling.
        await asyncio.sleep(8)
    records = await member.read(15_000, records_max=100)
    for partition in range(3):
        assert [r.offset for r in records if r.partition == partition] == list(range(5000))
    assert member.words == ["assigned"]


async def test_a_tail_reads_every_partition_from_the_moment_it_started(log: Harness) -> None:
    topic = await log.topic(3)
    for partition in range(3):
        await log.write(topic, 5, partition=partition)
    one, two = await log.tail(topic), await log.tail(topic)
    for partition in range(3):
        await log.write(topic, 2, partition=partition, start=5)
    for tail in (one, two):  # each sees all
        seen = sorted((r.partition, r.value) for r in await read(tail, 6))
        assert seen == [(p, b"%d" % n) for p in range(3) for n in (5, 6)]


async def test_a_tail_survives_new_partitions_and_misses_nothing_in_them(log: Harness) -> None:
    topic = await log.topic(1)
    tail = await log.tail(topic)
    await log.admin.add_partitions(topic, 3)
    for partition in range(3):
        await log.write(topic, 2, partition=partition)
    assert sorted(r.partition for r in await read(tail, 6)) == [0, 0, 1, 1, 2, 2]


async def test_a_tail_of_a_topic_that_is_made_later_reads_all_of_it(log: Harness) -> None:
    name = f"later-{log.group()}"
    tail = await log.tail(name)
    await log.topic(2, name=name)
    await log.write(name, 3, partition=1)
    assert [r.offset for r in await read(tail, 3)] == [0, 1, 2]
