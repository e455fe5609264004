"""An instance that cannot be decided, in the middle of a batch of two hundred others.

The test damages one stored event with the owner's rights and lets the coordinator start anew, so that loading this
instance raises. Everything that comes for it waits in order; everybody else goes on.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from holdfast.contracts.cloudevents_in import CANCEL
from holdfast.contracts.commands import cancel_data, encode_command
from holdfast.core import events as e
from holdfast.core.ids import InstanceKey, instance_id
from tests.support.invariants import ALWAYS, check, no_lost_work, nothing_left
from tests.support.system import System, one_task
from tests.support.topics import Found
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

OTHERS = 200


def test_its_inputs_wait_in_order_and_are_decided_in_order_after_repair(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow, key = _with_a_running_victim(system, name)
    payload = _damage(system, key)
    sent = _two_cancels_among_many(system, workflow, key)
    waiting = system.eventually(lambda: _parked(system, key), "its inputs to be parked")
    assert [row["offset"] for row in waiting if row["topic"] == "holdfast.commands"] == [one.offset for one in sent]
    assert "event 1 of" in waiting[0]["error"], f"the reason names the event: {waiting[0]['error']}"

    _repair(system, key, payload)
    system.eventually(lambda: not _parked(system, key), "the parked inputs to be decided")
    assert system.command(key, "first")["outcome"] == "accepted"
    assert system.command(key, "second")["outcome"] == "ignored", "in order: the second came when it was over"
    assert system.finished(key).state == "CANCELLED"
    _others_completed(system, workflow)
    assert system.row(key)["quarantined_at"] is None
    check(read_world(system, name, faults=True))


def test_after_five_tries_it_is_quarantined_and_nothing_is_lost(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow, key = _with_a_running_victim(system, name)
    payload = _damage(system, key)
    sent = _two_cancels_among_many(system, workflow, key)
    _others_completed(system, workflow)
    row = system.eventually(
        lambda: (row := system.row(key)) is not None and row["quarantined_at"] is not None and row, "quarantine"
    )
    assert "event 1 of" in row["quarantine_reason"], "it names the event"
    tries = "SELECT tries FROM holdfast.parked_instances WHERE instance_id = $1"
    assert system.sql.one(tries, instance_id(key)) == 5
    frozen = "SELECT bool_and(frozen) FROM holdfast.execution_leases WHERE instance_id = $1"
    assert system.sql.one(frozen, instance_id(key)) is True, "nothing expires meanwhile"
    for one in sent:
        where = {"topic": one.topic, "partition": str(one.partition), "offset": str(one.offset)}
        (dead,) = system.eventually(lambda where=where: system.dead_letters(**where), "its copy in the DLQ")
        assert (dead.value, dead.key, dead.errors["reason"]) == (one.value, one.key, "quarantined")

    later = _cancel(system, key, "third")

    def commands() -> list[object]:
        return [row["offset"] for row in _parked(system, key) if row["topic"] == "holdfast.commands"]

    offsets = [one.offset for one in (*sent, later)]
    system.eventually(lambda: commands() == offsets, "the rows to be kept, and a later one with them")
    _repair(system, key, payload)
    world = read_world(system, name, faults=True)
    check(world, [one for one in ALWAYS if one not in (no_lost_work, nothing_left)])
    unfinished = [view.key for view in world.instances.values() if view.finished_at is None]
    assert unfinished == [key], "all but the quarantined one"


def _with_a_running_victim(system: System, name: str) -> tuple[str, str]:
    workflow = system.define(one_task(name, name, lease="PT30S"))
    system.worker(name, "w1", SHOP_CONCURRENCY="250")
    key = system.start(workflow, "victim", {"do": {"work": {"gates": [name]}}}).key
    system.wait_event(key, e.TaskStarted, "work")
    return workflow, key


def _damage(system: System, key: str) -> str:
    payload = system.sql.one(
        "SELECT payload FROM holdfast.events WHERE instance_id = $1 AND sequence = 1", instance_id(key)
    )
    _repair(system, key, json.dumps({"damaged": True}))
    return str(payload)


def _repair(system: System, key: str, payload: str) -> None:
    statement = "UPDATE holdfast.events SET payload = $2::json WHERE instance_id = $1 AND sequence = 1"
    system.sql.do(statement, instance_id(key), payload)


def _two_cancels_among_many(system: System, workflow: str, key: str) -> list[Found]:
    """While the coordinator is away, so that all of it comes in one batch to one that has cached nothing."""
    system.local.kill("coordinator-1")
    sent = []
    for number in range(OTHERS):
        system.start(workflow, f"other-{number}")
        if number in (OTHERS // 3, OTHERS // 2):
            sent.append(_cancel(system, key, "first" if not sent else "second"))
    system.local.restart("coordinator-1")
    return sent


def _cancel(system: System, key: str, id: str) -> Found:
    data = cancel_data(reason=id, compensate=False, force=False)
    message = encode_command(InstanceKey(key), CANCEL, data, source="/test", id=id, time=datetime.now(UTC))
    kafka_key, value, headers = message
    return system.topics.send("holdfast.commands", kafka_key, value, headers)


def _parked(system: System, key: str) -> list[dict[str, object]]:
    statement = "SELECT * FROM holdfast.parked_inputs WHERE instance_id = $1 ORDER BY number"
    return [dict(row) for row in system.sql.all(statement, instance_id(key))]


def _others_completed(system: System, workflow: str) -> None:
    for number in range(OTHERS):
        assert system.finished(f"{workflow}/other-{number}").state == "COMPLETED"
