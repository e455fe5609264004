"""`holdfast.cancellations`, which every worker reads: who has to stop."""

from __future__ import annotations

import logging

from holdfast.contracts.messages import decode_cancellation
from holdfast.core.errors import Corrupt
from holdfast.log.protocol import Record, Tail
from holdfast.worker.engine import Engine

_log = logging.getLogger(__name__)

_batch_max = 1_000


class Stops:
    """Start it before anything is read from a queue: what is cancelled after a dispatch was read must be heard."""

    def __init__(self, tail: Tail, engine: Engine) -> None:
        self._tail = tail
        self._engine = engine
        self._closed = False

    async def start(self) -> None:
        await self._tail.start()

    async def run(self) -> None:
        while not self._closed:
            for record in await self._tail.batch(_batch_max):
                self._hear(record)

    async def close(self) -> None:
        self._closed = True
        await self._tail.close()

    def _hear(self, record: Record) -> None:
        try:
            told = decode_cancellation(record.value or b"")
        except Corrupt as problem:
            # No dead letter: every worker reads this topic, and there would be one from each.
            self._engine.stats.malformed_cancellations += 1
            _log.error("a cancellation at %s/%s cannot be read: %s", record.partition, record.offset, problem)
            return
        self._engine.cancel(told)
