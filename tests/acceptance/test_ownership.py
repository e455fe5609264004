"""Section 7, rule by rule: Kafka delivers, the lease owns, and the fence decides whose word counts."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import NewTopic

from holdfast.contracts.topics import task_topic
from holdfast.core import events as e
from holdfast.core.inputs import HandBackReason
from tests.support.invariants import ALWAYS, check, no_early_expiry, saga, timers_fire_once_never_early
from tests.support.system import System, one_task
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


@pytest.mark.parametrize("late", ["void_fence", "settled"])
def test_the_late_completion_of_a_frozen_worker_is_refused(
    system: System, name: str, late: str, stop_workers: Callable[[], None]
) -> None:
    """`void_fence`: it comes while the second attempt runs; `settled`: after that one has completed."""
    workflow = system.define(one_task(name, name))
    for worker in ("w1", "w2"):
        system.worker(name, worker)
    first, second = f"{name}-1", f"{name}-2"
    key = system.start(workflow, "r1", {"do": {"work": {"gates": [first, second]}}}).key
    old = system.wait_event(key, e.TaskStarted, "work").fence
    victim = system.holder_of(key, "work")
    system.block_gate(first)
    system.eventually(lambda: system.ledger.lines(key, "work", "blocked"), "the activity to hold its worker's loop")
    victim.freeze()
    assert system.wait_event(key, e.LeaseLapsed, "work").fence == old
    system.wait_event(key, e.TaskStarted, "work", attempt=2)
    if late == "settled":
        system.open_gate(second)
        assert system.finished(key).state == "COMPLETED"

    system.open_gate(first)
    victim.thaw()  # It believes that it has just finished, and says so before it hears anything.
    rejected = system.wait_event(key, e.ReportRejected, "work")
    assert (rejected.report, rejected.reason, rejected.fence) == ("completed", late, old)

    system.open_gate(second)
    assert system.client.run(key).result(30) == {"by": 2}, "the other one's result stands"
    (completed,) = system.of(key, e.TaskCompleted, "work")
    assert completed.attempt == 2
    assert [line.attempt for line in system.ledger.lines(key, "work", "done")].count(1) == 1, "it did finish its work"
    check(read_world(system, name), (*ALWAYS, no_early_expiry))


def test_a_dispatch_that_two_workers_get_changes_the_workflow_once(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    """A rebalance in the middle of tasks whose offsets are not committed yet: Kafka delivers them again, elsewhere."""
    workflow = system.define(one_task(name, name, lease="PT30S"))
    system.worker(name, "w1", HOLDFAST_START_GRACE_S="60")  # says nothing before it is done
    keys = [system.start(workflow, f"r{n}", {"do": {"work": {"gates": [name]}}}).key for n in range(12)]
    system.eventually(lambda: _began(system, keys) == len(keys), "w1 to run all of them")
    system.worker(name, "w2")

    def delivered_again() -> list[str]:
        return [key for key in keys if len({line.pid for line in system.ledger.lines(key, "work", "began")}) == 2]

    twice = system.eventually(delivered_again, "some to run in both workers")
    system.open_gate(name)
    for key in keys:
        assert system.finished(key).state == "COMPLETED"
    for key in twice:
        assert len({line.fence for line in system.ledger.lines(key, "work", "began")}) == 1, "one dispatch, two runs"
        system.eventually(lambda key=key: len(system.ledger.lines(key, "work", "done")) == 2, "both to finish")
        rejected = system.wait_event(key, e.ReportRejected, "work")
        assert rejected.reason == "settled"
    for key in keys:
        assert [one.attempt for one in system.of(key, e.TaskCompleted, "work")] == [1]
    check(read_world(system, name))


def test_without_a_handler_a_task_is_handed_back_until_one_arrives(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    """A rolling deploy: the old worker does not know the activity, the new one does, the old one leaves."""
    workflow = system.define(one_task(name, name))
    old = system.worker(name, "old", SHOP_ACTIVITIES="shop.pack")
    keys = [system.start(workflow, f"r{n}").key for n in range(6)]
    for key in keys:
        back = system.wait_event(key, e.TaskHandedBack, "work")
        assert back.reason is HandBackReason.NO_HANDLER
    system.worker(name, "new")
    system.local.stop_service(old.name)
    for key in keys:
        assert system.finished(key).state == "COMPLETED"
        (completed,) = system.of(key, e.TaskCompleted, "work")
        assert completed.attempt == 1, "a hand-back is no attempt"
        fences = [one.fence for one in system.of(key, e.TaskScheduled, "work")]
        assert len(fences) > 1
        assert fences == sorted(set(fences)), "every dispatch has a new fence"
    check(read_world(system, name), (*ALWAYS, timers_fire_once_never_early))


def test_a_task_that_kills_its_process_is_counted_and_ends(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    tasks = one_task(name, name, compensate="undo")
    tasks["tasks"]["undo"] = {**tasks["tasks"]["work"], "compensation": True}
    del tasks["tasks"]["undo"]["compensate"]
    workflow = system.define(tasks)
    worker = system.worker(name, "w1")
    key = system.start(workflow, "r1", {"do": {"work": {"exit": 99}}}).key

    def ended() -> bool:
        if not worker.running:
            worker.start()  # what a supervisor does
        row = system.row(key)
        return row is not None and row["finished_at"] is not None

    system.eventually(ended, "the workflow to end although its task kills every worker", 120)
    status = system.client.run(key).status()
    assert status.state == "COMPENSATED", "each attempt may have had its effect"
    timed_out = system.of(key, e.TaskTimedOut, "work")
    assert [one.attempt for one in timed_out] == [1, 2, 3]
    assert [one.final for one in timed_out] == [False, False, True]
    runs = system.ledger.lines(key, "work", "began")
    # The very first run may die before anybody knows of it; whatever is delivered again is claimed before it runs, so
    # each attempt kills at most twice, and the worker that comes after the last one lives.
    assert 3 <= len(runs) <= 6
    assert worker.starts == len(runs) + 1
    assert worker.running
    check(read_world(system, name), (*ALWAYS, saga, no_early_expiry))


@pytest.mark.parametrize("how", ["deleted", "recreated"])
def test_a_dispatch_that_vanished_is_sent_again(
    system: System, name: str, how: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(one_task(name, name))
    topic = task_topic(name)
    keys = [system.start(workflow, f"r{n}").key for n in range(4)]
    system.eventually(lambda: sum(system.topics.ends(topic).values()) == len(keys), "the dispatches on their topic")
    if how == "deleted":
        places = system.topics.partitions(topic)
        for place in places:
            place.offset = system.topics.ends(topic)[place.partition]
        for future in system.topics.admin.delete_records(places).values():
            future.result()
    else:
        _recreate(system, topic)

    for key in keys:
        lost = system.wait_event(key, e.TaskDispatchLost, "work")
        again = system.wait_event(key, e.TaskScheduled, "work", fence=lost.fence + 1)
        assert again.attempt == lost.attempt == 1, "nobody ran it, so it is the same attempt"
    system.worker(name, "w1")
    for key in keys:
        assert system.finished(key).state == "COMPLETED"
        assert len(system.ledger.lines(key, "work", "began")) == 1
    world = read_world(system, name)
    check(world)
    assert all(len(system.of(key, e.TaskDispatchLost)) == 1 for key in keys), "lost once, sent again once"


def _recreate(system: System, topic: str) -> None:
    admin, count = system.topics.admin, len(system.topics.partitions(topic))
    admin.delete_topics([topic])[topic].result()

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, count, 1, config={"retention.ms": "-1"})])[topic].result()
        except Exception:  # Its deletion is not through yet.
            return False
        return True

    system.eventually(made, "the topic to be made again")


def _began(system: System, keys: list[str]) -> int:
    time.sleep(0.05)
    return len({line.instance for line in system.ledger.lines(what="began")} & set(keys))
