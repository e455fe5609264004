"""Messages that Kafka will never take, put aside in Postgres with their reason, each with its place in the outbox.

The relay knows the instance of a message from its frame alone: the `hf_instance` header of a task, else the key.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.contracts.frame import encode_frame
from holdfast.core.errors import Transient
from holdfast.log.protocol import Message
from holdfast.relay import metrics
from holdfast.relay.lane import Lane, Row
from holdfast.store.protocol import OutboxStore
from holdfast.store.rows import Publisher as PublisherRow

_log = logging.getLogger(__name__)

INSTANCE_HEADER = "hf_instance"
_RETRY_S = 0.5


class Parked(NamedTuple):
    position: int
    message: Message
    reason: str


class _Job(NamedTuple):
    generation: int
    lane: Lane
    row: Row
    messages: Sequence[Parked]


OnParked = Callable[[int, Lane, Row], None]


def instance_of(message: Message) -> str:
    for name, value in message.headers:
        if name == INSTANCE_HEADER and value is not None:
            return value.decode(errors="replace")
    return (message.key or b"").decode(errors="replace")


class Parking:
    """Writes in the order in which it was told, one at a time, until each is on record; then says so."""

    def __init__(self, store: OutboxStore, parked: OnParked) -> None:
        self._store = store
        self._on_parked = parked
        self._jobs: deque[_Job] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, generation: int, lane: Lane, row: Row, messages: Sequence[Parked]) -> None:
        self._jobs.append(_Job(generation, lane, row, messages))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name="holdfast-parking")

    async def close(self) -> None:
        self._jobs.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            for parked in job.messages:
                if not await self._write(job, parked):
                    break
            else:
                self._on_parked(job.generation, job.lane, job.row)

    async def _write(self, job: _Job, parked: Parked) -> bool:
        """False when the partition is not ours any more."""
        message = parked.message
        body = encode_frame([message[:4]])
        while not job.lane.dropped:
            try:
                # A zombie must not park what its successor has published: only the holder's epoch moves `done`.
                if not await self._store.advance([PublisherRow(job.lane.partition, job.lane.epoch, job.lane.done)]):
                    return False
                await self._store.park_outbox(
                    job.lane.partition,
                    job.row.number,
                    parked.position,
                    message.topic,
                    instance_of(message),
                    body,
                    parked.reason,
                )
            except Transient as problem:
                _log.warning("cannot park a message yet: %s", problem)
                await asyncio.sleep(_RETRY_S)
            else:
                metrics.messages_parked.labels(message.topic).inc()
                return True
        return False
