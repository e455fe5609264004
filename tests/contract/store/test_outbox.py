"""Section 6: rows numbered without gaps, one publisher per partition, and a zombie that can move nothing."""

import asyncio
import time

import pytest

from holdfast.core.errors import Fenced
from holdfast.store.rows import OutboxRow, Publisher
from holdfast.store.stores import Stores
from tests.contract.store.given import Coordinator, new

SHORT_S = 0.05


async def test_rows_are_numbered_without_gaps_and_read_in_order(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, 1)
    for number in range(1, 4):
        await owner.commit(advance=owner.advance(0, commands=1, body=b"%d" % number))
    await owner.commit(advance=owner.advance(0, commands=1))  # nothing to send: no number is used up
    await owner.commit(advance=owner.advance(0, commands=1, body=b"4"))
    await owner.commit(advance=owner.advance(1, commands=1, body=b"other"))
    rows = await stores.outbox.read_outbox([(0, 1), (1, 0)], rows_max=100)
    assert rows == [OutboxRow(0, 2, b"2"), OutboxRow(0, 3, b"3"), OutboxRow(0, 4, b"4"), OutboxRow(1, 1, b"other")]
    assert await stores.outbox.read_outbox([(0, 0)], rows_max=2) == [OutboxRow(0, 1, b"1"), OutboxRow(0, 2, b"2")]
    assert await stores.recovery.outbox_positions() == {0: (4, 0), 1: (1, 0), 2: (0, 0), 3: (0, 0)}


@pytest.mark.parametrize("step", [0, 2])
async def test_a_number_that_is_not_the_next_is_fenced(stores: Stores, step: int) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))
    wrong = owner.advance(commands=1, body=b"x")
    wrong.outbox_number = 1 + step
    with pytest.raises(Fenced):
        await owner.commit(advance=wrong)


async def test_leases_that_nobody_holds_are_taken_up_to_a_limit(stores: Stores) -> None:
    first = await stores.outbox.claim_publishers("relay-1", lease_s=30, most=3)
    assert [publisher.partition for publisher in first] == [0, 1, 2]
    assert await stores.outbox.claim_publishers("relay-1", lease_s=30, most=3) == []
    assert [
        publisher.partition for publisher in await stores.outbox.claim_publishers("relay-2", lease_s=30, most=9)
    ] == [3]


async def test_a_lease_that_ran_out_is_taken_over_with_a_new_epoch(stores: Stores) -> None:
    [zombie] = await stores.outbox.claim_publishers("relay-1", lease_s=SHORT_S, most=1)
    await asyncio.sleep(SHORT_S * 2)
    [taken] = await stores.outbox.claim_publishers("relay-2", lease_s=30, most=1)
    assert (taken.partition, taken.epoch) == (0, zombie.epoch + 1)
    assert await stores.outbox.renew_publishers("relay-1", [zombie], lease_s=30) == frozenset()


async def test_a_renewed_lease_is_not_taken(stores: Stores) -> None:
    mine = await stores.outbox.claim_publishers("relay-1", lease_s=SHORT_S, most=9)
    assert await stores.outbox.renew_publishers("relay-1", mine, lease_s=30) == frozenset(range(4))
    await asyncio.sleep(SHORT_S * 2)
    assert await stores.outbox.claim_publishers("relay-2", lease_s=30, most=9) == []


async def test_a_released_lease_is_free_at_once(stores: Stores) -> None:
    mine = await stores.outbox.claim_publishers("relay-1", lease_s=30, most=9)
    await stores.outbox.release_publishers("relay-1", mine[:1])
    [taken] = await stores.outbox.claim_publishers("relay-2", lease_s=30, most=9)
    assert taken.partition == 0


async def test_done_moves_and_deletes_what_is_below_it(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    for number in range(4):
        await owner.commit(advance=owner.advance(commands=1, body=b"%d" % number))
    [mine] = await stores.outbox.claim_publishers("relay-1", lease_s=30, most=1)
    assert mine.done == 0
    assert await stores.outbox.advance([Publisher(0, mine.epoch, 3)]) == {0}
    assert await stores.outbox.read_outbox([(0, 0)], rows_max=9) == [OutboxRow(0, 4, b"3")]
    assert await stores.outbox.advance([Publisher(0, mine.epoch, 2)]) == {0}  # `done` never goes back
    assert (await stores.recovery.outbox_positions())[0] == (4, 3)
    await stores.outbox.advance([Publisher(0, mine.epoch, 4)])
    assert (await stores.queries.counts()).outbox == 0


async def test_a_zombie_publisher_moves_nothing(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))
    [zombie] = await stores.outbox.claim_publishers("relay-1", lease_s=SHORT_S, most=1)
    await asyncio.sleep(SHORT_S * 2)
    await stores.outbox.claim_publishers("relay-2", lease_s=30, most=1)
    assert await stores.outbox.advance([Publisher(0, zombie.epoch, 1)]) == frozenset()
    await stores.outbox.release_publishers("relay-1", [zombie])
    assert await stores.outbox.claim_publishers("relay-3", lease_s=30, most=1) != [Publisher(0, zombie.epoch + 2, 0)]
    assert (await stores.queries.counts()).outbox == 1


async def test_a_hosted_publisher_takes_the_lease_with_the_partition_and_moves_done_with_a_commit(
    stores: Stores,
) -> None:
    [separate] = await stores.outbox.claim_publishers("relay-1", lease_s=30, most=1)
    owner = await Coordinator.owning(stores, publish=True)
    assert owner.claims[0].publisher_epoch == separate.epoch + 1
    assert await stores.outbox.advance([Publisher(0, separate.epoch, 0)]) == frozenset()
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))
    await owner.commit(advance=owner.advance(commands=1, body=b"2", done=1))
    assert await stores.outbox.read_outbox([(0, 0)], rows_max=9) == [OutboxRow(0, 2, b"2")]
    committed = await owner.commit(advance=owner.advance(commands=1, done=2))
    assert committed.publisher_lost == frozenset()
    assert (await stores.queries.counts()).outbox == 0
    assert (await stores.recovery.outbox_positions())[0] == (2, 2)


async def test_commits_keep_the_lease_of_a_hosted_publisher(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, publish=True, lease_s=0.3)
    for _ in range(5):
        await asyncio.sleep(0.1)
        await owner.commit(advance=owner.advance(commands=1))
    taken = await stores.outbox.claim_publishers("relay-1", lease_s=30, most=9)
    assert [publisher.partition for publisher in taken] == [1, 2, 3]


async def test_a_hosted_publisher_that_lost_its_lease_is_told_and_moves_nothing(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, publish=True, lease_s=SHORT_S)
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))
    await asyncio.sleep(SHORT_S * 2)
    await stores.outbox.claim_publishers("relay-1", lease_s=30, most=9)
    committed = await owner.commit(new("a"), advance=owner.advance(commands=1, body=b"2", done=1))
    assert committed.publisher_lost == {0}
    assert len(await stores.outbox.read_outbox([(0, 0)], rows_max=9)) == 2


async def test_messages_that_kafka_never_takes_are_parked_by_instance(stores: Stores) -> None:
    for _ in range(2):  # parked again after a crash: once on record
        await stores.outbox.park_outbox(
            1, 7, 0, "holdfast.tasks.gone", "orders/fulfil/a", b"frame", "unknown \x00 topic"
        )
    assert await stores.outbox.parked_instances([0, 1]) == {"orders/fulfil/a"}
    assert await stores.outbox.parked_instances([0]) == set()
    assert (await stores.queries.counts()).outbox_parked == 1


async def test_a_waiting_relay_is_seen_by_commits_and_woken(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    assert not (await owner.commit(advance=owner.advance(commands=1, body=b"1"))).relay_waiting
    await stores.outbox.read_outbox([(0, 1)], rows_max=9)
    started = time.monotonic()
    waiting = asyncio.create_task(stores.outbox.wait_for_outbox(20))
    await asyncio.sleep(0.5)
    assert not (await owner.commit(advance=owner.advance(commands=1))).relay_waiting  # nothing to send
    assert (await owner.commit(advance=owner.advance(commands=1, body=b"2"))).relay_waiting
    await stores.coordinator.wake_relay()
    await waiting
    assert time.monotonic() - started < 10
    assert not (await owner.commit(advance=owner.advance(commands=1, body=b"3"))).relay_waiting


async def test_a_relay_does_not_sleep_over_rows_that_it_has_not_read(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await stores.outbox.read_outbox([(0, 0)], rows_max=9)
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))
    async with asyncio.timeout(5):
        await stores.outbox.wait_for_outbox(60)


async def test_a_relay_that_reads_nothing_sleeps_although_there_are_rows(stores: Stores) -> None:
    """It has lost its partitions: what happens there is not for it, and it must not spin."""
    owner = await Coordinator.owning(stores)
    await stores.outbox.read_outbox([(0, 0)], rows_max=9)
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))
    await stores.outbox.wait_for_outbox(60)
    started = time.monotonic()
    await stores.outbox.wait_for_outbox(0.3)
    assert time.monotonic() - started >= 0.29


async def test_commits_of_a_hosted_publisher_wake_nobody(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, publish=True)
    await stores.outbox.read_outbox([(1, 0)], rows_max=9)
    waiting = asyncio.create_task(stores.outbox.wait_for_outbox(1))
    await asyncio.sleep(0.3)
    assert not (await owner.commit(advance=owner.advance(commands=1, body=b"1"))).relay_waiting
    await waiting
