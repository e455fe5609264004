"""Workers as processes on real Kafka: killed, frozen, told to go."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.inputs import (
    HandBackReason,
    TaskHandBack,
    TaskHeartbeat,
    TaskReportedCompleted,
    TaskReportedStarted,
)
from tests.integration.worker.coordinator import Coordinator, freeze, until, wake


@pytest.fixture
async def coordinator(kafka: str, tmp_path: Path) -> AsyncIterator[Coordinator]:
    async with Coordinator(kafka, tmp_path).playing() as playing:
        yield playing


async def test_a_task_runs_and_its_offset_is_committed_after_its_report(coordinator: Coordinator) -> None:
    coordinator.worker()
    dispatches = [await coordinator.dispatch("quick", number) for number in range(20)]
    for dispatch in dispatches:
        await coordinator.report(dispatch, TaskReportedCompleted)
    await coordinator.until_committed(20)


async def test_killed_before_any_report_the_task_is_delivered_again_and_claimed(coordinator: Coordinator) -> None:
    first = coordinator.worker(start_grace_s="3600")
    await coordinator.report(await coordinator.dispatch("quick", 0), TaskReportedCompleted)
    await coordinator.until_committed(1)
    dispatch = await coordinator.dispatch("gate", 1)  # comes after the assignment: not claimed
    await coordinator.entered(1, first)
    first.kill()
    first.wait()
    assert coordinator.reports(dispatch) == []
    assert await coordinator.committed() == 1
    second = coordinator.worker(start_grace_s="3600")
    await coordinator.entered(1, second)
    # Only the second one said anything, and it said so before it ran.
    claims = [r for r in coordinator.reports(dispatch) if isinstance(r, TaskReportedStarted)]
    assert [claim.holder.split("-")[-2] for claim in claims] == [str(second.pid)]
    coordinator.let(1)
    await coordinator.report(dispatch, TaskReportedCompleted)
    await coordinator.until_committed(2)


async def test_killed_after_started_the_task_is_not_delivered_again(coordinator: Coordinator) -> None:
    first = coordinator.worker()
    dispatch = await coordinator.dispatch("gate", 1)
    await coordinator.report(dispatch, TaskReportedStarted)
    await coordinator.until_committed(1)
    first.kill()
    first.wait()
    second = coordinator.worker()
    after = await coordinator.dispatch("quick", 2)
    await coordinator.report(after, TaskReportedCompleted)
    assert f"entered-1-{second.pid}" not in coordinator.marks()  # the lease, not Kafka, looks after it now


async def test_an_offset_waits_for_the_acknowledgement_of_an_earlier_task(coordinator: Coordinator) -> None:
    worker = coordinator.worker(start_grace_s="3600")
    await until(lambda: worker.poll() is None)
    await coordinator.report(await coordinator.dispatch("quick", 0), TaskReportedCompleted)
    await coordinator.until_committed(1)
    slow = await coordinator.dispatch("gate", 1)
    await coordinator.entered(1, worker)
    for number in range(2, 12):
        await coordinator.report(await coordinator.dispatch("quick", number), TaskReportedCompleted)
    await asyncio.sleep(0.5)  # several intervals between commits
    assert await coordinator.committed() == 1
    coordinator.let(1)
    await coordinator.report(slow, TaskReportedCompleted)
    await coordinator.until_committed(12)


async def test_sigterm_lets_a_task_end_and_hands_back_the_one_that_does_not(coordinator: Coordinator) -> None:
    worker = coordinator.worker(drain_s="2")
    ends = await coordinator.dispatch("gate", 1)
    stays = await coordinator.dispatch("gate", 2)
    await coordinator.entered(1, worker)
    await coordinator.entered(2, worker)
    worker.terminate()
    coordinator.let(1)
    await coordinator.report(ends, TaskReportedCompleted)
    back = await coordinator.report(stays, TaskHandBack)
    assert back.reason is HandBackReason.DRAINING
    assert await asyncio.to_thread(worker.wait, 30) == 0
    await coordinator.until_committed(2)
    assert f"cancelled:draining-2-{worker.pid}" in coordinator.marks()


async def test_another_worker_has_the_queue_while_the_draining_one_still_works(coordinator: Coordinator) -> None:
    old = coordinator.worker(drain_s="60")
    running = await coordinator.dispatch("gate", 1)
    await coordinator.entered(1, old)
    await coordinator.report(running, TaskReportedStarted)
    old.terminate()
    new = coordinator.worker()
    await coordinator.report(await coordinator.dispatch("quick", 2), TaskReportedCompleted)
    assert old.poll() is None
    assert f"ran-2-{new.pid}" in coordinator.marks()
    coordinator.let(1)
    await coordinator.report(running, TaskReportedCompleted)
    assert await asyncio.to_thread(old.wait, 30) == 0


async def test_a_frozen_worker_that_lost_its_lease_stops_when_it_wakes_and_says_nothing(
    coordinator: Coordinator,
) -> None:
    worker = coordinator.worker()
    dispatch = await coordinator.dispatch("gate", 1, lease_s=3.0)
    started = await coordinator.report(dispatch, TaskReportedStarted)
    await coordinator.entered(1, worker)
    freeze(worker)
    await coordinator.cancel(dispatch, "lease_lost", holder=started.holder)
    wake(worker)
    await until(lambda: f"cancelled:lease_lost-1-{worker.pid}" in coordinator.marks(), coordinator.marks)
    await coordinator.report(await coordinator.dispatch("quick", 2), TaskReportedCompleted)
    said = {type(r) for r in coordinator.reports(dispatch)}
    assert said <= {TaskReportedStarted, TaskHeartbeat}


async def test_a_worker_frozen_past_its_session_comes_back_and_works_on(coordinator: Coordinator) -> None:
    frozen = coordinator.worker()
    slow = await coordinator.dispatch("gate", 1, lease_s=3.0)
    await coordinator.report(slow, TaskReportedStarted)
    await coordinator.until_committed(1)
    freeze(frozen)
    other = coordinator.worker()
    after = await coordinator.dispatch("quick", 2)
    await coordinator.report(after, TaskReportedCompleted)  # only possible once Kafka has taken the partition away
    assert f"ran-2-{other.pid}" in coordinator.marks()
    wake(frozen)
    coordinator.let(1)
    done = await coordinator.report(slow, TaskReportedCompleted)
    assert str(frozen.pid) in done.holder
    other.terminate()
    assert await asyncio.to_thread(other.wait, 30) == 0
    await coordinator.report(await coordinator.dispatch("quick", 3), TaskReportedCompleted)
    assert f"ran-3-{frozen.pid}" in coordinator.marks()


async def test_an_activity_that_blocks_the_event_loop_keeps_its_lease(coordinator: Coordinator) -> None:
    worker = coordinator.worker()
    dispatch = await coordinator.dispatch("busy", 1, lease_s=1.0)
    await coordinator.entered(1, worker)
    beat = await coordinator.report(dispatch, TaskHeartbeat, count=4)
    assert str(worker.pid) in beat.holder
    coordinator.let(1)
    await coordinator.report(dispatch, TaskReportedCompleted)


async def test_readiness_and_metrics_are_served(coordinator: Coordinator) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    coordinator.worker(health_port=str(port))
    await until(lambda: _get(port, "/readyz")[0] == 200, lambda: _get(port, "/readyz"))
    await coordinator.report(await coordinator.dispatch("quick", 1), TaskReportedCompleted)
    counted = f'holdfast_worker_attempts_total{{activity="{coordinator.queue}.quick",outcome="completed"}} 1.0'
    await until(lambda: counted in _get(port, "/metrics")[1], lambda: _get(port, "/metrics")[1])
    assert json.loads(_get(port, "/healthz")[1])["ok"]


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()
    except OSError as problem:
        return 0, str(problem)
