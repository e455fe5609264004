"""A service as a process: what it does with signals, errors and a body that does not end."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

HEAD = """
import asyncio, logging, sys
from holdfast.kit.service import run_service
from holdfast.kit.settings import ProcessSettings

def go(body, **settings):
    sys.exit(run_service("probe", ProcessSettings(**settings), body))
"""

Run = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def run() -> Iterator[Run]:
    running: list[subprocess.Popen[str]] = []

    def start(body: str) -> subprocess.Popen[str]:
        code = HEAD + textwrap.dedent(body)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"


def end(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, object]]]:
    _, err = process.communicate(timeout=30)
    return process.returncode, [json.loads(line) for line in err.splitlines()]


WAITS = """
    async def body(runtime):
        print("up", flush=True)
        await runtime.stopping.wait()
        runtime.log.info("finished_what_it_had")
    go(body)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_with_zero(run: Run, number: signal.Signals) -> None:
    process = run(WAITS)
    wait_until_up(process)
    process.send_signal(number)
    code, lines = end(process)
    assert code == 0
    assert [line["event"] for line in lines] == ["starting", "draining", "finished_what_it_had", "stopped"]


def test_a_body_that_returns_ends_with_zero(run: Run) -> None:
    code, _ = end(run("async def body(runtime): runtime.health.started()\ngo(body)"))
    assert code == 0


def test_an_unhandled_error_is_logged_and_ends_with_one(run: Run) -> None:
    code, lines = end(run("async def body(runtime): raise LookupError('no such row')\ngo(body)"))
    assert code == 1
    (failed,) = [line for line in lines if line["event"] == "failed"]
    assert failed["error"] == "no such row"
    assert "Traceback" in str(failed["exception"])


def test_a_drain_that_takes_too_long_is_cut_off(run: Run) -> None:
    process = run("""
        async def body(runtime):
            print("up", flush=True)
            await asyncio.Event().wait()
        go(body, drain_s=0.2)
    """)
    wait_until_up(process)
    process.terminate()
    code, lines = end(process)
    assert code == 3
    assert "not_drained" in [line["event"] for line in lines]


def test_a_body_that_ignores_its_cancellation_is_cut_off_too(run: Run) -> None:
    process = run("""
        import holdfast.kit.service as service
        service._CANCEL_S = 0.2
        async def body(runtime):
            print("up", flush=True)
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass
        go(body, drain_s=0.1)
    """)
    wait_until_up(process)
    process.terminate()
    assert end(process)[0] == 3


def test_a_second_signal_ends_it_at_once(run: Run) -> None:
    process = run("""
        async def body(runtime):
            print("up", flush=True)
            await runtime.stopping.wait()
            print("up", flush=True)
            await asyncio.Event().wait()
        go(body)
    """)
    wait_until_up(process)
    process.terminate()
    wait_until_up(process)  # draining, and it would take 30 s
    process.terminate()
    assert end(process)[0] == 130


def test_every_line_is_json_and_names_the_service_and_its_instance(run: Run) -> None:
    _, lines = end(
        run("""
        async def body(runtime):
            logging.getLogger("holdfast.log").warning("broker %s is away", 7)
            runtime.log.info("hello", count=3)
        go(body)
    """)
    )
    assert {line["service"] for line in lines} == {"probe"}
    assert len({line["instance"] for line in lines}) == 1
    foreign = next(line for line in lines if line["event"] == "broker 7 is away")
    assert (foreign["level"], foreign["logger"]) == ("warning", "holdfast.log")
    assert next(line for line in lines if line["event"] == "hello")["count"] == 3
