"""Activities in child processes."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from holdfast.core.inputs import (
    TaskHandBack,
    TaskHeartbeat,
    TaskReportedCancelled,
    TaskReportedCompleted,
    TaskReportedFailed,
)
from tests.unit.worker import child_activities as acts
from tests.unit.worker.stage import Stage, until


async def test_input_and_output_are_made_in_the_child() -> None:
    stage = Stage()
    async with stage.worker([acts.add]):
        dispatch = stage.dispatch("test.sum", {"values": [1, 2, 3]})
        done = json.loads((await stage.outcome(dispatch)).output)
        assert done["sum"] == 6
        assert done["pid"] != os.getpid()
        assert done["key"] == f"{dispatch.instance_id}:1:step:1"
        bad = await stage.outcome(stage.dispatch("test.sum", {"values": "x"}))
        assert (bad.error.code, bad.retryable) == ("input_invalid", False)


@pytest.mark.parametrize(
    ("how", "says"), [("exit", "exit code 7"), ("kill", "killed by SIGKILL")], ids=["exit", "kill"]
)
async def test_the_death_of_a_child_fails_only_the_attempt_it_ran(how: str, says: str) -> None:
    stage = Stage()
    async with stage.worker([acts.die, acts.pid]):
        first = json.loads((await stage.outcome(stage.dispatch("test.pid"))).output)
        died = await stage.outcome(stage.dispatch("test.die", how))
        assert isinstance(died, TaskReportedFailed)
        assert (died.error.code, died.retryable) == ("process_died", True)
        assert says in died.error.message
        again = json.loads((await stage.outcome(stage.dispatch("test.pid"))).output)
        assert again != first


async def test_other_children_do_not_notice_the_death_of_one(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.worker([acts.until_file, acts.die], processes=2):
        survivor = stage.dispatch("test.until_file", str(tmp_path / "go"))
        beat = await stage.report(survivor, TaskHeartbeat)
        assert (await stage.outcome(stage.dispatch("test.die", "kill"))).error.code == "process_died"
        (tmp_path / "go").touch()
        done = await stage.outcome(survivor)
        assert json.loads(done.output) == json.loads(beat.details)["pid"]


async def test_a_child_is_used_again() -> None:
    stage = Stage()
    async with stage.worker([acts.pid]):
        pids = {(await stage.outcome(stage.dispatch("test.pid"))).output for _ in range(5)}
    assert len(pids) == 1


async def test_sys_exit_in_a_child_is_a_failure_and_the_child_lives() -> None:
    stage = Stage()
    async with stage.worker([acts.die, acts.pid]):
        first = (await stage.outcome(stage.dispatch("test.pid"))).output
        assert (await stage.outcome(stage.dispatch("test.die", "sys.exit"))).error.code == "SystemExit"
        assert (await stage.outcome(stage.dispatch("test.pid"))).output == first


async def test_errors_of_the_child_mean_what_they_mean_elsewhere() -> None:
    stage = Stage()
    async with stage.worker([acts.fail]):
        never = await stage.outcome(stage.dispatch("test.raise", "non_retryable"))
        assert (never.error.code, never.retryable, json.loads(never.error.details)) == (
            "never_again",
            False,
            {"why": 1},
        )
        assert isinstance(await stage.outcome(stage.dispatch("test.raise", "later")), TaskHandBack)
        assert (await stage.outcome(stage.dispatch("test.raise", ""))).error.code == "ValueError"


async def test_a_child_is_told_of_a_cancellation_and_the_next_attempt_in_it_is_not_cancelled() -> None:
    stage = Stage()
    async with stage.worker([acts.poll, acts.told]):
        dispatch = stage.dispatch("test.poll")
        await stage.report(dispatch, TaskHeartbeat)  # it runs
        stage.cancel(dispatch, "enough")
        done = await stage.outcome(dispatch)
        assert isinstance(done, TaskReportedCompleted)  # it returned, so it completed
        assert json.loads(done.output) == "stopped because enough"
        assert json.loads((await stage.outcome(stage.dispatch("test.told"))).output) == [None, True]


async def test_an_attempt_that_waits_for_a_child_is_dropped_when_cancelled(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.worker([acts.until_file], processes=1):
        running = stage.dispatch("test.until_file", str(tmp_path / "go"))
        await stage.report(running, TaskHeartbeat)
        waiting = stage.dispatch("test.until_file", str(tmp_path / "never"))
        await until(lambda: stage.reports(waiting))  # started: it holds a slot, but no child yet
        stage.cancel(waiting)
        await asyncio.sleep(0.05)
        (tmp_path / "go").touch()
        done = await stage.outcome(waiting)
    assert isinstance(done, TaskReportedCancelled)
    assert not done.ran


async def test_the_parent_heartbeats_while_the_child_is_frozen(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.worker([acts.until_file]):
        dispatch = stage.dispatch("test.until_file", str(tmp_path / "go"), lease_s=0.15)
        beat = await stage.report(dispatch, TaskHeartbeat)
        await until(lambda: any(isinstance(r, TaskHeartbeat) and r.details for r in stage.reports(dispatch)))
        beat = next(r for r in stage.reports(dispatch) if isinstance(r, TaskHeartbeat) and r.details)
        child = json.loads(beat.details or b"")["pid"]
        os.kill(child, signal.SIGSTOP)
        count = len(stage.reports(dispatch))
        await until(lambda: len(stage.reports(dispatch)) >= count + 3)
        os.kill(child, signal.SIGCONT)
        (tmp_path / "go").touch()
        await stage.outcome(dispatch)


async def test_children_end_with_the_worker(tmp_path: Path) -> None:
    stage = Stage()
    async with stage.worker([acts.until_file], drain_s=0.0):
        dispatch = stage.dispatch("test.until_file", str(tmp_path / "never"))
        beat = await stage.report(dispatch, TaskHeartbeat)
        child = json.loads(beat.details)["pid"]
    assert isinstance(await stage.outcome(dispatch), TaskHandBack)
    await until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
