"""What scripts rely on: exit codes, and `verify` that finds what somebody changed by hand."""

import json
from collections.abc import Callable

import pytest

from holdfast.core.ids import instance_id
from tests.support.invariants import ALWAYS, check, saga
from tests.support.system import System, order
from tests.support.world import read_world

pytestmark = pytest.mark.slow


def test_start_and_wait_tells_by_its_exit_code_how_it_ended(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(order(name, name))
    system.worker(name, "w1")
    good = system.cli("start", workflow, "-r", "good", "-i", '{"amount": 99}', "--wait", "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["state"] == "COMPLETED"
    assert json.loads(good.stdout)["output"] == {"shipped": {"by": 1}}

    refused = json.dumps({"do": {"ship": {"refuse": True}}})
    bad = system.cli("start", workflow, "-r", "bad", "-i", refused, "--wait", "--json")
    assert bad.returncode == 1, bad.stderr
    assert json.loads(bad.stdout)["state"] == "COMPENSATED"
    assert json.loads(bad.stdout)["error"]["code"] == "no_carrier"
    undone = [line.task for line in system.ledger.lines(f"{workflow}/bad", what="done")]
    assert undone == ["reserve", "charge", "refund", "release"], "newest first"

    unknown = system.cli("start", f"{name}/nothing", "-r", "x", "--wait")
    assert unknown.returncode == 3
    assert "no definition" in unknown.stderr, "and what to do about it"
    again = system.cli("start", workflow, "-r", "good", "--wait", "--json")
    assert again.returncode == 0, "the same run, and how it ended"
    check(read_world(system, name), (*ALWAYS, saga))


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("workflow_instances", "state", "'FAILED'"),
        ("workflow_instances", "fence", "fence + 1"),
        ("task_executions", "status", "'FAILED'"),
        ("task_executions", "attempt", "attempt + 7"),
    ],
)
def test_verify_finds_a_row_that_was_changed_by_hand(
    system: System, name: str, table: str, column: str, value: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(order(name, name))
    system.worker(name, "w1")
    key, other = (system.start(workflow, run_id).key for run_id in ("changed", "untouched"))
    for one in (key, other):
        assert system.finished(one).state == "COMPLETED"
    before = system.cli("verify", key, other, "--json")
    assert before.returncode == 0, before.stdout
    assert json.loads(before.stdout)["instances"] == 2
    assert json.loads(before.stdout)["events"] > 10

    only = " AND path = 'charge'" if table == "task_executions" else ""
    done = system.sql.do(
        f"UPDATE holdfast.{table} SET {column} = {value} WHERE instance_id = $1{only}", instance_id(key)
    )
    assert done == "UPDATE 1"
    after = system.cli("verify", key, other, "--json")
    assert after.returncode == 1
    found = json.loads(after.stdout)["differences"]
    assert {(one["instance"], one["table"]) for one in found} == {(key, table)}
    if column == "attempt":  # part of the row's name: one row is missing, another should not be there
        assert {(one["row"], one["column"]) for one in found} == {("1/charge/1", "row"), ("1/charge/8", "row")}
    else:
        assert [one["column"] for one in found] == [column]
    text = system.cli("verify", key)
    assert text.returncode == 1
    assert table in text.stdout


def test_verify_finds_a_history_that_was_changed_by_hand(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(order(name, name))
    system.worker(name, "w1")
    key = system.start(workflow, "r1").key
    assert system.finished(key).state == "COMPLETED"
    statement = "DELETE FROM holdfast.events WHERE instance_id = $1 AND sequence = 4"
    assert system.sql.do(statement, instance_id(key)) == "DELETE 1"
    done = system.cli("verify", key, "--json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["differences"]
    assert (found["table"], found["row"]) == ("events", "sequence 5")
    assert "sequence 4 is missing" in found["found"]
