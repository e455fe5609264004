"""The coordinator's loop: exactly once, whatever happens to a commit."""

import asyncio

import pytest

from holdfast.core.errors import Fenced, Transient
from holdfast.store.errors import Conflict, UnknownOutcome
from tests.unit.coordinator.stage import Stage, eventually, eventually_async


async def test_a_saga_runs_to_its_end(stage: Stage) -> None:
    await stage.coordinate()
    instance = await stage.start("1")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")
    assert await stage.sequences(instance) == list(range(1, 9))
    assert await stage.outcomes(instance) == [("accepted", "")]


@pytest.mark.parametrize("problem", [Transient("away"), Conflict("moved"), UnknownOutcome("cut"), Fenced("zombie")])
async def test_a_commit_that_fails_is_decided_again_and_nothing_is_lost(stage: Stage, problem: Exception) -> None:
    await stage.coordinate()
    stage.store.before.append(problem)
    instance = await stage.start("1")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")
    assert await stage.sequences(instance) == list(range(1, 9))


@pytest.mark.parametrize("problem", [UnknownOutcome("the connection broke"), Transient("time-out")])
async def test_a_commit_that_took_effect_without_our_knowing_is_not_applied_twice(
    stage: Stage, problem: Exception
) -> None:
    await stage.coordinate()
    stage.store.after.append(problem)
    instance = await stage.start("1")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")
    assert await stage.sequences(instance) == list(range(1, 9))
    assert len(stage.dispatches(instance, "reserve")) == 1
    await eventually(lambda: len(stage.published(instance)) == 8)


async def test_the_batch_decided_ahead_is_dropped_when_the_one_before_it_fails(stage: Stage) -> None:
    await stage.coordinate()
    stage.store.gate.clear()
    stage.store.before.append(Transient("away"))
    instances = [await stage.start(str(number)) for number in range(5)]
    await asyncio.sleep(0)  # let the first batch be launched; the others are read and decided meanwhile
    instances += [await stage.start(str(number)) for number in range(5, 10)]
    stage.store.gate.set()
    for instance in instances:
        await stage.finish(instance)
        await stage.has_state(instance, "COMPLETED")
        assert await stage.sequences(instance) == list(range(1, 9))
        assert len(stage.dispatches(instance, "reserve")) == 1


async def test_a_second_start_is_a_duplicate_and_changes_nothing(stage: Stage) -> None:
    await stage.coordinate()
    instance = await stage.start("1", id="a")
    await stage.start("1", id="b")
    await stage.start("1", id="a")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")
    assert [outcome for outcome, _ in await stage.outcomes(instance)] == ["accepted", "duplicate"]
    assert len(stage.dispatches(instance, "reserve")) == 1


async def test_the_same_command_id_with_other_content_is_refused_as_reused(stage: Stage) -> None:
    await stage.coordinate()
    instance = await stage.start("1", id="a")
    await stage.start("1", id="a", input=b'{"other":1}')
    await eventually(lambda: any(b"id_reused" in (one.value or b"") for one in stage.records("holdfast.events")))
    assert await stage.state(instance) == "RUNNING"


async def test_a_message_with_a_strange_key_is_forwarded_to_its_home_and_decided_once(stage: Stage) -> None:
    await stage.coordinate()
    instances = [await stage.start(str(number), key=b"strange") for number in range(8)]
    for instance in instances:
        await stage.finish(instance)
        await stage.has_state(instance, "COMPLETED")
        assert [outcome for outcome, _ in await stage.outcomes(instance)] == ["accepted"]


async def test_what_does_not_decode_goes_to_the_dlq_with_its_bytes_and_the_line_goes_on(stage: Stage) -> None:
    await stage.coordinate()
    await stage.send("holdfast.commands", b"k", b"\xff\xfe not json")
    await stage.send("holdfast.reports", b"k", b"\x00\x01")
    await stage.send("holdfast.ticks", b"k", None)
    instance = await stage.start("1")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")
    await eventually(lambda: len(stage.dead()) == 3)
    assert {record.value for record in stage.dead()} == {b"\xff\xfe not json", b"\x00\x01", None}
    assert all(dict(record.headers)["__dlq.errors.reason"] == b"undecodable" for record in stage.dead())


async def test_a_zombie_that_wakes_up_after_a_takeover_commits_nothing(stage: Stage) -> None:
    zombie = await stage.coordinate("zombie")
    instance = await stage.start("1")
    await stage.dispatch(instance, "reserve")
    partitions = sorted(zombie.assignment.owned)
    await stage.stores.coordinator.claim(partitions, "successor", publish=False, publisher_lease_s=5.0)
    before = len(stage.store.commits)
    stage.settings.reclaim_s = 3600.0  # It may not take them back within this test.
    await stage.complete(await stage.dispatch(instance, "reserve"))
    await eventually(lambda: not zombie.assignment.owned)
    assert len(stage.store.commits) == before
    assert await stage.sequences(instance) == [1, 2, 3]


async def test_a_partition_that_a_zombie_claimed_late_is_claimed_again(stage: Stage) -> None:
    coordinator = await stage.coordinate()
    partitions = sorted(coordinator.assignment.owned)
    await stage.stores.coordinator.claim(partitions, "zombie", publish=False, publisher_lease_s=5.0)
    instance = await stage.start("1")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")


async def test_two_coordinators_share_the_partitions_and_one_takes_over_when_the_other_leaves(stage: Stage) -> None:
    first = await stage.coordinate("first")
    second = await stage.coordinate("second")
    await eventually(lambda: len(first.assignment.owned) == 2 and len(second.assignment.owned) == 2)
    instances = [await stage.start(str(number)) for number in range(10)]
    for instance in instances:
        await stage.dispatch(instance, "reserve")
    _, stopping, task = stage.running[0]
    stopping.set()
    await task
    for instance in instances:
        await stage.finish(instance)
        await stage.has_state(instance, "COMPLETED")
        assert await stage.sequences(instance) == list(range(1, 9))


async def test_a_commit_that_decides_nothing_still_advances_the_offsets(stage: Stage) -> None:
    coordinator = await stage.coordinate()
    instance = await stage.start("1")
    dispatch = await stage.dispatch(instance, "reserve")
    await stage.finish(instance)
    await stage.has_state(instance, "COMPLETED")
    for _ in range(3):
        await stage.complete(dispatch)
    ends = {number: part.end for number, part in enumerate(stage.log.topics["holdfast.reports"].partitions)}

    async def caught_up() -> bool:
        positions = await stage.stores.recovery.inbox_positions()
        return all(positions[number][1] == end for number, end in ends.items())

    await eventually_async(caught_up, lambda: "the coordinator to catch up")
    assert coordinator.assignment.owned
    assert (
        len(stage.published(instance)) == 9
    )  # eight events of the saga and one REPORT_REJECTED for three late reports


async def test_nothing_is_lost_when_a_partition_is_claimed_back_while_records_flow(stage: Stage) -> None:
    """What is in hand at the moment of the claim was read after records that were thrown away: it is not decided."""
    stage.settings.reclaim_s = 0.1
    coordinator = await stage.coordinate()
    instances = []
    for number in range(200):
        if number == 60:
            partitions = sorted(coordinator.assignment.owned)
            await stage.stores.coordinator.claim(partitions, "zombie", publish=False, publisher_lease_s=5.0)
        instances.append(await stage.start(str(number)))
        await asyncio.sleep(0.002)
    for instance in instances:
        await stage.has_state(instance, "RUNNING")
