"""A coordinator that is frozen past its ownership of partitions and wakes up: what it still writes is refused.

How one is frozen *inside* a transaction: see `tests.support.hold`.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.cli.local_process import LocalProcess
from holdfast.log.murmur2 import partition_for
from holdfast.store.pool import Timeouts
from tests.support import hold
from tests.support.invariants import check
from tests.support.system import SHORT, System, metric, order
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

SESSION_S = float(SHORT["HOLDFAST_SESSION_TIMEOUT_S"])
MARGIN_S = 15.0  # a rebalance, and a machine that has other things to do


@pytest.fixture
def second(system: System) -> Iterator[LocalProcess]:
    """A second coordinator beside `coordinator-1`; both own partitions when the test begins."""
    process = system.local.start_service("coordinator-2", "coordinator")
    _both_own(system)
    yield process
    system.local.stop_service("coordinator-2")


@pytest.fixture
def first(system: System) -> Iterator[LocalProcess]:
    process = system.local.process("coordinator-1")
    yield process
    process.thaw()
    hold.remove(system)


def test_frozen_between_transactions(system: System, name: str, first: LocalProcess, second: LocalProcess) -> None:
    workflow = system.define(order(name, name))
    system.worker(name, "w1")
    held = _held_by(system, first)
    _run_some(system, workflow, "before", 8)
    first.freeze()
    epochs = _epochs(system)
    keys = _start_some(system, workflow, "during", 16)
    began = time.monotonic()
    _all_completed(system, keys)
    assert time.monotonic() - began < SESSION_S + MARGIN_S, "the other one took over as soon as Kafka said so"
    moved = {number for number, epoch in _epochs(system).items() if epoch > epochs[number]}
    assert moved >= held, "every partition of the frozen one was claimed by the other"

    first.thaw()
    _both_own(system)
    _run_some(system, workflow, "after", 8)
    system.local.kill(f"{name}-w1")
    check(read_world(system, name, faults=True))


def test_frozen_inside_a_transaction_before_the_fence(
    system: System, name: str, first: LocalProcess, second: LocalProcess
) -> None:
    """Its statement is in the database and has not looked at the fence yet; it does so after the takeover."""
    workflow = system.define(order(name, name))
    system.worker(name, "w1")
    fenced = _commits(first, "Fenced")
    key = hold.catch(system, first, "BEFORE", _starter(system, workflow, _held_by(system, first)))
    keys = _start_some(system, workflow, "during", 16)
    began = time.monotonic()
    first.freeze()
    # The other one has claimed the partition and decided the very command that the zombie is about to commit.
    system.eventually(lambda: system.row(key), "the takeover")
    assert time.monotonic() - began < Timeouts().statement_s, "it holds no lock, so nobody waits for it"
    assert hold.inside(system, first), "the zombie's statement is still there, with a decision that is out of date"

    hold.let_go(system)
    system.eventually(lambda: not hold.inside(system, first), "the database to answer the zombie")
    _all_completed(system, [key, *keys])
    first.thaw()
    system.eventually(lambda: _commits(first, "Fenced") > fenced, "the zombie to learn that it was fenced")
    _both_own(system)
    _run_some(system, workflow, "after", 8)
    system.local.kill(f"{name}-w1")
    check(read_world(system, name, faults=True))


def test_frozen_inside_a_transaction_that_holds_the_row(
    system: System, name: str, first: LocalProcess, second: LocalProcess
) -> None:
    """It has locked its partitions' rows, and the other one needs them: the time-outs of the connection free them."""
    workflow = system.define(order(name, name))
    system.worker(name, "w1")
    key = hold.catch(system, first, "AFTER", _starter(system, workflow, _held_by(system, first)))
    keys = _start_some(system, workflow, "during", 16)
    began = time.monotonic()
    first.freeze()
    _all_completed(system, [key, *keys])
    took_s = time.monotonic() - began
    limit_s = max(SESSION_S, Timeouts().statement_s) + MARGIN_S
    assert took_s < limit_s, f"the other one was held up for {took_s:.0f} s"
    assert not hold.inside(system, first), "the database has ended the frozen one's statement"

    hold.let_go(system)
    first.thaw()
    _both_own(system)
    _run_some(system, workflow, "after", 8)
    system.local.kill(f"{name}-w1")
    check(read_world(system, name, faults=True))


# --- who owns what


def _owners(system: System) -> dict[int, str]:
    return {row["partition"]: row["holder"] for row in system.sql.all("SELECT * FROM holdfast.inbox_partitions")}


def _epochs(system: System) -> dict[int, int]:
    return {row["partition"]: row["epoch"] for row in system.sql.all("SELECT * FROM holdfast.inbox_partitions")}


def _held_by(system: System, process: LocalProcess) -> set[int]:
    """A holder's id is `host-pid-random`."""
    mine = {number for number, holder in _owners(system).items() if f"-{process.pid}-" in holder}
    assert mine, f"{process.name} holds nothing: {_owners(system)}"
    return mine


def _both_own(system: System) -> None:
    """Two each, and by processes that live: the row of one that was killed keeps its name until it is claimed."""
    alive = [system.local.process(f"coordinator-{number}").pid for number in (1, 2)]

    def shared() -> bool:
        owners = list(_owners(system).values())
        return all(sum(f"-{pid}-" in holder for holder in owners) == 2 for pid in alive)

    system.eventually(shared, "both coordinators to own partitions")


def _commits(process: LocalProcess, outcome: str) -> float:
    return metric(process, "holdfast_coordinator_commits_total", f'"{outcome}"')


# --- sagas


def _start_some(system: System, workflow: str, prefix: str, count: int) -> list[str]:
    return [system.start(workflow, f"{prefix}-{number}").key for number in range(count)]


def _starter(system: System, workflow: str, partitions: set[int]) -> Callable[[int], str]:
    """Starts sagas that are at home on these partitions."""
    names = (f"{workflow}/inside-{number}" for number in range(1000))
    at_home = [one for one in names if partition_for(one.encode(), 4) in partitions]
    return lambda number: system.start(workflow, at_home[number].split("/", 2)[2]).key


def _run_some(system: System, workflow: str, prefix: str, count: int) -> None:
    _all_completed(system, _start_some(system, workflow, prefix, count))


def _all_completed(system: System, keys: list[str]) -> None:
    for key in keys:
        assert system.finished(key).state == "COMPLETED"
