"""A lost dispatch is told from a backlog, from an unpublished one, and from one in a worker's hands."""

import asyncio

import pytest

from holdfast.log.protocol import TopicPartition, TopicSpec
from tests.unit.recovery.doubles import KEY, QUEUE, TOPIC, Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_a_dispatch_in_the_backlog_is_not_lost(shop: Shop) -> None:
    for fence in range(1, 6):
        shop.dispatch(QUEUE, fence)
    shop.commit(2)
    shop.rows.queued = shop.rows.queued[2:]
    assert await shop.look() == []
    assert await shop.look() == []


async def test_a_dispatch_that_the_group_has_passed_is_lost(shop: Shop) -> None:
    for fence in (1, 2, 3):
        shop.dispatch(QUEUE, fence)
    shop.commit(2)
    assert await shop.look() == [1, 2]


async def test_a_young_one_is_nobodys_business(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1, publish=False)
    await shop.dispatches.step()
    assert shop.ticks() == []


async def test_one_that_is_not_published_yet_is_late_and_not_lost(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1, publish=False)
    shop.rows.outbox[0] = (7, 6)
    assert await shop.look() == []
    shop.rows.outbox[0] = (7, 7)
    assert await shop.look() == [1]


async def test_what_is_written_after_the_task_was_seen_does_not_matter(shop: Shop) -> None:
    """The relay is always a little behind the newest row of a busy partition."""
    shop.dispatches = shop.loop(publish_wait_s=5.0)
    shop.dispatch(QUEUE, 1, publish=False)
    shop.rows.outbox[0] = (7, 6)
    look = asyncio.create_task(shop.look())
    await asyncio.sleep(0.01)
    shop.rows.outbox[0] = (9, 7)
    assert await look == [1]


async def test_every_page_is_looked_at(shop: Shop) -> None:
    shop.dispatches = shop.loop(page_rows=10)
    for fence in range(1, 36):
        shop.dispatch(QUEUE, fence)
    shop.commit(30)
    assert [fence for _ in range(4) for fence in await shop.look()] == list(range(1, 31))
    assert shop.scanner.scanned == 5
    assert await shop.look() == list(range(1, 11))  # A new round: nobody has answered yet.


async def test_a_parked_dispatch_waits_for_an_operator(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1, publish=False)
    shop.rows.parked.add(KEY)
    assert await shop.look() == []


async def test_a_report_that_is_not_processed_yet_may_still_speak_for_it(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1)
    shop.report()
    shop.commit(1)
    shop.clock.s += 11
    look = asyncio.create_task(shop.dispatches.step())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not look.done()  # Waits for the coordinator.
    shop.rows.queued.clear()  # The report was `started`.
    shop.coordinator_catches_up()
    await look
    assert shop.ticks() == []


async def test_the_reports_are_asked_for_after_the_committed_offset(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker reports and commits between our two questions: in the other order its report would be overlooked."""
    shop.dispatch(QUEUE, 1)
    committed = shop.admin.committed

    async def worker_is_quick(group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        shop.report()
        shop.commit(1)
        return await committed(group, partitions)

    monkeypatch.setattr(shop.admin, "committed", worker_is_quick)
    shop.clock.s += 11
    look = asyncio.create_task(shop.dispatches.step())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not look.done()
    shop.rows.queued.clear()
    shop.coordinator_catches_up()
    await look
    assert shop.ticks() == []


async def test_a_topic_that_was_made_again_has_lost_what_was_in_it(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1)
    shop.dispatch(QUEUE, 2)
    assert await shop.look() == []
    shop.log.delete(TOPIC)
    assert await shop.look() == []  # Nobody could be given it now; wait until the topic is there.
    shop.log.create(TopicSpec(TOPIC, 2))
    shop.dispatch(QUEUE, 3)
    assert await shop.look() == [1, 2]


async def test_an_offset_committed_beyond_the_end_is_of_an_earlier_topic(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1, publish=False)
    shop.dispatch(QUEUE, 2)
    shop.commit(50)
    assert await shop.look() == [1]


async def test_the_log_start_counts_like_a_committed_offset(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1)
    shop.dispatch(QUEUE, 2)
    await shop.admin.delete_records_before({TopicPartition(TOPIC, 0): 1})
    assert await shop.look() == [1]


async def test_a_new_fence_is_another_dispatch(shop: Shop) -> None:
    shop.dispatch(QUEUE, 1)
    shop.rows.queued.clear()
    shop.dispatch(QUEUE, 2, publish=False)
    assert await shop.look() == [2]


async def test_a_backlog_is_read_once(shop: Shop) -> None:
    for fence in range(1, 101):
        shop.dispatch(QUEUE, fence)
    assert await shop.look() == []
    assert shop.scanner.scanned == 100
    shop.commit(40)
    shop.rows.queued = shop.rows.queued[40:]
    shop.dispatch(QUEUE, 101)
    assert await shop.look() == []
    assert shop.scanner.scanned == 101


async def test_offsets_that_were_reset_are_read_again(shop: Shop) -> None:
    for fence in range(1, 11):
        shop.dispatch(QUEUE, fence)
    shop.commit(10)
    shop.rows.queued = shop.rows.queued[:5]
    shop.commit(5)
    assert await shop.look() == [1, 2, 3, 4, 5]
    shop.commit(2)
    assert await shop.look() == [1, 2]


async def test_more_than_can_be_remembered_is_never_called_lost(shop: Shop) -> None:
    shop.dispatches = shop.loop(backlog_records_max=50)
    for fence in range(1, 101):
        shop.dispatch(QUEUE, fence)
    assert await shop.look() == []
    shop.commit(60)
    assert await shop.look() == list(range(1, 61))
