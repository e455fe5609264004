"""Partitions come and go: who is told what, and what is never handed out."""

import asyncio

import pytest

from holdfast.core.errors import Fenced
from holdfast.log.protocol import TopicPartition
from tests.contract.log.harness import Harness, until


async def test_range_puts_equal_partition_numbers_of_three_topics_in_one_hand(log: Harness) -> None:
    topics, group = [await log.topic(5) for _ in range(3)], log.group()
    one = await log.member(topics, group)
    await until(lambda: len(one.owned) == 15, "all of it")
    two = await log.member(topics, group)
    await until(lambda: len(one.owned) + len(two.owned) == 15 and two.owned, "a split")
    for member in (one, two):
        numbers = {topic: {tp.partition for tp in member.owned if tp.topic == topic} for topic in topics}
        assert len({frozenset(found) for found in numbers.values()}) == 1
    assert not one.owned & two.owned


async def test_revoked_is_awaited_before_anybody_else_is_assigned(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    one = await log.member(topic, group)
    asked, release = asyncio.Event(), asyncio.Event()

    async def take_time() -> None:
        asked.set()
        await release.wait()

    one.before_revoked = take_time
    two = await log.member(topic, group, wait=False)
    still_mine = {TopicPartition(topic, 0): 1}
    await one.consumer.commit(still_mine, wait=True)  # Not yet revoked: ours to commit.
    await asyncio.wait_for(asked.wait(), 20)
    await asyncio.sleep(1)  # Were it not awaited, the other would have its part in a few milliseconds.
    assert two.heard == []
    release.set()
    await until(lambda: len(one.owned) == 1 and len(two.owned) == 1, "one partition each")
    assert one.words == ["assigned", "revoked", "assigned"]
    assert two.words == ["assigned"]


async def test_a_commit_inside_revoked_counts(log: Harness) -> None:
    topic, group = await log.topic(1), log.group()
    partition = TopicPartition(topic, 0)
    await log.write(topic, 10)
    one = await log.member(topic, group)
    await one.read(6, records_max=6)

    async def finish() -> None:
        await one.consumer.commit({partition: 6}, wait=True)

    one.before_revoked = finish
    await one.consumer.close()
    two = await log.member(topic, group)
    assert [r.offset for r in await two.read(4)] == [6, 7, 8, 9]


async def test_a_revoked_that_takes_too_long_does_not_hold_up_the_others(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    one = await log.member(topic, group, revoke_timeout_s=0.5)
    one.before_revoked = asyncio.Event().wait
    two = await log.member(topic, group)
    assert len(two.owned) == 1
    one.before_revoked = None


async def test_a_session_that_ended_is_lost_and_not_revoked(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    await log.write(topic, 10)
    one = await log.member(topic, group)
    owned = sorted(one.owned)
    await log.expel(group, one.consumer)
    await until(lambda: "lost" in one.words, "lost")
    assert one.heard[:2] == [("assigned", owned), ("lost", owned)]
    # It joins again by itself, as a new member.
    await until(lambda: one.words == ["assigned", "lost", "assigned"], "assigned again")
    assert len(await one.read(10)) == 10


async def test_who_was_expelled_and_does_not_know_it_cannot_commit(log: Harness) -> None:
    topic, group = await log.topic(1), log.group()
    # A long session has a slow heartbeat, by which it would find out.
    one = await log.member(topic, group, **log.long_session)
    found_out = asyncio.Event()
    await log.expel(group, one.consumer, unaware_until=found_out)
    with pytest.raises(Fenced):
        await one.consumer.commit({TopicPartition(topic, 0): 3}, wait=True)
    found_out.set()
    await until(lambda: "lost" in one.words, "lost")


async def test_buffered_records_of_a_revoked_partition_are_never_returned(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    await log.write(topic, 800, partition=0)
    await log.write(topic, 800, partition=1)
    one = await log.member(topic, group)
    await one.read(5, records_max=5)  # the others are buffered by now, or will be
    two = await log.member(topic, group)
    await until(lambda: len(one.owned) == 1 and len(two.owned) == 1, "one partition each")
    (mine,) = one.owned
    # Nothing was committed: a clean start at 0 of what is mine, and nothing of what is not.
    records = await one.read(800)
    assert [(r.partition, r.offset) for r in records] == [(mine.partition, n) for n in range(800)]
    one.consumer.wake()
    assert await one.consumer.batch(500) == []


async def test_buffered_records_of_a_lost_partition_are_never_returned(log: Harness) -> None:
    topic, group = await log.topic(1), log.group()
    partition = TopicPartition(topic, 0)
    await log.write(topic, 800)
    one = await log.member(topic, group)
    await one.read(5, records_max=5)
    one.starts = {partition: 700}
    await log.expel(group, one.consumer)
    await until(lambda: one.words == ["assigned", "lost", "assigned"], "lost and assigned")
    assert [r.offset for r in await one.read(100)] == list(range(700, 800))


async def test_nothing_is_read_before_assigned_has_answered(log: Harness) -> None:
    topic = await log.topic(1)
    await log.write(topic, 10)
    answer = asyncio.Event()
    one = await log.member(topic, wait=False)
    one.before_assigned = answer.wait
    waiting = asyncio.create_task(one.consumer.batch(10))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    assert not one.owned
    answer.set()
    assert await asyncio.wait_for(waiting, 10)


async def test_close_awaits_revoked_and_hands_over_at_once(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    one = await log.member(topic, group)
    two = await log.member(topic, group)
    await until(lambda: len(one.owned) == 1, "one partition each")
    async with asyncio.timeout(5):  # less than the session time-out: it says goodbye
        await one.consumer.close()
        await until(lambda: len(two.owned) == 2, "both")
    assert one.words[-1] == "revoked"
    assert one.owned == frozenset()


async def test_close_does_not_wait_for_an_assigned_that_never_answers(log: Harness) -> None:
    topic = await log.topic(1)
    one = await log.member(topic, wait=False)
    asked = asyncio.Event()

    async def never() -> None:
        asked.set()
        await asyncio.Event().wait()

    one.before_assigned = never
    await asyncio.wait_for(asked.wait(), 20)
    await asyncio.wait_for(one.consumer.close(), 10)
    assert one.words == []


async def test_an_assigned_that_raises_surfaces_from_batch(log: Harness) -> None:
    topic = await log.topic(1)
    one = await log.member(topic, wait=False)

    async def wrong() -> None:
        raise LookupError("no such row")

    one.before_assigned = wrong
    with pytest.raises(LookupError, match="no such row"):
        await asyncio.wait_for(one.consumer.batch(10), 20)


async def test_a_topic_that_is_made_later_is_assigned_then(log: Harness) -> None:
    name = f"later-{log.group()}"
    member = await log.member(name, wait=False)
    await log.topic(2, name=name)
    await until(lambda: len(member.owned) == 2, "the new topic")
