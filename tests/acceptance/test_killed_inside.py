"""A coordinator that is killed while its commit is under way: what the database did all the same is not lost."""

import pytest

from holdfast.core import events as e
from tests.support import hold
from tests.support.invariants import check
from tests.support.system import System, order
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.mark.parametrize("heir", ["coordinator", "relay"])
def test_a_commit_that_outlives_its_coordinator_is_published_once_by_its_heir(
    system: System, name: str, heir: str
) -> None:
    """The heir is the next coordinator, from the outbox, with no relay about; or the relay, with no coordinator."""
    workflow = system.define(order(name, name))
    if heir == "coordinator":
        system.local.kill("relay-1")
    coordinator = system.local.process("coordinator-1")
    try:
        system.eventually(lambda: _owns_all(system, coordinator.pid), "the coordinator to own its partitions")
        key = hold.catch(system, coordinator, "AFTER", lambda number: system.start(workflow, f"r{number}").key)
        system.local.kill("coordinator-1")
        hold.let_go(system)
        system.eventually(lambda: system.row(key), "the database to finish what the dead one had asked for")
        if heir == "relay":
            system.eventually(lambda: _published(system, key) > 0, "the relay to publish it")
            # Until it has that on record, whoever takes over publishes it again, and rightly so.
            system.eventually(lambda: not system.sql.all("SELECT FROM holdfast.outbox"), "the relay to be done with it")
    finally:
        hold.remove(system)
        system.local.restart("coordinator-1")
    system.worker(name, "w1")
    assert system.finished(key).state == "COMPLETED"
    assert len(system.of(key, e.WorkflowCreated)) == 1
    if heir == "coordinator":
        system.local.restart("relay-1")
    system.local.kill(f"{name}-w1")
    # Nobody published it before the heir did, so not even a duplicate is allowed.
    check(read_world(system, name))


def _owns_all(system: System, pid: int) -> bool:
    rows = system.sql.all("SELECT holder FROM holdfast.inbox_partitions")
    return all(f"-{pid}-" in row["holder"] for row in rows)


def _published(system: System, key: str) -> int:
    return sum(one.key == key.encode() for one in system.topics.read("holdfast.events"))
