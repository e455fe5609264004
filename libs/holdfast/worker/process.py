"""One worker process, assembled: engine, heartbeats, cancellations, an intake per queue; and how it goes away."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.contracts.topics import CANCELLATIONS
from holdfast.kit.logging import LogFormat
from holdfast.log.protocol import Admin, Assignments, Consumer, Producer, Tail
from holdfast.worker.dead_letters import DeadLetters
from holdfast.worker.engine import Engine, Limits
from holdfast.worker.intake import Intake
from holdfast.worker.pulse import Pulse, PulseThread
from holdfast.worker.stops import Stops
from holdfast.worker.words import Words
from holdfast.worker.worker import Worker

_log = logging.getLogger(__name__)

stop_wait_s = 2.0  # for activities to end once they are told to
flush_wait_s = 15.0  # for Kafka to acknowledge the last reports
leave_wait_s = 5.0  # for the group to let us go
_watch_s = 1.0
stalled_s_max = 15.0


class LogPort(Protocol):
    """Where a worker gets its clients from. `producer` is called on whatever loop is to use it."""

    def consumer(self, topic: str, group: str, assignments: Assignments) -> Consumer: ...

    def tail(self, topic: str) -> Tail: ...

    def producer(self) -> Producer: ...

    def admin(self) -> Admin: ...


@dataclass(frozen=True, slots=True)
class Options:
    start_grace_s: float = 0.2
    drain_s: float = 30.0
    heartbeat_thread: bool = True  # False: on the worker's own loop, for the in-memory log, which has only one
    log_level: str = "INFO"  # of child processes
    log_format: LogFormat = "json"
    holder: str = field(default_factory=lambda: new_holder())
    address: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")


def new_holder() -> str:
    """New for each start of a process: a lease must never be taken for that of the process before."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class WorkerProcess:
    def __init__(self, worker: Worker, log: LogPort, options: Options | None = None) -> None:
        self.worker = worker
        self.options = options or Options()
        self.holder = self.options.holder
        words = Words(self.holder, self.options.address)
        self.pulse = Pulse(self.holder, self.options.address, log.producer)
        self._letters = DeadLetters(log.producer)
        limits = Limits(worker.concurrency, worker.threads, worker.processes, self.options.start_grace_s)
        logs = (self.holder, self.options.log_level, self.options.log_format)
        self.engine = Engine(worker.activities, limits, words, self.pulse, log.producer, self._letters.put, logs)
        self._admin = log.admin()
        self.intakes = [Intake(queue, self.engine, self._admin, log.consumer) for queue in worker.queues]
        self.engine.freed = self._freed
        self._stops = Stops(log.tail(CANCELLATIONS), self.engine)
        self._thread = PulseThread(self.pulse) if self.options.heartbeat_thread else None
        self._tasks: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set; then drain and leave. Raises if a part of it fails."""
        await self._stops.start()
        if self._thread is not None:
            self._thread.start()
        else:
            self._spawn(self.pulse.run(), "heartbeats")
        self._spawn(self._stops.run(), "cancellations")
        self._spawn(self._watch(), "watch")
        for intake in self.intakes:
            self._spawn(intake.run(), f"intake-{intake.queue}")
        waiting = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()  # Raises what ended it.
                    raise RuntimeError(f"{task.get_name()} ended by itself")
            await self.drain()
        finally:
            waiting.cancel()
            await self.close()

    async def drain(self) -> None:
        """Read no more, let what runs end, hand back what does not. The group is left as soon as Kafka need not look
        after anything of ours any more, which is long before the last attempt has ended."""
        _log.info("draining: %s attempts are running", self.engine.running)
        deadline = self._now() + self.options.drain_s
        self.engine.draining = True
        for intake in self.intakes:
            intake.stop_reading()
        leaving = [asyncio.create_task(intake.leave()) for intake in self.intakes]
        await self._until_idle(deadline - self._now())
        self.engine.stop_all("draining")
        await self._until_idle(stop_wait_s)
        self.engine.give_up()
        await self.engine.reporter.drained(flush_wait_s)
        _, late = await asyncio.wait(leaving, timeout=leave_wait_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*(intake.close() for intake in self.intakes))

    async def close(self) -> None:
        """Also after a failure: whatever is not reported now is redelivered, or its lease runs out."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for intake in self.intakes:
            await intake.close()
        await self._stops.close()
        if self._thread is not None:
            await self._thread.stop()
        await self.engine.close()
        await self._letters.close()
        await self._admin.close()

    def problem(self) -> str | None:
        """Why this worker is not ready, or None."""
        if self.engine.draining:
            return "draining"
        waiting = [intake.queue for intake in self.intakes if not intake.joined]
        if waiting:
            return f"not assigned yet: {', '.join(waiting)}"
        if self.engine.reporter.refused is not None:
            return f"kafka does not take reports: {self.engine.reporter.refused.message}"
        if self.engine.reporter.stalled_s > stalled_s_max:
            return f"kafka has acknowledged nothing for {self.engine.reporter.stalled_s:.0f} s"
        return None

    async def _watch(self) -> None:
        """What nothing else would notice: a producer that broke while idle, heartbeats that stopped."""
        while True:
            await asyncio.sleep(_watch_s)
            self.engine.reporter.renew_if_broken()
            if self._thread is not None and not self._thread.alive:
                raise RuntimeError("the heartbeats stopped; without them every lease would be lost")

    async def _until_idle(self, timeout_s: float) -> None:
        deadline = self._now() + timeout_s
        while self.engine.running and self._now() < deadline:
            self._idle.clear()
            try:
                async with asyncio.timeout(deadline - self._now()):
                    await self._idle.wait()
            except TimeoutError:
                return

    def _freed(self) -> None:
        # No queue starves: the first one reads nothing more while it has tasks that wait for a slot, so those run out.
        for intake in self.intakes:
            intake.pump()
        self._idle.set()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
