"""Ticks to `holdfast.ticks`, keyed by instance so that murmur2 finds its home: all that recovery ever says."""

import asyncio
from collections.abc import Callable, Sequence

from holdfast.contracts.messages import encode_tick
from holdfast.contracts.topics import TICKS
from holdfast.core.errors import Transient
from holdfast.core.inputs import ActorType, Origin, Tick
from holdfast.log.protocol import Message, Producer


class TickSender:
    """Each tick is sent again by whoever finds it unanswered, so nothing here is retried or remembered."""

    def __init__(self, producer_factory: Callable[[], Producer], name: str, *, timeout_s: float = 5.0) -> None:
        self.origin = Origin(ActorType.RECOVERY, name, "")
        self._factory = producer_factory
        self._producer: Producer | None = None
        self._timeout_s = timeout_s

    async def send(self, ticks: Sequence[Tick]) -> list[int]:
        """The offset that each tick got. Transient if one was not written in time; some may have been, or will be."""
        if self._producer is None or self._producer.fatal is not None:
            await self.close()
            self._producer = self._factory()
        messages = [Message(TICKS, tick.instance.encode(), encode_tick(tick)) for tick in ticks]
        try:
            deliveries = await asyncio.wait_for(self._producer.send_all(messages), self._timeout_s)
        except TimeoutError as late:
            # What is still queued would come out stale when Kafka is back; whoever is responsible sends it anew then.
            self._producer.purge()
            raise Transient(f"kafka has not taken {len(ticks)} ticks within {self._timeout_s} s") from late
        for delivery in deliveries:
            if delivery.error is not None:
                raise Transient(f"a tick was not written: {delivery.error.name}: {delivery.error.message}")
        return [delivery.offset for delivery in deliveries]

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(1.0)
