"""A bad input never stops the line and never overtakes: parked in order, tried, then quarantined."""

from datetime import timedelta

from holdfast.core.events import TaskCompleted
from holdfast.core.ids import Payload
from holdfast.store.rows import ParkedTry
from holdfast.store.stores import Stores
from tests.contract.store.given import CHARGE, LATER, NOW, Coordinator, id_of, more, new, parked


async def offsets(stores: Stores, run: str) -> list[tuple[int, int]]:
    found = await stores.coordinator.parked_inputs(id_of(run), 100)
    return [(entry.number, entry.offset) for entry in found]


async def test_inputs_are_parked_in_the_order_of_their_arrival(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(parked=[parked("a", 10), parked("b", 11), parked("a", 12)])
    await owner.commit(parked=[parked("a", 13)])
    assert await offsets(stores, "a") == [(1, 10), (2, 12), (3, 13)]
    assert await offsets(stores, "b") == [(1, 11)]
    assert [entry.offset for entry in await stores.coordinator.parked_inputs(id_of("a"), 2)] == [10, 12]


async def test_a_parked_input_keeps_its_bytes(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    given = parked("a", 10, error="cannot decide: \x00 \ud800")
    await owner.commit(parked=[given])
    [found] = await stores.coordinator.parked_inputs(id_of("a"), 9)
    assert (found.key, found.value, found.headers) == (given.key, given.value, given.headers)
    assert (found.partition, found.instance, found.topic, found.offset) == (0, given.instance, given.topic, 10)
    assert found.parked_at == NOW
    assert found.error.startswith("cannot decide: ")


async def test_order_holds_while_earlier_inputs_are_decided_and_later_ones_arrive(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), parked=[parked("a", 10), parked("a", 11)])
    await owner.commit(more("a", 2), unparked=[(id_of("a"), 1)], parked=[parked("a", 12)])
    assert await offsets(stores, "a") == [(2, 11), (3, 12)]


async def test_an_owner_learns_of_parked_instances_when_it_claims(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, 1)
    await owner.commit(parked=[parked("a", 10), parked("b", 11, partition=1)])
    [zero, one] = await stores.coordinator.claim([0, 1], "coordinator-2", publish=False, publisher_lease_s=30)
    assert (zero.parked, one.parked) == (frozenset([id_of("a")]), frozenset([id_of("b")]))


async def test_a_parked_instance_is_due_when_its_next_try_is(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(parked=[parked("a", 10)])
    assert await stores.coordinator.parked_due([0], NOW) == [id_of("a")]
    assert await stores.coordinator.parked_due([1], NOW) == []
    await owner.commit(parked_tries=[ParkedTry(id_of("a"), 1, LATER, "still raises")])
    assert await stores.coordinator.parked_state(id_of("a")) == 1
    assert await stores.coordinator.parked_due([0], LATER - timedelta(seconds=1)) == []
    assert await stores.coordinator.parked_due([0], LATER) == [id_of("a")]


async def test_the_next_input_in_line_has_all_its_tries(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), parked=[parked("a", 10), parked("a", 11)])
    await owner.commit(parked_tries=[ParkedTry(id_of("a"), 4, LATER, "still raises")])
    await owner.commit(more("a", 2), unparked=[(id_of("a"), 1)])
    assert await stores.coordinator.parked_state(id_of("a")) == 0
    assert await stores.coordinator.parked_due([0], await stores.coordinator.now()) == [id_of("a")]


async def test_a_quarantined_instance_keeps_its_rows_and_is_tried_no_more(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(parked=[parked("a", 10), parked("a", 11)])
    await owner.commit(parked_tries=[ParkedTry(id_of("a"), 5, None, "no tries left", quarantine=True)])
    assert await stores.coordinator.parked_due([0], LATER) == []
    await owner.commit(parked=[parked("a", 12)])
    assert [offset for _, offset in await offsets(stores, "a")] == [10, 11, 12]
    [view] = await stores.queries.parked()
    assert (view.instance_id, view.inputs, view.tries, view.error) == (id_of("a"), 3, 5, "no tries left")
    assert view.quarantined_at is not None
    counts = await stores.queries.counts()
    assert (counts.parked_inputs, counts.quarantined) == (3, 1)


async def test_an_instance_without_parked_inputs_is_parked_no_more(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), parked=[parked("a", 10)])
    await owner.commit(more("a", 2), unparked=[(id_of("a"), 1)])
    assert await stores.queries.parked() == []
    assert await stores.coordinator.parked_due([0], LATER) == []
    [claim] = await stores.coordinator.claim([0], "coordinator-2", publish=False, publisher_lease_s=30)
    assert claim.parked == frozenset()


async def test_parking_the_input_that_could_not_be_stored_works(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    nul = Payload(b'"\\u0000"')
    changes = more("a", 2, TaskCompleted(CHARGE, 1, 1, nul))
    try:
        await owner.commit(changes)
    except Exception as error:
        await owner.commit(parked=[parked("a", 10, error=str(error))])
    assert await offsets(stores, "a") == [(1, 10)]
