"""Servers as containers, through the `docker` command, where a daemon answers.

A container is named after its stack's folder and kept between runs, data and port with it; a run that was killed
leaves it running, and the next start stops it first.
"""

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from holdfast.embedded.errors import EmbeddedError
from holdfast.embedded.ports import free_ports
from holdfast.embedded.server import Say, Server

KAFKA_IMAGE = "apache/kafka:4.3.1"
POSTGRES_IMAGE = "postgres:17"
_PULL_S = 600
_READY_S = 90


def _docker(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, timeout=timeout_s)


@cache
def no_daemon() -> str | None:
    """Why Docker cannot be used, or None when a daemon answers."""
    if shutil.which("docker") is None:
        return "no docker command"
    try:
        done = _docker("version", "--format", "{{.Server.Version}}", timeout_s=10)
    except subprocess.TimeoutExpired:
        return "the Docker daemon does not answer"
    return None if done.returncode == 0 and done.stdout.strip() else "no Docker daemon answers"


def no_image(image: str, say: Say) -> str | None:
    """Why the image cannot be had, or None when it is here (pulled now if need be)."""
    if _docker("image", "inspect", image).returncode == 0:
        return None
    say(f"Docker: pulling {image}, once")
    try:
        pulled = _docker("pull", "--quiet", image, timeout_s=_PULL_S)
    except subprocess.TimeoutExpired:
        return f"pulling {image} took more than {_PULL_S} s"
    return None if pulled.returncode == 0 else f"{image} cannot be pulled"


class Container(Server):
    """One server in a container."""

    def __init__(
        self,
        folder: Path,
        say: Say,
        *,
        name: str,
        image: str,
        inner_port: int,
        environment: Callable[[int], dict[str, str]],
        answers: Callable[[int], bool],
    ) -> None:
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        self.container = f"holdfast-{name}-{digest}"
        self.name = name
        self.say = say
        self._image = image
        self._inner_port = inner_port
        self._environment = environment
        self._answers = answers
        self.port = 0

    def start(self) -> None:
        self.port = self._port_of_existing() or self._create()
        self._must("start", self.container)
        deadline = time.monotonic() + _READY_S
        while not self._answers(self.port):
            if time.monotonic() > deadline:
                logs = _docker("logs", "--tail", "20", self.container)
                raise EmbeddedError(f"{self.name} in Docker did not answer:\n{logs.stdout}{logs.stderr}")
            time.sleep(0.1)

    def _port_of_existing(self) -> int | None:
        found = _docker("inspect", "--format", "{{json .Config.Labels}}", self.container)
        if found.returncode != 0:
            return None
        _docker("stop", self.container)  # Left by a killed run; stopping a stopped one does nothing.
        return int(json.loads(found.stdout)["holdfast.port"])

    def _create(self) -> int:
        [port] = free_ports(1)
        settings = [f"--env={key}={value}" for key, value in self._environment(port).items()]
        publish = f"--publish=127.0.0.1:{port}:{self._inner_port}"
        self._must(
            "create", f"--name={self.container}", f"--label=holdfast.port={port}", publish, *settings, self._image
        )
        return port

    def _must(self, *arguments: str) -> str:
        done = _docker(*arguments)
        if done.returncode != 0:
            raise EmbeddedError(f"docker {arguments[0]} {self.container} failed: {done.stderr.strip()}")
        return done.stdout.strip()

    @property
    def pid(self) -> int:
        return int(self._must("inspect", "--format", "{{.State.Pid}}", self.container))

    def stop(self) -> None:
        _docker("unpause", self.container)
        _docker("stop", self.container)

    def kill(self) -> None:
        self._must("kill", self.container)

    def pause(self) -> None:
        self._must("pause", self.container)

    def resume(self) -> None:
        self._must("unpause", self.container)

    def remove(self) -> None:
        _docker("rm", "--force", "--volumes", self.container)
