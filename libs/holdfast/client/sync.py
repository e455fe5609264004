"""The client for code without an event loop: a loop of its own in a thread, and calls that wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.client.client import Client
from holdfast.client.reads import Status
from holdfast.client.run import Run, Sent
from holdfast.core.events import Recorded
from holdfast.store.rows import CommandRow

T = TypeVar("T")


class SyncClient:
    """`with SyncClient.connect() as holdfast:`; the same calls as `Client`, and the same errors. Thread-safe."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-client", daemon=True)
        self._client: Client | None = None

    @classmethod
    def connect(cls, kafka: str | None = None, postgres: str | None = None, **options: Any) -> SyncClient:
        """See `Client.connect`."""
        return cls({"kafka": kafka, "postgres": postgres, **options})

    def __enter__(self) -> Self:
        self._thread.start()
        self._client = self._wait(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, workflow: str, **arguments: Any) -> SyncRun:
        """See `Client.start`."""
        return SyncRun(self, self._wait(self._opened.start(workflow, **arguments)))

    def run(self, key: str) -> SyncRun:
        return SyncRun(self, self._opened.run(key))

    @property
    def _opened(self) -> Client:
        if self._client is None:
            raise RuntimeError("use the client inside `with SyncClient.connect() as holdfast:`")
        return self._client

    async def _open(self) -> Client:
        return await Client.connect(**self._arguments).__aenter__()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class SyncRun:
    """See `Run`."""

    def __init__(self, client: SyncClient, run: Run) -> None:
        self._wait = client._wait
        self._run = run

    @property
    def key(self) -> str:
        return self._run.key

    @property
    def run_id(self) -> str:
        return self._run.run_id

    def accepted(self, timeout: float | None = 30.0) -> SyncRun:
        self._wait(self._run.accepted(timeout))
        return self

    def result(self, timeout: float | None = None) -> Any:
        return self._wait(self._run.result(timeout))

    def finished(self, timeout: float | None = None) -> Status:
        return self._wait(self._run.finished(timeout))

    def status(self) -> Status:
        return self._wait(self._run.status())

    def events(self, after: int = 0) -> list[Recorded]:
        async def collect() -> list[Recorded]:
            return [recorded async for recorded in self._run.events(after)]

        return self._wait(collect())

    def cancel(self, reason: str = "", *, compensate: bool = False, force: bool = False) -> CommandRow:
        """Unlike the async one it waits for the outcome: there is nothing else to do meanwhile."""
        return self._accepted(self._wait(self._run.cancel(reason, compensate=compensate, force=force)))

    def resume(self, reason: str = "") -> CommandRow:
        return self._accepted(self._wait(self._run.resume(reason)))

    def _accepted(self, sent: Sent) -> CommandRow:
        return self._wait(sent.accepted())
