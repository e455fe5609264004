"""The command line against a whole system of real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from holdfast.cli.exits import ExitCode
from holdfast.cli.local import LocalSystem, apart
from holdfast.client import SyncClient, WorkflowCompensated
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from tests.support.folders import open_folder

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "orders" / "order-fulfillment.yaml"
WORKFLOW = "orders/order-fulfillment"


@pytest.fixture(scope="module")
def system() -> Iterator[LocalSystem]:
    folder = open_folder("holdfast-cli-")
    env = {"ORDERS_LEDGER": str(folder / "ledger.sqlite"), "HOLDFAST_SESSION_TIMEOUT_S": "6"}
    with LocalSystem(folder, env=env, temporary=True, say=lambda text: None) as running:
        cli = Cli(running.env)
        assert cli("define", str(EXAMPLE)).returncode == 0
        running.start_worker("examples.orders.worker:worker", working_folder=ROOT)
        yield running


class Cli:
    """Runs `holdfast` as a user does."""

    def __init__(self, env: dict[str, str], folder: Path = ROOT) -> None:
        self._env = env
        self._folder = folder

    def __call__(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**self._env, **env},
            cwd=self._folder,
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def lines(self, *arguments: str) -> list[Any]:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, run_id: str, *options: str, code: int = 0, **faults: Any) -> Any:
        order = json.dumps({"order_id": run_id, "amount": 10, "faults": faults})
        return self.json("start", WORKFLOW, "--run-id", run_id, "--input", order, *options, code=code)


@pytest.fixture
def cli(system: LocalSystem) -> Cli:
    return Cli(system.env)


def sql(system: LocalSystem, statement: str) -> None:
    """As the owner, past every protection: what a person with psql can do."""

    async def work() -> None:
        connection = await asyncpg.connect(system.info.postgres)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    apart(work())


def until(true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


# --- setting up


def test_migrate_and_topics_create_can_run_again(cli: Cli) -> None:
    assert cli.json("migrate") == {"applied": []}
    again = cli.json("topics", "create")
    assert (again["made"], again["problems"], again["partitions"]) == ([], [], 8)


def test_another_partition_count_is_refused(cli: Cli) -> None:
    done = cli("topics", "create", "--partitions", "5")
    assert done.returncode == ExitCode.REFUSED
    assert "fixed" in done.stderr


def test_topics_check_finds_a_short_retention(cli: Cli, system: LocalSystem) -> None:
    async def retain(retention_ms: int) -> None:
        admin = KafkaAdmin(KafkaConfig(system.info.kafka))
        await admin.alter_configs("holdfast.reports", {"retention.ms": str(retention_ms)})
        await asyncio.sleep(0.3)

    assert cli.json("topics", "check")["problems"] == []
    apart(retain(3_600_000))
    try:
        (problem,) = cli.json("topics", "check", code=ExitCode.NOT_COMPLETED)["problems"]
        assert "holdfast.reports" in problem
        assert "7 days" in problem
    finally:
        apart(retain(-1))


def test_a_stored_version_never_changes(cli: Cli, tmp_path: Path) -> None:
    assert cli.json("define", str(EXAMPLE))["defined"][0]["stored"] is False
    changed = tmp_path / "changed.yaml"
    changed.write_text(EXAMPLE.read_text().replace("sleep: PT1S", "sleep: PT2S"))
    done = cli("define", str(changed))
    assert done.returncode == ExitCode.REFUSED
    assert "next version number" in done.stderr


def test_define_says_which_topics_are_missing(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("{namespace: tests, workflow: other, version: 1, tasks: {a: {activity: nowhere.go}}}")
    told = cli.json("define", "--no-create-topics", str(other))
    assert told["topics_missing"] == ["holdfast.tasks.nowhere"]
    assert "holdfast.tasks.nowhere" in cli.json("topics", "create")["made"]


# --- running


def test_start_and_wait_returns_the_output(cli: Cli) -> None:
    told = cli.start("wait-1", "--wait")
    assert (told["state"], told["output"]["tracking"]) == ("COMPLETED", "trk-wait-1")
    assert cli.start("wait-1")["outcome"] == "duplicate"


def test_start_and_wait_exits_1_when_it_does_not_complete(cli: Cli) -> None:
    told = cli.start("wait-2", "--wait", code=ExitCode.NOT_COMPLETED, shipping_fails=True)
    assert (told["state"], told["error"]["code"]) == ("COMPENSATED", "no_carrier")


def test_an_unknown_workflow_is_refused_with_what_to_do(cli: Cli) -> None:
    done = cli("start", "orders/nothing")
    assert done.returncode == ExitCode.REFUSED
    assert "holdfast define" in done.stderr


def test_a_time_out_has_its_own_exit_code(cli: Cli) -> None:
    order = json.dumps({"order_id": "late", "amount": 1, "faults": {"shipping_slow_s": 4}})
    done = cli("start", WORKFLOW, "-r", "late", "-i", order, "--wait", "--timeout", "1")
    assert done.returncode == ExitCode.TIMED_OUT


def test_kafka_and_postgres_that_do_not_answer_have_their_own_exit_code(cli: Cli) -> None:
    for env in ({"HOLDFAST_KAFKA": "127.0.0.1:1"}, {"HOLDFAST_POSTGRES": "postgresql://x:y@127.0.0.1:1/z"}):
        done = cli("start", WORKFLOW, "-r", "wait-1", **env)
        assert done.returncode == ExitCode.UNREACHABLE, done.stderr
        assert "holdfast dev" in done.stderr
        assert "Traceback" not in done.stderr


def test_show_tells_who_works_on_it_and_cancel_with_compensation_undoes_it(cli: Cli) -> None:
    key = cli.start("show-1", shipping_slow_s=60)["key"]
    told: dict[str, Any] = {}
    until(lambda: bool(told.update(cli.json("show", key)) or told["leases"]))
    (lease,) = told["leases"]
    assert (told["state"], told["awaiting"], lease["path"]) == ("RUNNING", "tasks", "ship")
    assert lease["holder"]
    assert "cancel" in told["allowed"]
    assert [task["path"] for task in told["tasks"]] == ["charge", "cool_off", "reserve", "ship"]
    assert "deadline" in [timer["key"] for timer in told["timers"]]
    shown = cli("show", key).stdout
    for words in ("RUNNING", "ship", "Leases", "you may: holdfast cancel"):
        assert words in shown
    assert cli.json("cancel", key, "--compensate", "--reason", "called")["outcome"] == "accepted"
    assert cli("watch", key, "--until-finished", "--timeout", "60").returncode == ExitCode.NOT_COMPLETED
    assert cli.json("show", key)["state"] == "COMPENSATED"
    assert cli.json("cancel", key)["outcome"] == "ignored"


def test_resume_goes_on_after_a_failed_compensation(cli: Cli) -> None:
    options = {"shipping_fails": True, "refund_fails": True}
    told = cli.start("resume-1", "--wait", code=ExitCode.NOT_COMPLETED, **options)
    assert told["state"] == "COMPENSATION_FAILED"
    assert cli.json("show", told["key"])["allowed"] == {"resume": "COMPENSATING"}
    assert cli.json("resume", told["key"], "--reason", "again")["outcome"] == "accepted"
    until(lambda: "COMPENSATION_RESUMED" in [one["type"] for one in cli.lines("events", told["key"])])
    done = cli("resume", "orders/order-fulfillment/nobody")
    assert done.returncode == ExitCode.REFUSED


def test_events_follows_to_the_end(cli: Cli) -> None:
    key = cli.start("events-1")["key"]
    events = cli.lines("events", key, "--follow")
    assert [one["sequence"] for one in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("WORKFLOW_CREATED", "WORKFLOW_COMPLETED")
    assert cli("events", "orders/order-fulfillment/nobody").returncode == ExitCode.REFUSED


def test_list_filters(cli: Cli) -> None:
    cli.start("list-1", "--wait")
    cli.start("list-2", "--wait", code=1, shipping_fails=True)
    compensated = cli.json("list", "orders/order-fulfillment", "--state", "compensated")
    assert {one["state"] for one in compensated} == {"COMPENSATED"}
    assert "orders/order-fulfillment/list-2" in [one["key"] for one in compensated]
    assert cli.json("list", "nobody") == []
    assert [one["key"] for one in cli.json("list", "orders/order-fulfillment/list-1")] == [f"{WORKFLOW}/list-1"]


def test_the_sync_client_does_the_same(system: LocalSystem) -> None:
    with SyncClient.connect(system.info.kafka, system.info.postgres) as holdfast:
        run = holdfast.start(WORKFLOW, run_id="sync-1", input={"order_id": "sync-1", "amount": 1})
        assert run.result(30)["tracking"] == "trk-sync-1"
        assert run.events()[-1].sequence == run.status().sequence
        failed = holdfast.start(WORKFLOW, input={"order_id": "sync-2", "amount": 1, "faults": {"shipping_fails": True}})
        with pytest.raises(WorkflowCompensated):
            failed.result(30)


# --- verify


@pytest.mark.parametrize(
    ("table", "change", "back", "column"),
    [
        ("workflow_instances", "state = 'FAILED'", "state = 'COMPLETED'", "state"),
        ("workflow_instances", "fence = fence + 1", "fence = fence - 1", "fence"),
        ("task_executions", "attempt = 7", "attempt = 1", "row"),
        ("task_executions", "status = 'FAILED'", "status = 'COMPLETED'", "status"),
    ],
)
def test_verify_finds_a_row_changed_by_hand(
    cli: Cli, system: LocalSystem, table: str, change: str, back: str, column: str
) -> None:
    told = cli.start("verify-1", "--wait")
    key, where = told["key"], f"instance_id = '{told['instance_id']}'"
    if table == "task_executions":
        where += " AND path = 'charge'"
    assert cli.json("verify", key)["differences"] == []
    sql(system, f"UPDATE holdfast.{table} SET {change} WHERE {where}")
    try:
        differences = cli.json("verify", key, code=ExitCode.NOT_COMPLETED)["differences"]
        assert {(one["table"], one["column"]) for one in differences} == {(table, column)}
        assert "the events say" in cli("verify", key).stdout
        assert cli("verify", "--all").returncode == ExitCode.NOT_COMPLETED
    finally:
        sql(system, f"UPDATE holdfast.{table} SET {back} WHERE {where}")
    assert cli.json("verify", key)["differences"] == []


def test_verify_finds_a_missing_event(cli: Cli, system: LocalSystem) -> None:
    told = cli.start("verify-2", "--wait")
    sql(system, f"DELETE FROM holdfast.events WHERE instance_id = '{told['instance_id']}' AND sequence = 4")
    (difference,) = cli.json("verify", told["key"], code=ExitCode.NOT_COMPLETED)["differences"]
    assert (difference["table"], difference["row"]) == ("events", "sequence 5")
    sql(system, f"DELETE FROM holdfast.events WHERE instance_id = '{told['instance_id']}'")
    sql(system, f"DELETE FROM holdfast.workflow_instances WHERE instance_id = '{told['instance_id']}'")
    sql(system, f"DELETE FROM holdfast.task_executions WHERE instance_id = '{told['instance_id']}'")


def test_verify_all_is_clean_after_everything_above(cli: Cli) -> None:
    told = cli.json("verify", "--all")
    assert told["differences"] == []
    assert told["instances"] >= 5


# --- dev


def test_dev_runs_everything_restarts_what_crashes_and_stops_cleanly(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast.cli", "dev", "--json"]
    with subprocess.Popen(command, env=clean, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as dev:
        try:
            assert dev.stdout is not None
            told = json.loads(dev.stdout.readline())
            cli = Cli(clean, tmp_path)
            assert cli.json("list") == []  # by .holdfast/dev.env
            relay = next(one for one in told["processes"] if one["name"] == "relay-1")
            os.kill(relay["pid"], signal.SIGKILL)
            assert "starting it again" in json.loads(dev.stdout.readline())["message"]
        finally:
            dev.send_signal(signal.SIGTERM)
            assert dev.wait(60) == 0
    assert not (tmp_path / ".holdfast" / "dev.env").exists()
    alive = [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])]
    assert alive == []
