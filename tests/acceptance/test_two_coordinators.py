"""A coordinator that is frozen past its ownership of partitions and wakes up: what it still writes is refused.

To freeze one *inside* a transaction the test puts a trigger on `inbox_partitions`: backends that are named in a table
wait there, before or after the fence's row is locked, until the test lets them go. Nothing else knows of it.
"""

import time
from collections.abc import Iterator

import psutil
import pytest

from holdfast.cli.local_process import LocalProcess
from holdfast.log.murmur2 import partition_for
from holdfast.store.pool import Timeouts
from tests.support.invariants import check
from tests.support.system import SHORT, System, metric, order
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

SESSION_S = float(SHORT["HOLDFAST_SESSION_TIMEOUT_S"])
MARGIN_S = 15.0  # a rebalance, and a machine that has other things to do

_HOLD = """
CREATE TABLE IF NOT EXISTS public.held (pid integer, moment text);
GRANT SELECT ON public.held TO PUBLIC;
CREATE OR REPLACE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM public.held WHERE pid = pg_backend_pid() AND moment = TG_WHEN) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER hold_before BEFORE UPDATE ON holdfast.inbox_partitions
    FOR EACH STATEMENT EXECUTE FUNCTION public.hold();
CREATE OR REPLACE TRIGGER hold_after AFTER UPDATE ON holdfast.inbox_partitions
    FOR EACH STATEMENT EXECUTE FUNCTION public.hold();
"""
_LET_GO = """
DROP TRIGGER IF EXISTS hold_before ON holdfast.inbox_partitions;
DROP TRIGGER IF EXISTS hold_after ON holdfast.inbox_partitions;
"""


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
    system.sql.do(_LET_GO)


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
    _hold(system, first, "BEFORE")
    key, keys = _start_on(system, workflow, _held_by(system, first))
    _wait_until_inside(system, first)
    began = time.monotonic()
    first.freeze()
    # The other one has claimed the partition and decided the very command that the zombie is about to commit.
    system.eventually(lambda: system.row(key), "the takeover")
    assert time.monotonic() - began < Timeouts().statement_s, "it holds no lock, so nobody waits for it"
    assert _inside(system, first), "the zombie's statement is still there, with a decision that is out of date"

    system.sql.do("DELETE FROM public.held")
    system.eventually(lambda: not _inside(system, first), "the database to answer the zombie")
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
    _hold(system, first, "AFTER")
    key, keys = _start_on(system, workflow, _held_by(system, first))
    _wait_until_inside(system, first)
    began = time.monotonic()
    first.freeze()
    _all_completed(system, [key, *keys])
    took_s = time.monotonic() - began
    limit_s = max(SESSION_S, Timeouts().statement_s) + MARGIN_S
    assert took_s < limit_s, f"the other one was held up for {took_s:.0f} s"
    assert not _inside(system, first), "the database has ended the frozen one's statement"

    system.sql.do("DELETE FROM public.held")
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


# --- inside a transaction


def _backends(system: System, process: LocalProcess) -> list[int]:
    """The Postgres backends that serve this process, by the ports of its connections."""
    ports = [c.laddr.port for c in psutil.Process(process.pid).net_connections(kind="tcp") if c.raddr]
    statement = "SELECT pid FROM pg_stat_activity WHERE client_port = ANY($1::int[])"
    return [row["pid"] for row in system.sql.all(statement, ports)]


def _hold(system: System, process: LocalProcess, moment: str) -> None:
    system.sql.do(_HOLD)
    system.sql.do("DELETE FROM public.held")
    for pid in _backends(system, process):
        system.sql.do("INSERT INTO public.held VALUES ($1, $2)", pid, moment)


def _inside(system: System, process: LocalProcess) -> bool:
    statement = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND wait_event = 'PgSleep'"
    return bool(system.sql.one(statement, _backends(system, process)))


def _wait_until_inside(system: System, process: LocalProcess) -> None:
    system.eventually(lambda: _inside(system, process), "the coordinator to be in the middle of its commit", 10)


def _commits(process: LocalProcess, outcome: str) -> float:
    return metric(process, "holdfast_coordinator_commits_total", f'"{outcome}"')


# --- sagas


def _start_some(system: System, workflow: str, prefix: str, count: int) -> list[str]:
    return [system.start(workflow, f"{prefix}-{number}").key for number in range(count)]


def _start_on(system: System, workflow: str, partitions: set[int]) -> tuple[str, list[str]]:
    """One saga at home on these partitions first, then some on all of them."""
    names = (f"{workflow}/inside-{number}" for number in range(1000))
    key = next(one for one in names if partition_for(one.encode(), 4) in partitions)
    system.start(workflow, key.split("/", 2)[2])
    return key, _start_some(system, workflow, "during", 16)


def _run_some(system: System, workflow: str, prefix: str, count: int) -> None:
    _all_completed(system, _start_some(system, workflow, prefix, count))


def _all_completed(system: System, keys: list[str]) -> None:
    for key in keys:
        assert system.finished(key).state == "COMPLETED"
