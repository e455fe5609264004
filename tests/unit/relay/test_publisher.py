"""What `done` means, and what happens when Kafka says no."""

import asyncio

import pytest

from holdfast.contracts.frame import decode_frame
from holdfast.relay import publisher as publisher_module
from holdfast.relay.publisher import PartitionPublisher
from tests.unit.relay.doubles import AWAY, FATAL, LATER, NEVER, Outbox, Producers, message, task, until


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def producers() -> Producers:
    return Producers()


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "_PRODUCER_DELAY_S", 0.0)
    monkeypatch.setattr("holdfast.relay.parking._RETRY_S", 0.0)


async def reading(outbox: Outbox, producers: Producers, *, done: int = 0) -> PartitionPublisher:
    publisher = PartitionPublisher(producers, outbox)
    publisher._producer_delay_s = 0.0
    publisher.open(0, 1, done, None, ())
    return publisher


async def test_rows_go_out_in_order_and_several_are_under_way_at_once(outbox: Outbox, producers: Producers) -> None:
    for number in (3, 1, 2):
        outbox.put(0, number, message("a", f"{number}x"), message("b", f"{number}y"))
    publisher = await reading(outbox, producers)
    assert await publisher.read_more() == 3
    assert producers.newest.values == ["1x", "1y", "2x", "2y", "3x", "3y"]


async def test_done_moves_only_over_rows_with_nothing_missing_before_them(outbox: Outbox, producers: Producers) -> None:
    for number in (1, 2, 3):
        outbox.put(0, number, message("a", str(number)))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    lane = publisher.lanes[0]
    one, two, three = producers.newest.calls
    three.arrive()
    two.arrive()
    assert lane.done == 0
    one.arrive()
    assert lane.done == 3
    assert publisher.in_flight_bytes == 0


async def test_a_gap_in_the_numbers_is_never_jumped(outbox: Outbox, producers: Producers) -> None:
    outbox.put(0, 1, message("a", "1"))
    outbox.put(0, 3, message("a", "3"))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    assert producers.newest.values == ["1"]


@pytest.mark.parametrize("error", [LATER, FATAL])
async def test_a_failed_report_starts_over_from_done_with_a_new_producer(
    outbox: Outbox, producers: Producers, error: object
) -> None:
    for number in (1, 2, 3):
        outbox.put(0, number, message("a", str(number)))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    first = producers.newest
    first.calls[0].arrive()
    first.calls[1].arrive({0: error})  # type: ignore[dict-item]
    first.calls[2].arrive()  # Comes too late to count: row 2 is missing before it.
    assert publisher.lanes[0].done == 1
    assert publisher.in_flight_bytes == 0
    assert first.purged
    await until(lambda: first.closed)
    await publisher.read_more()
    assert producers.newest is not first
    assert producers.newest.values == ["2", "3"]
    for call in producers.newest.calls:
        call.arrive()
    assert publisher.lanes[0].done == 3


async def test_a_producer_that_went_bad_while_idle_is_replaced(outbox: Outbox, producers: Producers) -> None:
    publisher = await reading(outbox, producers)
    outbox.put(0, 1, message("a", "1"))
    await publisher.read_more()
    producers.newest.calls[0].arrive()
    producers.newest.fatal = FATAL
    outbox.put(0, 2, message("a", "2"))
    await publisher.read_more()
    await publisher.read_more()
    assert len(producers.made) == 2
    assert producers.newest.values == ["2"]


async def test_what_kafka_never_takes_is_parked_with_all_that_follows_of_its_instance(
    outbox: Outbox, producers: Producers
) -> None:
    outbox.put(0, 1, message("a", "a1"), task("bad", "bad1", topic="nowhere"), message("bad", "bad2"))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    producers.newest.calls[0].arrive({1: NEVER})
    outbox.put(0, 2, message("bad", "bad3"), message("a", "a2"), task("bad", "bad4"))
    outbox.put(0, 3, task("bad", "bad5"))
    await publisher.read_more()
    assert producers.newest.calls[1].values == ["a2"]
    producers.newest.calls[1].arrive()
    await until(lambda: publisher.lanes[0].done == 3)
    assert [(number, position) for _, number, position, *_ in outbox.parked] == [(1, 1), (2, 0), (2, 2), (3, 0)]
    assert {row[4] for row in outbox.parked} == {"bad"}
    assert decode_frame(outbox.parked[0][5])[0][2] == b"bad1"
    assert "no such topic" in outbox.parked[0][6]
    assert len(producers.made) == 1


async def test_done_waits_until_what_is_parked_is_on_record(outbox: Outbox, producers: Producers) -> None:
    outbox.put(0, 1, message("bad", "1", topic="nowhere"))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    outbox.fail.extend([AWAY, AWAY])
    producers.newest.calls[0].arrive({0: NEVER})
    assert publisher.lanes[0].done == 0
    await until(lambda: publisher.lanes[0].done == 1)
    assert not outbox.fail
    assert len(outbox.parked) == 1


async def test_what_was_parked_before_a_crash_is_followed_after_it(outbox: Outbox, producers: Producers) -> None:
    publisher = PartitionPublisher(producers, outbox)
    publisher.open(0, 1, 4, None, ["bad"])
    outbox.put(0, 5, message("bad", "1"), message("good", "2"))
    await publisher.read_more()
    assert producers.newest.values == ["2"]


async def test_partitions_do_not_wait_for_each_other(outbox: Outbox, producers: Producers) -> None:
    publisher = await reading(outbox, producers)
    publisher.open(1, 1, 0, None, ())
    outbox.put(0, 1, message("a", "a"))
    outbox.put(1, 1, message("b", "b"))
    await publisher.read_more()
    next(call for call in producers.newest.calls if call.values == ["b"]).arrive()
    assert (publisher.lanes[0].done, publisher.lanes[1].done) == (0, 1)


async def test_a_row_that_cannot_be_read_stops_its_partition_only(outbox: Outbox, producers: Producers) -> None:
    publisher = await reading(outbox, producers)
    publisher.open(1, 1, 0, None, ())
    outbox.rows[0, 1] = b"\xffgarbage"
    outbox.put(0, 2, message("a", "2"))
    outbox.put(1, 1, message("b", "b"))
    await publisher.read_more()
    assert producers.newest.values == ["b"]
    assert 0 not in publisher.lanes


async def test_bytes_under_way_are_bounded(outbox: Outbox, producers: Producers) -> None:
    publisher = PartitionPublisher(producers, outbox, in_flight_bytes_max=2500)
    publisher.open(0, 1, 0, None, ())
    for number in range(1, 6):
        outbox.put(0, number, message("a", "x" * 1000))
    await publisher.read_more()
    assert len(producers.newest.calls) == 3
    more = asyncio.create_task(publisher.read_more())
    await asyncio.sleep(0)
    assert not more.done()
    producers.newest.calls[0].arrive()
    await more
    assert len(producers.newest.calls) == 4


async def test_reports_for_a_partition_that_is_not_ours_any_more_change_nothing(
    outbox: Outbox, producers: Producers
) -> None:
    outbox.put(0, 1, message("a", "1"))
    outbox.put(0, 2, message("a", "2"))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    publisher.drop(0)
    assert publisher.in_flight_bytes == 0
    lane = publisher.open(0, 2, 0, None, ())
    for call in producers.newest.calls:
        call.arrive()
    assert lane.done == 0
    assert publisher.in_flight_bytes == 0


async def test_a_zombie_parks_nothing(outbox: Outbox, producers: Producers) -> None:
    """Its successor may have published the message long ago: the topic was made meanwhile."""
    outbox.put(0, 1, message("bad", "1", topic="nowhere"))
    publisher = await reading(outbox, producers)
    await publisher.read_more()
    outbox.epochs[0] = 2
    producers.newest.calls[0].arrive({0: NEVER})
    for _ in range(10):
        await asyncio.sleep(0)
    assert outbox.parked == []
    assert publisher.lanes[0].done == 0
