"""Who is silent and who only cannot be heard: leases expire for dead workers, and for nobody else."""

from collections.abc import Callable

import pytest

from holdfast.contracts.messages import decode_tick
from holdfast.contracts.topics import TICKS
from holdfast.core import events as e
from holdfast.core.ids import instance_id
from holdfast.core.inputs import LeaseExpired
from tests.support.invariants import ALWAYS, check, no_early_expiry
from tests.support.system import System, metric, one_task
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

LEASE_S = 3.0


def test_no_lease_expires_while_the_coordinator_is_away(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    key = _running_task(system, name)
    before = _renewals(system, key)
    system.local.kill("coordinator-1")
    try:
        _wait_until_past_due(system, key)
    finally:
        system.local.restart("coordinator-1")
    _until_renewed(system, key, before)
    assert _expiries_asked_for(system, key) == 0, "nobody even asked: reports were not decided up to their end"
    _finish(system, name, key)
    check(read_world(system, name, faults=True))


def test_no_lease_expires_while_kafka_is_away(system: System, name: str, stop_workers: Callable[[], None]) -> None:
    """Nor just after: the worker is frozen a little longer than Kafka, as one that needs a moment to connect again."""
    key = _running_task(system, name)
    before, spared = _renewals(system, key), _spared(system)
    worker = system.holder_of(key, "work")
    worker.freeze()
    system.local.stack.kafka.pause()
    try:
        _wait_until_past_due(system, key)
    finally:
        system.local.stack.kafka.resume()
    system.eventually(lambda: _spared(system) > spared, "recovery to see a lease past due and to spare it")
    worker.thaw()
    _until_renewed(system, key, before)
    assert _expiries_asked_for(system, key) == 0
    _finish(system, name, key)
    check(read_world(system, name, faults=True))


def test_the_lease_of_a_dead_worker_expires_on_an_idle_partition(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    key = _running_task(system, name)
    system.quiet()
    reports = system.topics.ends("holdfast.reports")
    victim = system.holder_of(key, "work")
    system.worker(name, "w2")
    victim.kill()
    lapsed = system.wait_event(key, e.LeaseLapsed, "work")
    assert lapsed.fence == system.of(key, e.TaskStarted, "work")[0].fence
    partition = system.row(key)["partition"]
    elsewhere = {number: end for number, end in system.topics.ends("holdfast.reports").items() if number != partition}
    assert all(end == reports[number] for number, end in elsewhere.items()), "nothing else went on"

    assert system.finished(key).state == "COMPLETED"
    (completed,) = system.of(key, e.TaskCompleted, "work")
    assert completed.attempt == 2
    assert [one.outcome for one in system.of(key, e.TaskTimedOut, "work")] == [e.Outcome.UNKNOWN]
    pids = {line.attempt: line.pid for line in system.ledger.lines(key, "work", "began")}
    assert pids[1] != pids[2], "another worker finished it"
    check(read_world(system, name), (*ALWAYS, no_early_expiry))


def _running_task(system: System, name: str) -> str:
    """A task that a worker has begun and holds at its gate, heartbeating; returns the instance's key."""
    workflow = system.define(one_task(name, name, lease=f"PT{LEASE_S:g}S"))
    system.worker(name, "w1")
    key = system.start(workflow, "r1", {"do": {"work": {"gates": [name]}}}).key
    system.wait_event(key, e.TaskStarted, "work")
    _until_renewed(system, key, 0)
    return key


def _finish(system: System, name: str, key: str) -> None:
    assert system.of(key, e.LeaseLapsed) == []
    system.open_gate(name)
    assert system.finished(key).state == "COMPLETED"
    (completed,) = system.of(key, e.TaskCompleted, "work")
    assert completed.attempt == 1, "the first attempt, by the worker that held it all the time"
    assert system.of(key, e.LeaseLapsed) == []
    assert len(system.ledger.lines(key, "work", "began")) == 1


def _renewals(system: System, key: str) -> int:
    statement = "SELECT renewals FROM holdfast.execution_leases WHERE instance_id = $1"
    return int(system.sql.one(statement, instance_id(key)) or 0)


def _until_renewed(system: System, key: str, before: int) -> None:
    """A whole lease of heartbeats: three more of them are on record."""
    system.eventually(lambda: _renewals(system, key) >= before + 3, "three more heartbeats on record")


def _wait_until_past_due(system: System, key: str) -> None:
    """By the database's clock: nothing was on record for a whole lease and a second."""
    statement = """SELECT clock_timestamp() > expires_at + interval '1 s'
                     FROM holdfast.execution_leases WHERE instance_id = $1"""
    system.eventually(lambda: system.sql.one(statement, instance_id(key)), "the lease to be past due")


def _expiries_asked_for(system: System, key: str) -> int:
    ticks = [decode_tick(one.value, one.place) for one in system.topics.read(TICKS) if one.key == key.encode()]
    return sum(isinstance(tick, LeaseExpired) for tick in ticks)


def _spared(system: System) -> float:
    return metric(system.local.process("recovery-1"), "holdfast_recovery_leases_spared_total")
