"""Relays as processes: killed, frozen, side by side."""

import asyncio

import pytest

from tests.integration.relay.conftest import StartRelay
from tests.integration.relay.support import PARTITIONS, Writer, check_topic, holders, until

pytestmark = pytest.mark.chaos


async def test_everything_is_published_in_order_and_nothing_is_left(
    kafka: str, writer: Writer, start_relay: StartRelay
) -> None:
    await writer.write(200)
    relay = start_relay()
    await writer.write(200)
    await until(writer.published, "everything published")
    assert check_topic(kafka, writer) == 0
    assert await writer.stores.outbox.read_outbox([(p, 0) for p in range(PARTITIONS)], rows_max=10) == []
    await until(relay.ready, "ready")


async def test_a_sleeping_relay_is_woken(kafka: str, writer: Writer, start_relay: StartRelay) -> None:
    relay = start_relay(relay_poll_s=600)
    await until(relay.ready, "ready")
    for _ in range(3):
        await asyncio.sleep(0.3)  # Long enough to fall asleep.
        await writer.write(4)
        await until(writer.published, "published", 10)
    assert check_topic(kafka, writer) == 0


async def test_a_killed_relay_loses_nothing_and_repeats_at_most(
    kafka: str, writer: Writer, start_relay: StartRelay
) -> None:
    writing = asyncio.create_task(writer.write(2000))
    for kills in range(1, 4):
        relay = start_relay()

        async def some_more(goal: int = kills * 300) -> bool:
            return await writer.done() >= goal

        await until(some_more, "some rows published")
        relay.kill()
    start_relay()
    await writing
    await until(writer.published, "everything published")
    check_topic(kafka, writer)


async def test_two_relays_share_and_one_takes_over_from_the_other(
    kafka: str, database: str, writer: Writer, start_relay: StartRelay
) -> None:
    first = start_relay()
    await until(first.ready, "ready")

    async def one_has_all() -> bool:
        return [len(held) for held in (await holders(database)).values()] == [PARTITIONS]

    async def both_have_half() -> bool:
        return [len(held) for held in (await holders(database)).values()] == [PARTITIONS // 2] * 2

    await until(one_has_all, "the only relay holds everything")
    second = start_relay()
    await until(both_have_half, "the second relay gets its half")
    await writer.write(100)
    await until(writer.published, "published by both")
    second.kill()
    await writer.write(100)
    await until(writer.published, "published by the one that is left")
    await until(one_has_all, "the one that is left holds everything")
    check_topic(kafka, writer)


async def test_a_relay_that_drains_gives_its_leases_back(
    database: str, writer: Writer, start_relay: StartRelay
) -> None:
    relay = start_relay(relay_lease_s=600)

    async def held() -> bool:
        return bool(await holders(database))

    await until(held, "claimed")
    await writer.write(40)
    assert await asyncio.to_thread(relay.stop) == 0
    assert await holders(database) == {}


async def test_a_zombie_only_repeats_and_cannot_move_done(
    kafka: str, database: str, writer: Writer, start_relay: StartRelay
) -> None:
    zombie = start_relay()
    await until(zombie.ready, "ready")
    writing = asyncio.create_task(writer.write(1000))

    async def in_the_middle() -> bool:
        return await writer.done() >= 200

    await until(in_the_middle, "in the middle of it")
    zombie.freeze()
    start_relay()
    await writing
    await until(writer.published, "everything published by its successor")
    positions = await writer.stores.recovery.outbox_positions()
    zombie.thaw()

    async def noticed() -> bool:
        return await zombie.metric("holdfast_outbox_leases_lost_total") >= 1

    await until(noticed, "the zombie noticed")
    assert await writer.stores.recovery.outbox_positions() == positions
    check_topic(kafka, writer)
