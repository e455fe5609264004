"""Heartbeats. They have a thread, an event loop and a producer of their own, so that an activity which keeps the
worker's event loop busy does not cost the other attempts their leases. (One long call into C stops this thread too:
that is what `run_in="process"` is for.)

Which attempts there are is told by appending to a deque: a quick attempt costs one append here and is thrown out at the
next look. The coordinator takes a heartbeat with the current fence and no lease for `started`, so it does not matter
which of the two producers is first. A heartbeat is not sent while the one before is on its way: an hour without Kafka
leaves one per attempt, not hundreds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from holdfast.contracts.messages import encode_report
from holdfast.contracts.topics import REPORTS
from holdfast.core.inputs import ActorType, Origin, TaskHeartbeat
from holdfast.log.protocol import Delivery, Message, Producer
from holdfast.worker.attempt import Attempt, Stop

_log = logging.getLogger(__name__)

look_s = 0.5
beats_per_lease = 3
_short_lease_s = 4 * look_s


class Pulse:
    """Runs on whatever loop calls `run`; `begun`, `progress` and `wake` are for any thread."""

    def __init__(self, holder: str, address: str, open_producer: Callable[[], Producer]) -> None:
        self._holder = holder
        self._address = address
        self._origin = Origin(ActorType.WORKER, holder, "")
        self._open = open_producer
        self._producer: Producer | None = None
        self._begun: deque[Attempt] = deque()
        self.progress: deque[Attempt] = deque()
        self._due: list[tuple[float, int, Attempt]] = []
        self._count = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._stopping = False
        self.sent = 0

    def begun(self, attempt: Attempt) -> None:
        self._begun.append(attempt)
        if attempt.dispatch.lease_s < _short_lease_s:
            self.wake()  # The next look may be too late for it.

    def wake(self) -> None:
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None and not loop.is_closed():
            loop.call_soon_threadsafe(woken.set)

    def stop(self) -> None:
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            while not self._stopping:
                self._woken.clear()
                self._look(self._loop.time())
                wait_s = look_s
                if self._due:
                    wait_s = min(look_s, max(0.0, self._due[0][0] - self._loop.time()))
                handle = self._loop.call_later(wait_s, self._woken.set)
                await self._woken.wait()
                handle.cancel()
        finally:
            if self._producer is not None:
                await self._producer.close(timeout_s=1.0)

    def _look(self, now: float) -> None:
        begun, due = self._begun, self._due
        while begun:
            attempt = begun.popleft()
            if not attempt.ended:
                first = attempt.begun_at + attempt.dispatch.lease_s / beats_per_lease
                heapq.heappush(due, (first, next(self._count), attempt))
        beating: dict[int, Attempt] = {}
        while due and due[0][0] <= now:
            _, _, attempt = heapq.heappop(due)
            if attempt.ended or attempt.stop is Stop.LEASE_LOST:
                continue
            beating[id(attempt)] = attempt
            again = now + attempt.dispatch.lease_s / beats_per_lease
            heapq.heappush(due, (again, next(self._count), attempt))
        while self.progress:
            attempt = self.progress.popleft()
            if not attempt.ended and attempt.stop is not Stop.LEASE_LOST:
                beating[id(attempt)] = attempt
        self._send([attempt for attempt in beating.values() if not attempt.beat_sent])

    def _send(self, attempts: list[Attempt]) -> None:
        if not attempts:
            return
        producer = self._working_producer()
        messages = []
        for attempt in attempts:
            attempt.beat_sent = True
            d, details, attempt.details = attempt.dispatch, attempt.details, None
            heartbeat = TaskHeartbeat(
                d.instance, self._origin, d.path, d.execution, d.fence, self._holder, self._address, details
            )
            messages.append(Message(REPORTS, d.instance.encode(), encode_report(heartbeat)))
        self.sent += len(messages)
        producer.publish(messages, partial(self._delivered, attempts))

    def _working_producer(self) -> Producer:
        if self._producer is not None and self._producer.fatal is not None:
            broken, self._producer = self._producer, None
            broken.purge()
            self._closing = asyncio.ensure_future(broken.close(timeout_s=1.0))
        if self._producer is None:
            self._producer = self._open()
        return self._producer

    def _delivered(self, attempts: list[Attempt], deliveries: list[Delivery]) -> None:
        for attempt, delivery in zip(attempts, deliveries, strict=True):
            attempt.beat_sent = False
            if delivery.error is not None:
                _log.warning("a heartbeat was not taken by kafka: %s", delivery.error.message)
            elif attempt.details is not None:
                self.progress.append(attempt)  # Came while the last one was on its way.


class PulseThread:
    """A pulse on a thread of its own."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._thread = threading.Thread(target=self._run, name="holdfast-heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def stop(self) -> None:
        self._pulse.stop()
        await asyncio.to_thread(self._thread.join, 5.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._pulse.run())
        except Exception:
            # Without heartbeats every long attempt would lose its lease: the worker's health check sees this end.
            _log.exception("the heartbeats stopped")
