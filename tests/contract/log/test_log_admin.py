"""What may be asked of the log itself."""

import pytest

from holdfast.core.errors import Refused
from holdfast.log.protocol import TopicPartition, TopicSpec
from tests.contract.log.harness import Harness, until


async def test_making_a_topic_twice_makes_it_once(log: Harness) -> None:
    name = log.group()
    spec = TopicSpec(name, 3, configs={"retention.ms": "-1"})
    assert await log.admin.create([spec]) == {name}
    assert await log.admin.create([spec]) == set()
    described = (await log.admin.describe([name, "no-such-topic"]))[name]
    assert (described.partitions, described.replication, described.configs["retention.ms"]) == (3, 1, "-1")
    assert list(await log.admin.describe([name, "no-such-topic"])) == [name]


async def test_a_topic_made_again_has_another_id(log: Harness) -> None:
    name = await log.topic()
    before = (await log.admin.topic_ids([name]))[name]
    assert (await log.admin.topic_ids([name, "no-such-topic"])) == {name: before}
    assert await log.admin.delete_topics([name, "no-such-topic"]) == {name}
    while not await log.admin.create([TopicSpec(name, 1)]):
        pass  # The broker deletes in its own time.
    assert (await log.admin.topic_ids([name]))[name] != before


async def test_start_and_end_offsets_follow_the_log(log: Harness) -> None:
    topic = await log.topic(2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await log.write(topic, 10)
    assert await log.admin.end_offsets([one, two]) == {one: 10, two: 0}
    await log.admin.delete_records_before({one: 4})
    assert await log.admin.start_offsets([one, two]) == {one: 4, two: 0}
    assert await log.admin.end_offsets([one]) == {one: 10}
    with pytest.raises(Refused):
        await log.admin.delete_records_before({one: 99})


async def test_offsets_of_what_does_not_exist_are_missing(log: Harness) -> None:
    there, nowhere = TopicPartition(await log.topic(), 0), TopicPartition("no-such-topic", 0)
    assert await log.admin.end_offsets([there, nowhere]) == {there: 0}
    assert await log.admin.committed("no-such-group", [there]) == {}


async def test_altered_settings_leave_the_others_alone(log: Harness) -> None:
    topic = await log.topic(retention_ms="1000", max_message_bytes="50000")
    await log.admin.alter_configs(topic, {"retention.ms": "-1"})
    configs = (await log.admin.describe([topic]))[topic].configs
    assert (configs["retention.ms"], configs["max.message.bytes"]) == ("-1", "50000")
    with pytest.raises(Refused):
        await log.admin.alter_configs("no-such-topic", {"retention.ms": "-1"})


async def test_a_topic_cannot_lose_partitions(log: Harness) -> None:
    topic = await log.topic(3)
    with pytest.raises(Refused):
        await log.admin.add_partitions(topic, 2)


async def test_the_members_of_a_group_and_what_they_hold(log: Harness) -> None:
    topic, group = await log.topic(2), log.group()
    assert await log.admin.group_members(group) == []
    one, two = await log.member(topic, group), await log.member(topic, group)
    await until(lambda: len(one.owned) == 1 and len(two.owned) == 1, "one partition each")
    held = sorted(tp for member in await log.admin.group_members(group) for tp in member.partitions)
    assert held == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
