"""The command line without servers: help, laziness, exit codes, errors that say what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli import main, output
from holdfast.cli.exits import ExitCode
from holdfast.cli.local_process import LocalFailed
from holdfast.client.errors import WaitTimedOut, not_completed
from holdfast.core.errors import Refused, Transient
from holdfast.core.inputs import Error
from holdfast.core.transitions import WorkflowState

runner = CliRunner()

PRESENT = [name for name, entry in main.COMMANDS.items() if main._present(entry)]
WITH_JSON = [name for name in PRESENT if name not in ("topics", "coordinator", "relay", "recovery", "worker", "bench")]


def test_help_lists_every_command_without_importing_any() -> None:
    code = (
        "import sys; from holdfast.cli.main import app\n"
        "try:\n    app(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'confluent_kafka', 'asyncpg', 'pydantic', 'fastavro', 'cel', 'psutil'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    for name in PRESENT:
        assert f" {name} " in done.stdout


@pytest.mark.parametrize("name", PRESENT)
def test_every_command_has_help_with_an_example(name: str) -> None:
    shown = runner.invoke(main.app, [name, "--help"])
    assert shown.exit_code == 0
    if name not in ("topics", "bench"):
        assert "Example" in shown.output
        assert f"holdfast {name}" in shown.output


@pytest.mark.parametrize("name", WITH_JSON)
def test_every_command_that_tells_something_tells_it_as_json_too(name: str) -> None:
    assert "--json" in runner.invoke(main.app, [name, "--help"]).output


def test_an_unknown_command_is_wrong_usage_and_suggests_the_right_one() -> None:
    shown = runner.invoke(main.app, ["strat"])
    assert shown.exit_code == ExitCode.USAGE
    assert "start" in shown.output


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (Refused("unknown_workflow", "see `holdfast define`"), ExitCode.REFUSED, "see `holdfast define`"),
        (Transient("Kafka does not answer"), ExitCode.UNREACHABLE, "is `holdfast dev` running?"),
        (WaitTimedOut("has not finished within 1 s"), ExitCode.TIMED_OUT, "holdfast show"),
        (LocalFailed("relay-1 ended with code 1"), ExitCode.LOCAL, "relay-1"),
        (not_completed("a/b/c", WorkflowState.FAILED, Error("x", "it broke")), ExitCode.NOT_COMPLETED, "it broke"),
    ],
)
def test_every_kind_of_error_has_its_exit_code(
    problem: Exception, code: ExitCode, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output.explain(problem) == code
    assert words in capsys.readouterr().err


def test_a_bug_is_not_explained_away() -> None:
    with pytest.raises(ZeroDivisionError):
        output.explain(ZeroDivisionError())


def test_with_json_errors_are_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", "show", "--json"])
    output.explain(Refused("unknown_instance", "no such thing"))
    told = json.loads(capsys.readouterr().err)
    assert told == {"error": "no such thing", "exit_code": 3, "reason": "unknown_instance"}


# --- commands whose checks come before any connection


def test_verify_wants_names_or_all() -> None:
    for arguments in (["verify"], ["verify", "a/b/c", "--all"]):
        assert runner.invoke(main.app, arguments).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("given", ["{", "@/no/such/file"])
def test_an_input_that_is_not_json_is_wrong_usage(given: str) -> None:
    assert runner.invoke(main.app, ["start", "a/b", "--input", given]).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("given", ["tomorrow", "2030-01-01T00:00:00"])
def test_run_at_needs_a_time_zone(given: str) -> None:
    assert runner.invoke(main.app, ["start", "a/b", "--run-at", given]).exit_code == ExitCode.USAGE


def test_list_names_the_states_that_there_are() -> None:
    shown = runner.invoke(main.app, ["list", "--state", "DONE"])
    assert shown.exit_code == ExitCode.USAGE
    assert "COMPENSATED" in shown.output


def test_define_lists_all_problems_of_all_files(tmp_path: Path) -> None:
    first, second, third = tmp_path / "one.yaml", tmp_path / "two.yaml", tmp_path / "absent.yaml"
    first.write_text(
        "namespace: orders\nworkflow: x\nversion: 0\nsurprise: 1\ntasks:\n"
        "  a: {activity: pay.charge, after: [nobody], lease: 5}\n  b: {sleep: PT1S, compensate: c}\n"
    )
    second.write_text("namespace: [")
    shown = runner.invoke(main.app, ["define", "--check", "--json", str(first), str(second), str(third)])
    assert shown.exit_code == ExitCode.REFUSED
    problems = json.loads(shown.output.splitlines()[-1])["problems"]
    assert {"version", "surprise", "tasks.a.lease"} <= {one["path"] for one in problems[str(first)]}
    assert len(problems[str(first)]) >= 5
    assert problems[str(second)]
    assert problems[str(third)]


def test_define_check_accepts_the_example() -> None:
    example = Path(__file__).resolve().parents[3] / "examples" / "orders" / "order-fulfillment.yaml"
    shown = runner.invoke(main.app, ["define", "--check", str(example)])
    assert shown.exit_code == 0
    assert "orders/order-fulfillment is valid" in shown.output


def test_without_postgres_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    code = "from holdfast.cli.main import main; main()"
    env = {"PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, "list"], capture_output=True, text=True, check=False, env=env, cwd=tmp_path
    )
    assert done.returncode == ExitCode.REFUSED
    assert "holdfast dev" in done.stderr
