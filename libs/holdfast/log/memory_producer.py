"""The twin of `KafkaProducer`: written at once, reported on the next turn of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence

from holdfast.contracts.topics import message_bytes_max
from holdfast.core.errors import Refused
from holdfast.log.memory import PURGED, MemoryLog
from holdfast.log.protocol import Delivery, DeliveryError, Message, OnDeliveries, OnDelivery

_log = logging.getLogger(__name__)


class MemoryProducer:
    def __init__(self, log: MemoryLog, *, message_bytes_max: int = message_bytes_max) -> None:
        self._memory = log
        self._bytes_max = message_bytes_max
        self._waiting: deque[tuple[Sequence[Message], OnDeliveries]] = deque()
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        log.listen(self, self._write)

    @property
    def outstanding(self) -> int:
        return self._outstanding

    @property
    def fatal(self) -> DeliveryError | None:
        return None

    def send(self, message: Message, on_delivery: OnDelivery | None = None) -> None:
        def done(deliveries: list[Delivery]) -> None:
            if on_delivery is not None:
                on_delivery(deliveries[0])

        self.publish([message], done)

    async def send_all(self, messages: Sequence[Message]) -> list[Delivery]:
        future: asyncio.Future[list[Delivery]] = asyncio.get_running_loop().create_future()

        def done(deliveries: list[Delivery]) -> None:
            if not future.done():
                future.set_result(deliveries)

        self.publish(messages, done)
        return await future

    def publish(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        if self._closed:
            raise Refused("producer_closed", "this producer was closed; make a new one")
        self._outstanding += len(messages)
        self._idle.clear()
        self._waiting.append((messages, done))
        self._write()

    async def flush(self, timeout_s: float) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        return self._outstanding

    def purge(self) -> None:
        while self._waiting:
            messages, done = self._waiting.popleft()
            self._report([Delivery(message.topic, -1, -1, PURGED) for message in messages], done)

    async def close(self, timeout_s: float = 10.0) -> int:
        if self._closed:
            return 0
        self._closed = True
        left = await self.flush(timeout_s)
        self.purge()
        await self.flush(timeout_s)
        self._memory.unlisten(self)
        return left

    def _write(self) -> None:
        # Appending notifies, and a notification writes: what is taken off first is written once.
        while self._memory.up and self._waiting:
            messages, done = self._waiting.popleft()
            self._report([self._memory.append(message, self._bytes_max) for message in messages], done)

    def _report(self, deliveries: list[Delivery], done: OnDeliveries) -> None:
        asyncio.get_running_loop().call_soon(self._done, deliveries, done)

    def _done(self, deliveries: list[Delivery], done: OnDeliveries) -> None:
        self._outstanding -= len(deliveries)
        try:
            done(deliveries)
        except Exception:
            _log.exception("a delivery callback raised")
        if not self._outstanding:
            self._idle.set()
