"""Section 5: the fences, and all or nothing."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.core.errors import Fenced, Refused
from holdfast.core.events import TaskCompleted, TaskFailed, WorkflowCompleted, WorkflowCompleting
from holdfast.core.ids import Payload
from holdfast.core.transitions import TaskStatus, WorkflowState
from holdfast.store.errors import Conflict, Unstorable
from holdfast.store.rows import Commit, Rejection, SnapshotRow
from holdfast.store.stores import Stores
from tests.contract.store.given import (
    CHARGE,
    LATER,
    NOW,
    ORIGIN,
    Coordinator,
    command,
    error,
    everything,
    id_of,
    key_of,
    lease,
    more,
    new,
    parked,
    renewal,
    scheduled,
    task,
    tasks,
    timer,
)


async def test_a_claim_raises_the_epoch_and_says_where_to_read_on(stores: Stores) -> None:
    first = await Coordinator.owning(stores, 0, 1)
    await first.commit(advance=first.advance(0, commands=3, reports=2, ticks=1, body=b"x"))
    [zero, one] = await stores.coordinator.claim([1, 0], "coordinator-2", publish=False, publisher_lease_s=30)
    assert (zero.partition, one.partition) == (0, 1)
    assert zero.epoch == first.claims[0].epoch + 1
    assert (zero.commands_next, zero.reports_next, zero.ticks_next, zero.outbox_last) == (3, 2, 1, 1)
    assert (one.commands_next, one.reports_next, one.ticks_next, one.outbox_last) == (0, 0, 0, 0)
    assert zero.publisher_epoch is None
    assert zero.outbox_done == 0


async def test_a_claim_of_a_partition_that_is_not_here_is_refused(stores: Stores) -> None:
    with pytest.raises(Refused, match="partition"):
        await stores.coordinator.claim([0, 99], "coordinator-1", publish=False, publisher_lease_s=30)
    assert await stores.coordinator.partition_count() == 4


async def test_a_commit_of_an_earlier_epoch_is_fenced_and_changes_nothing(stores: Stores) -> None:
    zombie = await Coordinator.owning(stores)
    await zombie.commit(new("a"))
    await Coordinator.owning(stores)
    before = await everything(stores, "a", "b")
    with pytest.raises(Fenced):
        await zombie.commit(more("a", 2), new("b"), commands=[command("b")])
    assert await everything(stores, "a", "b") == before


async def test_an_empty_commit_of_an_earlier_epoch_is_fenced_too(stores: Stores) -> None:
    zombie = await Coordinator.owning(stores)
    await Coordinator.owning(stores)
    with pytest.raises(Fenced):
        await zombie.commit(advance=zombie.advance())


@pytest.mark.parametrize("topic", ["commands", "reports", "ticks"])
async def test_a_commit_that_read_from_elsewhere_is_fenced(stores: Stores, topic: str) -> None:
    owner = await Coordinator.owning(stores)
    counts = {name: int(name == topic) for name in ("commands", "reports", "ticks")}
    stale, taken = (
        owner.advance(commands=counts["commands"], reports=counts["reports"], ticks=counts["ticks"]) for _ in range(2)
    )
    await owner.commit(advance=taken)
    with pytest.raises(Fenced):
        await owner.commit(new("a"), advance=stale)
    assert await stores.queries.instances([id_of("a")]) == {}


async def test_one_fenced_partition_fences_the_whole_commit(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, 1)
    await Coordinator.owning(stores, 1)
    with pytest.raises(Fenced):
        await stores.coordinator.commit(Commit([owner.advance(0, commands=1), owner.advance(1, commands=1)], NOW))
    assert (await stores.recovery.inbox_positions())[0] == (0, 0, 0)


async def test_a_commit_that_decides_nothing_moves_the_offsets(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(advance=owner.advance(commands=1, reports=2, ticks=3))
    assert (await stores.recovery.inbox_positions())[0] == (1, 2, 3)


async def test_a_stale_sequence_is_a_conflict_that_names_the_instance_and_changes_nothing(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), new("b"))
    before = await everything(stores, "a", "b", "c")
    with pytest.raises(Conflict) as conflict:
        await owner.commit(
            more("a", 2, leases={CHARGE: lease()}, timers=timer(), tasks=tasks(task(TaskStatus.QUEUED))),
            more("b", 1),
            new("c"),
            advance=owner.advance(commands=1, body=b"messages"),
            commands=[command("c")],
        )
    assert conflict.value.instances == {id_of("b")}
    assert await everything(stores, "a", "b", "c") == before


async def test_an_update_of_an_instance_that_is_not_there_is_a_conflict(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    with pytest.raises(Conflict) as conflict:
        await owner.commit(more("a", 2))
    assert conflict.value.instances == {id_of("a")}


async def test_a_new_instance_that_exists_is_a_conflict(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    with pytest.raises(Conflict) as conflict:
        await owner.commit(new("b"), new("a"))
    assert conflict.value.instances == {id_of("a")}
    assert await stores.queries.instances([id_of("b")]) == {}


async def test_a_new_instance_without_its_partition_is_a_bug_that_says_so(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    with pytest.raises(LookupError, match="homes"):
        await stores.coordinator.commit(Commit([owner.advance()], NOW, changes=[new("a")]))


async def test_a_command_on_record_is_a_conflict(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), commands=[command("a")])
    with pytest.raises(Conflict) as conflict:
        await owner.commit(more("a", 2), commands=[command("a")])
    assert conflict.value.instances == {id_of("a")}
    assert (await stores.queries.instances([id_of("a")]))[id_of("a")].sequence == 2


async def test_repeats_of_a_command_are_counted_and_leave_the_first_outcome(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), commands=[command("a")])
    again = command("a", outcome="duplicate")
    await owner.commit(commands=[again, again, command("a", outcome="refused", reason="id_reused")])
    assert await stores.queries.commands(id_of("a")) == [(command("a"), 3)]


async def test_a_duplicate_start_under_another_id_is_on_record(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    second = command("a", "c-2", outcome="duplicate")
    await owner.commit(new("a"), commands=[command("a"), second, second])
    assert await stores.queries.commands(id_of("a")) == [(command("a"), 0), (second, 1)]
    assert await stores.queries.outcomes([second.key, command("a", "c-3").key]) == {second.key: second}


@pytest.mark.parametrize(
    "payload", [b'{"text":"a\\u0000b"}', b'"\\ud800"', b"not json"], ids=["NUL", "lone surrogate", "not JSON"]
)
async def test_data_that_cannot_be_stored_is_told_from_everything_else(stores: Stores, payload: bytes) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), new("b"))
    before = await everything(stores, "a", "b")
    bad = TaskCompleted(CHARGE, 1, 1, Payload(payload))
    with pytest.raises(Unstorable):
        await owner.commit(more("a", 2), more("b", 2, bad))
    assert await everything(stores, "a", "b") == before
    await owner.commit(more("a", 2))


async def test_an_escaped_backslash_before_u0000_is_no_nul(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    await owner.commit(more("a", 2, TaskCompleted(CHARGE, 1, 1, Payload(b'"\\\\u0000 \\u00e9"'))))
    assert (await stores.queries.instances([id_of("a")]))[id_of("a")].sequence == 3


async def test_a_nul_outside_of_json_is_refused_as_well(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    changes = more("a", 2)
    changes.events = [entry._replace(origin=replace(ORIGIN, actor_id="a\x00b")) for entry in changes.events]
    with pytest.raises(Unstorable):
        await owner.commit(changes)


@pytest.mark.parametrize("payload", [b'{"zz": 1e22,"a":1.10, "a":2}', b"[-0.0, 1E300, 12345678901234567890123]"])
async def test_a_payload_comes_back_to_the_byte(stores: Stores, payload: bytes) -> None:
    """A state that is rebuilt must be the one that was decided on: 1e22 must not become an integer on the way."""
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    done = TaskCompleted(CHARGE, 1, 1, Payload(payload))
    await owner.commit(more("a", 2, done))
    assert (await stores.queries.events(id_of("a")))[-1].event == done


async def test_an_instance_is_read_back_as_it_was_written(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 2)
    await owner.commit(new("a"), home=2)
    failed = TaskFailed(CHARGE, 1, 1, error(), final=True)
    await owner.commit(more("a", 2, failed, fields={"error": error(), "fence": 7, "awaiting": None}), home=2)
    view = (await stores.queries.instances([id_of("a")]))[id_of("a")]
    assert view.key == key_of("a")
    assert (view.partition, view.version, view.state, view.sequence) == (2, 1, WorkflowState.RUNNING, 3)
    assert (view.fence, view.awaiting, view.error) == (7, None, error())
    assert (view.created_at, view.updated_at, view.finished_at) == (NOW, NOW, None)
    assert view.last_service == "coordinator 1"
    events = await stores.queries.events(id_of("a"))
    assert events == [*new("a").events, *more("a", 2, failed).events]


async def test_the_end_of_an_instance_is_kept_by_later_changes_that_do_not_name_it(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    done = {"state": WorkflowState.COMPLETED, "finished_at": LATER}
    await owner.commit(more("a", 2, WorkflowCompleting(Payload(b'{"ok":true}')), WorkflowCompleted(), fields=done))
    await owner.commit(more("a", 4, fields={"state": WorkflowState.COMPLETED}))
    assert (await stores.queries.instances([id_of("a")]))[id_of("a")].finished_at == LATER
    await owner.commit(more("a", 5, fields={"state": WorkflowState.RUNNING}))
    assert (await stores.queries.instances([id_of("a")]))[id_of("a")].finished_at is None


async def test_changes_of_an_attempt_add_up_over_commits(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", tasks=tasks(task(TaskStatus.QUEUED, queued_at=NOW))))
    running = task(TaskStatus.RUNNING, started_at=NOW + timedelta(seconds=1), holder="worker-1")
    await owner.commit(more("a", 2, tasks=tasks(running)))
    await owner.commit(more("a", 3, tasks=tasks(task(TaskStatus.FAILED, ended_at=LATER, error=error()))))
    second = task(TaskStatus.QUEUED, attempt=2, fence=2, queued_at=LATER)
    await owner.commit(more("a", 4, tasks=tasks(second)))
    [one, two] = await stores.queries.tasks(id_of("a"))
    assert (one.status, one.holder, one.error) == (TaskStatus.FAILED, "worker-1", error())
    assert (one.queued_at, one.started_at, one.ended_at) == (NOW, NOW + timedelta(seconds=1), LATER)
    assert two == second


async def test_a_batch_of_many_instances_over_several_partitions_is_one_commit(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, 1, 2, 3)
    runs = [f"r{number}" for number in range(500)]
    homes = {id_of(run): number % 4 for number, run in enumerate(runs)}
    advances = [owner.advance(partition, commands=125, body=b"m" * 5000) for partition in range(4)]
    await stores.coordinator.commit(Commit(advances, NOW, "c", [new(run) for run in runs], homes))
    loaded = await stores.coordinator.load([id_of(run) for run in runs])
    assert len(loaded.instances) == 500
    assert all(len(found.events) == 2 for found in loaded.instances.values())
    assert (await stores.queries.instances([id_of("r7")]))[id_of("r7")].partition == 3


async def test_a_lease_comes_renews_and_ends_with_commits(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", leases={CHARGE: lease()}))
    await owner.commit(renewals=[renewal("a", 2, seconds=90, details=Payload(b'{"done":50}'))])
    [view] = await stores.queries.leases(id_of("a"))
    assert view.lease == lease(expires_at=NOW + timedelta(seconds=90))
    assert (view.renewals, view.frozen) == (2, False)
    assert view.details is not None
    assert view.details.replace(b" ", b"") == b'{"done":50}'
    loaded = await stores.coordinator.load([id_of("a")])
    assert loaded.instances[id_of("a")].renewals == {CHARGE: (1, 2, NOW + timedelta(seconds=90))}
    await owner.commit(more("a", 2, leases={CHARGE: None}))
    assert await stores.queries.leases(id_of("a")) == []


async def test_renewals_never_go_back_and_count_only_with_the_fence_of_the_lease(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", leases={CHARGE: lease(fence=3)}))
    await owner.commit(renewals=[renewal("a", 5, fence=3, seconds=90)])
    await owner.commit(renewals=[renewal("a", 5, fence=3, seconds=999), renewal("a", 4, fence=3, seconds=999)])
    await owner.commit(renewals=[renewal("a", 9, fence=2, seconds=999), renewal("a", 9, fence=4, seconds=999)])
    [view] = await stores.queries.leases(id_of("a"))
    assert (view.renewals, view.lease.expires_at) == (5, NOW + timedelta(seconds=90))


async def test_a_lease_with_a_higher_fence_replaces_one_with_a_lower_fence_and_not_the_reverse(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a", leases={CHARGE: lease(fence=3)}), renewals=[renewal("a", 4, fence=3)])
    await owner.commit(more("a", 2, leases={CHARGE: lease(fence=2)}))
    [view] = await stores.queries.leases(id_of("a"))
    assert (view.lease.fence, view.renewals) == (3, 4)
    await owner.commit(more("a", 3, leases={CHARGE: lease(fence=5)}))
    [view] = await stores.queries.leases(id_of("a"))
    assert (view.lease.fence, view.renewals) == (5, 0)


async def test_the_newest_snapshot_wins_and_the_events_after_it_follow(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), snapshots=[SnapshotRow(id_of("a"), 2, 1, b"at 2")])
    await owner.commit(more("a", 2), snapshots=[SnapshotRow(id_of("a"), 1, 1, b"at 1")])
    found = (await stores.coordinator.load([id_of("a")])).instances[id_of("a")]
    assert (found.snapshot, found.snapshot_sequence, found.sequence) == (b"at 2", 2, 3)
    assert found.events == more("a", 2).events


async def test_a_snapshot_of_another_shape_is_ignored(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), snapshots=[SnapshotRow(id_of("a"), 2, 999, b"from the future")])
    found = (await stores.coordinator.load([id_of("a")])).instances[id_of("a")]
    assert (found.snapshot, found.snapshot_sequence) == (None, 0)
    assert found.events == new("a").events


async def test_a_history_of_ten_thousand_events_loads(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    for start in range(2, 10_002, 1000):
        await owner.commit(more("a", start, *(scheduled() for _ in range(1000))))
    found = (await stores.coordinator.load([id_of("a")])).instances[id_of("a")]
    assert [recorded.sequence for recorded in found.events] == list(range(1, 10_003))
    assert await stores.queries.events(id_of("a"), after=10_000, limit=10) == found.events[-2:]


async def test_load_tells_commands_on_record_and_newest_versions(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), commands=[command("a")])
    unknown = command("a", "c-9").key
    loaded = await stores.coordinator.load([id_of("b")], [command("a").key, unknown], [("orders", "fulfil")])
    assert (loaded.instances, loaded.newest) == ({}, {})
    assert loaded.commands == {command("a").key: command("a")}


async def test_rejected_reports_are_counted(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), rejections=[Rejection(id_of("a"), CHARGE, 1, 2), Rejection(id_of("a"), CHARGE, 1, 1)])
    await owner.commit(rejections=[Rejection(id_of("a"), CHARGE, 1, 4), Rejection(id_of("a"), CHARGE, 2, 1)])
    assert await stores.queries.rejections(id_of("a")) == [
        Rejection(id_of("a"), CHARGE, 1, 7),
        Rejection(id_of("a"), CHARGE, 2, 1),
    ]


async def test_settle_tells_what_is_on_record(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, 1)
    await owner.commit(advance=owner.advance(1, commands=2, reports=3, ticks=4, body=b"x"))
    [zero, one] = await stores.coordinator.settle([1, 0])
    assert (zero.partition, zero.epoch, zero.commands_next) == (0, owner.claims[0].epoch, 0)
    assert (one.epoch, one.commands_next, one.reports_next, one.ticks_next, one.outbox_last) == (
        owner.claims[1].epoch, 2, 3, 4, 1,
    )  # fmt: skip


async def test_two_commits_at_once_from_one_place_are_not_both_taken(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    outcomes = await asyncio.gather(
        owner.commit(new("a"), advance=owner.advance(commands=1)),
        owner.commit(new("b"), advance=owner.advance(commands=1)),
        return_exceptions=True,
    )
    assert sorted(isinstance(outcome, Fenced) for outcome in outcomes) == [False, True]
    assert len(await stores.queries.instances([id_of("a"), id_of("b")])) == 1


async def test_a_commit_returns_the_clock_of_the_store(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    before = await stores.coordinator.now()
    committed = await owner.commit(parked=[parked("a", 1)])
    assert before <= committed.now <= await stores.coordinator.now()
    assert committed.now.utcoffset() == timedelta(0)
