"""The stack: one Postgres and one Kafka, started together, stopped together, one folder for both.

A folder has one owner at a time (a lock the kernel releases when the owner dies). Its data stays between runs, and
both servers' data stays together, because positions in Kafka are kept in Postgres.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.embedded import leftovers
from holdfast.embedded.choices import KafkaChoice, PostgresChoice, choose_kafka, choose_postgres
from holdfast.embedded.errors import EmbeddedError, FolderInUse
from holdfast.embedded.kafka import DockerKafka, ExternalKafka, KafkaProcess, KafkaServer
from holdfast.embedded.postgres import DockerPostgres, ExternalPostgres, PostgresProcess, PostgresServer
from holdfast.embedded.server import Say, Server


@dataclass(frozen=True)
class StackInfo:
    """Where the servers of a running stack are. What was not asked for is an empty string."""

    kafka: str
    postgres: str
    chosen: dict[str, str] = field(default_factory=dict)


class Stack:
    """Postgres and Kafka on this machine.

    `temporary` removes the folder in the end, even when this process is killed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        say: Callable[[str], None] = print,
        postgres: bool = True,
        kafka: bool = True,
        temporary: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self._say = say
        self._wants = {"postgres": postgres, "kafka": kafka}
        self._temporary = temporary
        self._lock: TextIOWrapper | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._info: StackInfo | None = None
        self._postgres: PostgresServer | None = None
        self._kafka: KafkaServer | None = None

    @property
    def info(self) -> StackInfo:
        if self._info is None:
            raise EmbeddedError("this stack is not started")
        return self._info

    @property
    def postgres(self) -> PostgresServer:
        if self._postgres is None:
            raise EmbeddedError("this stack has no Postgres, or is not started")
        return self._postgres

    @property
    def kafka(self) -> KafkaServer:
        if self._kafka is None:
            raise EmbeddedError("this stack has no Kafka, or is not started")
        return self._kafka

    def start(self) -> StackInfo:
        if self._lock is not None:
            raise EmbeddedError("this stack is already started")
        chosen = self._choose()
        self._take_folder()
        try:
            self._watch()
            self._start_servers()
        except BaseException:  # Ctrl-C too: whatever runs by now must end with us.
            self.stop()
            raise
        self._info = StackInfo(
            kafka=self._kafka.bootstrap if self._kafka else "",
            postgres=self._postgres.dsn if self._postgres else "",
            chosen=chosen,
        )
        return self._info

    def stop(self) -> None:
        """Stop what we started; safe to call twice."""
        if self._lock is None:
            return
        try:
            self._each(lambda server: server.stop())
            if self._temporary:
                self._each(lambda server: server.remove())
                leftovers.remove(self.folder)
        finally:
            self._release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _choose(self) -> dict[str, str]:
        chosen: dict[str, str] = {}
        if self._wants["postgres"]:
            postgres = choose_postgres(self._say)
            self._postgres = _postgres_for(postgres, self.folder, self._say)
            chosen["postgres"] = f"{postgres.kind}: {postgres.why}"
        if self._wants["kafka"]:
            kafka = choose_kafka(self._say)
            self._kafka = _kafka_for(kafka, self.folder, self._say)
            chosen["kafka"] = f"{kafka.kind}: {kafka.why}"
        for name, why in chosen.items():
            self._say(f"{name.capitalize()}: {why}")
        return chosen

    def _take_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = (self.folder / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise FolderInUse(f"{self.folder} is used by another process (pid {owner}); stop it first") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        for name in leftovers.sweep(self.folder):
            self._say(f"{name.capitalize()}: ended the leftover of a killed run")

    def _watch(self) -> None:
        me = leftovers.Identity.of(os.getpid())
        keep = "temporary" if self._temporary else "keep"
        script = [sys.executable, "-P", leftovers.__file__]
        self._guard = subprocess.Popen(
            [*script, str(self.folder), str(me.pid), repr(me.started), keep],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _servers(self) -> list[Server]:
        return [server for server in (self._postgres, self._kafka) if server is not None]

    def _start_servers(self) -> None:
        self._each(lambda server: server.start())

    def _each(self, act: Callable[[Server], None]) -> None:
        # At the same time: each takes seconds, and neither needs the other. list() waits and raises the first error.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(act, self._servers()))

    def _release(self) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            # The guard may have been killed; then there is nobody to tell.
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(leftovers.ALL_STOPPED)
                self._guard.stdin.close()
            self._guard.wait(timeout=30)
            self._guard = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _postgres_for(choice: PostgresChoice, folder: Path, say: Say) -> PostgresServer:
    if choice.kind == "external":
        return ExternalPostgres(choice.address)
    if choice.kind == "docker":
        return DockerPostgres(folder, say)
    return PostgresProcess(folder, say, choice.binaries)


def _kafka_for(choice: KafkaChoice, folder: Path, say: Say) -> KafkaServer:
    if choice.kind == "external":
        return ExternalKafka(choice.address)
    if choice.kind == "docker":
        return DockerKafka(folder, say)
    assert choice.java is not None
    return KafkaProcess(folder, say, choice.java)
