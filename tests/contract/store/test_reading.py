"""Definitions never change; lists come in pages; what a run gave out is found."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.core.errors import Refused
from holdfast.core.events import WorkflowCompleted, WorkflowCompleting
from holdfast.core.ids import Payload
from holdfast.core.transitions import WorkflowState
from holdfast.store.rows import StoredDefinition
from holdfast.store.stores import Stores
from tests.contract.store.given import NOW, Coordinator, id_of, more, new

ORDER = StoredDefinition("orders", "fulfil", 1, {"tasks": {"charge": {"activity": "payment.charge"}}}, NOW)


async def test_a_stored_version_never_changes(stores: Stores) -> None:
    assert await stores.definitions.define(ORDER)
    assert not await stores.definitions.define(replace(ORDER, defined_at=NOW + timedelta(days=1)))
    with pytest.raises(Refused, match="version_exists"):
        await stores.definitions.define(replace(ORDER, body={"tasks": {}}))
    assert await stores.definitions.definition("orders", "fulfil", 1) == ORDER
    assert await stores.definitions.definitions() == [ORDER]


async def test_the_newest_version_is_found(stores: Stores) -> None:
    for version in (1, 10, 9):
        await stores.definitions.define(replace(ORDER, version=version))
    newest = await stores.definitions.definition("orders", "fulfil", None)
    assert newest is not None
    assert newest.version == 10
    assert await stores.coordinator.definition("orders", "fulfil", 9) == replace(ORDER, version=9)
    assert await stores.definitions.definition("orders", "fulfil", 2) is None
    assert await stores.definitions.definition("orders", "other", None) is None
    loaded = await stores.coordinator.load([], (), [("orders", "fulfil"), ("orders", "other")])
    assert loaded.newest == {("orders", "fulfil"): 10}


async def test_instances_are_listed_newest_first_page_by_page_and_by_state(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    for number in range(5):
        await owner.commit(new(f"r{number}", created_at=NOW + timedelta(seconds=number)))
    await owner.commit(more("r1", 2, fields={"state": WorkflowState.FAILED, "finished_at": NOW}))
    first = await stores.queries.list_instances(limit=3)
    second = await stores.queries.list_instances(limit=3, before=first[-1])
    assert [view.instance_id for view in first + second] == [id_of(f"r{number}") for number in (4, 3, 2, 1, 0)]
    failed = await stores.queries.list_instances(namespace="orders", workflow="fulfil", states=[WorkflowState.FAILED])
    assert [view.instance_id for view in failed] == [id_of("r1")]
    assert await stores.queries.list_instances(namespace="other") == []
    assert await stores.queries.list_instances(quarantined=True) == []
    assert len(await stores.queries.list_instances(quarantined=False)) == 5
    assert (await stores.queries.counts()).instances == {WorkflowState.RUNNING: 4, WorkflowState.FAILED: 1}


async def test_the_output_of_what_completed_is_found(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"), new("b"))
    done = {"state": WorkflowState.COMPLETED, "finished_at": NOW}
    await owner.commit(more("a", 2, WorkflowCompleting(Payload(b'{"ok":true}')), WorkflowCompleted(), fields=done))
    found = await stores.queries.outputs([id_of("a"), id_of("b")])
    assert {key: value.replace(b" ", b"") for key, value in found.items()} == {id_of("a"): b'{"ok":true}'}


async def test_a_null_output_is_an_output(stores: Stores) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    await owner.commit(more("a", 2, WorkflowCompleting(Payload(b"null"))))
    assert await stores.queries.outputs([id_of("a")]) == {id_of("a"): b"null"}
