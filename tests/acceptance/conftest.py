"""One system for the tests that share it, and a namespace and a queue for each of them."""

import re
from collections.abc import Callable, Iterator
from zlib import crc32

import pytest

from tests.support.system import System, running


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """All services once, the relay hosted; nobody kills or freezes anything but workers here."""
    with running(tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A namespace and a queue that nobody else uses."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    return f"{words[:50]}-{crc32(request.node.name.encode()):08x}"


@pytest.fixture
def stop_workers(system: System, name: str) -> Iterator[Callable[[], None]]:
    """Workers of a test end with it, also when it fails."""

    def stop() -> None:
        for process in system.local.processes:
            if process.kind == "worker" and process.name.startswith(f"{name}-"):
                process.kill()

    yield stop
    stop()
