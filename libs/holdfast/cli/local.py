"""All of Holdfast on one machine: Kafka, Postgres and N of each service, every one a real process with a name.

`holdfast dev`, the demo, the benchmark and the acceptance tests are built on it. Names are `coordinator-1`, `relay-1`,
`recovery-1`; workers are named by whoever starts them. Everything blocks; from a coroutine, use `asyncio.to_thread`.

    with LocalSystem(Path(".holdfast/x"), coordinators=2) as system:
        system.start_worker("examples.orders.worker:worker", name="worker-1")
        system.kill("coordinator-1")
        system.restart("coordinator-1")
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.cli import setup
from holdfast.cli.local_process import LocalFailed, LocalProcess
from holdfast.embedded.ports import free_ports
from holdfast.embedded.stack import Stack, StackInfo

__all__ = ["LocalFailed", "LocalProcess", "LocalSystem"]

SERVICES = ("coordinator", "relay", "recovery")
READY_S = 60.0
DRAIN_S = 40.0  # longer than the 30 s that a worker gives its tasks

T = TypeVar("T")


class LocalSystem:
    """A stack and the services on it. `temporary` removes the folder in the end, even if this process is killed."""

    def __init__(
        self,
        folder: Path,
        *,
        coordinators: int = 1,
        relays: int = 1,
        recoveries: int = 1,
        env: Mapping[str, str] | None = None,
        partitions: int | None = None,
        temporary: bool = False,
        logs: Path | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """`logs` is where each process's log goes: `<folder>/logs` unless they shall outlive a temporary folder."""
        self.folder = folder.absolute()
        self.logs = self.folder / "logs" if logs is None else logs.absolute()
        self.stack = Stack(self.folder, say=say, temporary=temporary)
        self._wanted = {"coordinator": coordinators, "relay": relays, "recovery": recoveries}
        self._env = dict(env or {})
        self._partitions = partitions
        self._say = say
        self._processes: dict[str, LocalProcess] = {}

    # --- the whole

    def start(self) -> StackInfo:
        """Start the stack, migrate, make the topics, start the services and wait until each is ready."""
        info = self.stack.start()
        try:
            self._say("Postgres: migrating")
            apart(setup.migrate_database(info.postgres))
            self._say("Kafka: making the topics")
            apart(setup.create_topics(info.kafka, info.postgres, partitions=self._partitions))
            names = [(f"{kind}-{n}", kind) for kind, count in self._wanted.items() for n in range(1, count + 1)]
            for name, kind in names:
                self.start_service(name, kind, ready=False)
            for name, _ in names:
                self.wait_ready(name)
        except BaseException:  # Ctrl-C too: nothing may outlive a start that failed.
            self.stop()
            raise
        return info

    def stop(self) -> None:
        """Workers first, so that they can still report; then the services; then Kafka and Postgres."""
        order = sorted(self._processes.values(), key=lambda one: one.kind in SERVICES)
        for workers in (True, False):
            group = [one for one in order if (one.kind not in SERVICES) is workers]
            with ThreadPoolExecutor(max(1, len(group))) as pool:
                list(pool.map(lambda one: one.stop(DRAIN_S), group))
        self._processes.clear()
        self.stack.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def info(self) -> StackInfo:
        return self.stack.info

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to find this system: the settings of the user, of this system, and its addresses."""
        found = {"HOLDFAST_KAFKA": self.info.kafka, "HOLDFAST_POSTGRES": self.info.postgres}
        return {**os.environ, **self._env, **found}

    @property
    def processes(self) -> list[LocalProcess]:
        return list(self._processes.values())

    # --- one process

    def start_service(
        self, name: str, kind: str, env: Mapping[str, str] | None = None, *, ready: bool = True
    ) -> LocalProcess:
        """Start one more service; `kind` is coordinator, relay or recovery."""
        if kind not in SERVICES:
            raise LocalFailed(f"there is no service {kind!r}; there are {', '.join(SERVICES)}")
        return self._launch(name, kind, (kind,), env or {}, ready=ready)

    def start_worker(
        self,
        target: str,
        env: Mapping[str, str] | None = None,
        name: str = "worker-1",
        *,
        ready: bool = True,
        working_folder: Path | None = None,
    ) -> LocalProcess:
        """Start a worker; `target` is what `holdfast worker` takes: `package.module:worker`."""
        return self._launch(name, "worker", ("worker", target), env or {}, ready=ready, working_folder=working_folder)

    def process(self, name: str) -> LocalProcess:
        try:
            return self._processes[name]
        except KeyError:
            raise LocalFailed(f"nothing here is called {name}; there are {', '.join(self._processes)}") from None

    def kill(self, name: str) -> None:
        """SIGKILL: the process gets no chance to do anything."""
        self.process(name).kill()

    def freeze(self, name: str) -> None:
        """SIGSTOP: it keeps its connections and its beliefs, and does nothing until `thaw`."""
        self.process(name).freeze()

    def thaw(self, name: str) -> None:
        self.process(name).thaw()

    def stop_service(self, name: str, grace_s: float = DRAIN_S) -> None:
        """SIGTERM and wait for the drain; SIGKILL after `grace_s`."""
        self.process(name).stop(grace_s)

    def restart(self, name: str, *, ready: bool = True) -> LocalProcess:
        """Start it again with the same settings and port, after `kill`, `stop_service` or a crash."""
        process = self.process(name)
        if process.running:
            process.stop(DRAIN_S)
        process.start()
        if ready:
            self.wait_ready(name)
        return process

    def wait_ready(self, name: str, timeout_s: float = READY_S) -> None:
        """Until /readyz says yes; raises LocalFailed with the end of its log."""
        self.process(name).wait_ready(timeout_s)

    def crashed(self) -> list[LocalProcess]:
        """Those that ended though nobody here stopped or killed them."""
        return [one for one in self._processes.values() if one.crashed]

    def wait_until(self, true: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Poll; raises LocalFailed when it does not become true, or when a process crashes meanwhile."""
        until = time.monotonic() + timeout_s
        while not true():
            for crash in self.crashed():
                raise LocalFailed(f"{crash.name} crashed while waiting for {what}; {crash.log_tail()}")
            if time.monotonic() > until:
                raise LocalFailed(f"waited {timeout_s:.0f} s for {what}")
            time.sleep(0.05)

    def _launch(
        self,
        name: str,
        kind: str,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        *,
        ready: bool,
        working_folder: Path | None = None,
    ) -> LocalProcess:
        if name in self._processes and self._processes[name].running:
            raise LocalFailed(f"{name} is already running")
        port = free_ports(1)[0]
        process = LocalProcess(
            name=name,
            kind=kind,
            arguments=("-m", "holdfast.cli", *arguments),
            env={**self.env, "HOLDFAST_HEALTH_PORT": str(port), **env},
            folder=self.folder,
            log_file=self.logs / f"{name}.log",
            port=port,
            working_folder=working_folder,
        )
        self._processes[name] = process
        process.start()
        if ready:
            process.wait_ready(READY_S)
        return process


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from plain code, also where an event loop already runs in this thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
