"""Postgres and Kafka from testcontainers, where a Docker daemon answers."""

import contextlib
import time
from collections.abc import Callable, Iterator

from holdfast.embedded import kafka, postgres
from holdfast.embedded.docker import KAFKA_IMAGE, POSTGRES_IMAGE
from holdfast.embedded.ports import free_ports

_READY_S = 90


@contextlib.contextmanager
def running(wanted: set[str]) -> Iterator[dict[str, str]]:
    """Settings with the addresses of the containers, which end with the block (Ryuk ends them if we are killed)."""
    from testcontainers.core.container import DockerContainer

    found: dict[str, str] = {}
    with contextlib.ExitStack() as running:
        if "HOLDFAST_POSTGRES" in wanted:
            [port] = free_ports(1)
            settings = {"POSTGRES_USER": "holdfast", "POSTGRES_PASSWORD": "holdfast", "POSTGRES_DB": "holdfast"}
            container = DockerContainer(POSTGRES_IMAGE, env=settings).with_bind_ports(5432, port)
            running.enter_context(container.with_command("postgres -c max_connections=200"))
            found["HOLDFAST_POSTGRES"] = postgres.loopback_dsn("holdfast", port)
            _wait(postgres.answers, found["HOLDFAST_POSTGRES"])
        if "HOLDFAST_KAFKA" in wanted:
            [port] = free_ports(1)
            container = DockerContainer(KAFKA_IMAGE, env=kafka.container_settings(port)).with_bind_ports(19092, port)
            running.enter_context(container)
            found["HOLDFAST_KAFKA"] = f"127.0.0.1:{port}"
            _wait(kafka.answers, found["HOLDFAST_KAFKA"])
        yield found


def _wait(answers: Callable[[str], bool], address: str) -> None:
    deadline = time.monotonic() + _READY_S
    while not answers(address):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the container at {address} did not answer within {_READY_S} s")
        time.sleep(0.1)
