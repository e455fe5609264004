"""Fixtures every test may ask for. They are lazy: a run that asks for none of them starts nothing.

`stack`     Postgres and Kafka, one for the whole run, shared by the workers of pytest-xdist
`postgres`  the DSN of that Postgres (its database holds nothing)
`database`  the DSN of a fresh, empty database, dropped after the test
`kafka`     the bootstrap address; topics are shared, so tests use names of their own
`private_stack`  a stack of the test's own, for those that kill or freeze servers

`HOLDFAST_POSTGRES` and `HOLDFAST_KAFKA` are honoured. Where a Docker daemon answers the servers come from
testcontainers, else from the embedded stack; the run says which, and why.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.embedded import docker
from holdfast.embedded.stack import Stack
from tests.support import containers, shared
from tests.support.folders import open_folder


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print past pytest's capture: what was chosen is worth seeing in a run that passes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n[stack] {line}", file=sys.stderr, flush=True)

    return write


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, say: Callable[[str], None]) -> Iterator[Stack]:
    wanted = {name for name in ("HOLDFAST_POSTGRES", "HOLDFAST_KAFKA") if not os.environ.get(name)}
    if wanted and docker.no_daemon() is None:
        say("servers from testcontainers: a Docker daemon answers")
        with containers.running(wanted) as addresses, shared.environment(addresses):
            yield from _started(say)
    elif wanted and hasattr(request.config, "workerinput"):
        # Several workers: one process of its own keeps the servers for all of them.
        addresses = shared.addresses(request.config.workerinput["testrunuid"], wanted)
        with shared.environment(addresses):
            yield from _started(say)
    else:
        yield from _started(say)


def _started(say: Callable[[str], None]) -> Iterator[Stack]:
    with Stack(open_folder("holdfast-test-"), say=say, temporary=True) as running:
        yield running


@pytest.fixture
def private_stack() -> Iterator[Callable[..., Stack]]:
    """Makes started stacks that live as long as the test: `private_stack(kafka=False)`."""
    started: list[Stack] = []

    def make(folder: Path | None = None, *, postgres: bool = True, kafka: bool = True) -> Stack:
        where = folder or open_folder("holdfast-test-")
        stack = Stack(where, say=lambda _: None, postgres=postgres, kafka=kafka, temporary=folder is None)
        started.append(stack)
        stack.start()
        return stack

    yield make
    for stack in reversed(started):
        stack.stop()


@pytest.fixture
def postgres(stack: Stack) -> str:
    return stack.info.postgres


@pytest.fixture
def kafka(stack: Stack) -> str:
    return stack.info.kafka


@pytest.fixture
def database(stack: Stack) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    yield stack.postgres.create_database(name)
    stack.postgres.drop_database(name)
