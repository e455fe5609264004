"""The relay: publishes what nobody else holds. Three loops over one publisher.

`_read` takes rows and hands them to Kafka; it never sleeps while there are any. `_store_done` moves `done` when
delivery reports are in, several rows at a time. `_keep_leases` claims what is free, renews what is ours, and gives
some away when another relay has come. Whatever goes wrong with Postgres or Kafka is waited out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.core.errors import Refused, Transient
from holdfast.kit.backoff import Backoff
from holdfast.relay import metrics
from holdfast.relay.lane import Lane
from holdfast.relay.publisher import PartitionPublisher, ProducerFactory
from holdfast.store.protocol import OutboxStore
from holdfast.store.rows import Publisher as PublisherRow
from holdfast_relay.share import Share, SharesOf

_log = logging.getLogger(__name__)

_LET_GO_S = 2.0
_SLEEP_S_MIN = 0.25

Note = Callable[[str, str | None], None]
"""Told of each loop why it does not get on, or None when it does."""


@dataclass(frozen=True, slots=True)
class RelayLimits:
    lease_s: float = 5.0
    poll_s: float = 1.0
    rows_max: int = 500
    in_flight_bytes_max: int = 32 * 1024 * 1024
    done_every_s: float = 0.02  # a commit each; what is not stored yet is only repeated after a crash


class Relay:
    def __init__(
        self,
        store: OutboxStore,
        shares: SharesOf,
        producer_factory: ProducerFactory,
        *,
        holder: str,
        limits: RelayLimits | None = None,
        note: Note = lambda loop, reason: None,
    ) -> None:
        self._limits = limits or RelayLimits()
        self._store = store
        self._holder = holder
        self._share = Share(shares, self._limits.lease_s)
        self._publisher = PartitionPublisher(
            producer_factory,
            store,
            in_flight_bytes_max=self._limits.in_flight_bytes_max,
            rows_max=self._limits.rows_max,
        )
        self._sleep_s = _SLEEP_S_MIN
        self._note = note
        note("leases", "has not asked for partitions yet")

    @property
    def partitions(self) -> list[int]:
        return sorted(self._publisher.lanes)

    async def run(self, stopping: asyncio.Event) -> None:
        loops = {"leases": self._keep_leases, "reading": self._read, "done": self._store_done}
        tasks = [asyncio.create_task(self._forever(name, loop), name=f"relay-{name}") for name, loop in loops.items()]
        stopped = asyncio.create_task(stopping.wait())
        try:
            # A loop ends only by a bug, which must not be hidden behind two that go on.
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            # Stop reading; what is under way still moves `done`.
            tasks[1].cancel()
            await self._let_go(list(self._publisher.lanes.values()))
        finally:
            for task in [stopped, *tasks]:
                task.cancel()
            await asyncio.gather(stopped, *tasks, return_exceptions=True)
            await self._publisher.close()

    async def _forever(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(cap_s=2.0)
        while True:
            try:
                await loop()
                self._note(name, None)
                backoff.reset()
            except (Transient, Refused) as problem:
                if not backoff.failures:
                    _log.warning("relay waits: %s", problem)
                self._note(name, str(problem))
                await asyncio.sleep(backoff.next_s())

    # --- rows

    async def _read(self) -> None:
        # Before reading: whatever is claimed or rewound from here on ends the sleep below.
        self._publisher.fell_behind.clear()
        if await self._publisher.read_more():
            self._sleep_s = _SLEEP_S_MIN
            return
        # Nothing there: sleep until told, until it is time to look, or until we hold more than before. The first sleeps
        # are short, because a commit that was under way when we said that we sleep does not know it and tells nobody.
        sleep_s = min(self._sleep_s, self._limits.poll_s)
        self._sleep_s = sleep_s * 2
        told = asyncio.create_task(self._store.wait_for_outbox(sleep_s))
        more = asyncio.create_task(self._publisher.fell_behind.wait())
        try:
            await asyncio.wait([told, more], return_when=asyncio.FIRST_COMPLETED)
        finally:
            more.cancel()
            told.cancel()
            results = await asyncio.gather(told, more, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _store_done(self) -> None:
        await self._publisher.moved.wait()
        self._publisher.moved.clear()
        try:
            await self._advance()
        except Transient:
            self._publisher.moved.set()
            raise
        await asyncio.sleep(self._limits.done_every_s)

    async def _advance(self) -> None:
        positions = self._publisher.unstored()
        if positions:
            held = await self._store.advance(positions)
            self._publisher.stored(position for position in positions if position.partition in held)
            self._drop_lost(positions, held)

    # --- leases

    async def _keep_leases(self) -> None:
        await self._renew()
        fair = await self._share.look()
        lanes = list(self._publisher.lanes.values())
        if fair.give_away(len(lanes)):
            await self._let_go(lanes[: fair.give_away(len(lanes))])
        elif fair.may_claim(len(lanes)):
            await self._claim(fair.most)
        metrics.partitions_held.set(len(self._publisher.lanes))
        metrics.in_flight_bytes.set(self._publisher.in_flight_bytes)
        self._note("leases", None)
        await asyncio.sleep(self._limits.lease_s / 3)

    async def _renew(self) -> None:
        mine = [PublisherRow(partition, lane.epoch, lane.done) for partition, lane in self._publisher.lanes.items()]
        if mine:
            held = await self._store.renew_publishers(self._holder, mine, lease_s=self._limits.lease_s)
            self._drop_lost(mine, held)

    async def _claim(self, most: int) -> None:
        claimed = await self._store.claim_publishers(self._holder, lease_s=self._limits.lease_s, most=most)
        if not claimed:
            return
        parked = await self._store.parked_instances([publisher.partition for publisher in claimed])
        for publisher in claimed:
            self._publisher.open(publisher.partition, publisher.epoch, publisher.done, None, parked)
        _log.info("publishing partitions %s", [publisher.partition for publisher in claimed])
        self._publisher.fell_behind.set()

    def _drop_lost(self, mine: Sequence[PublisherRow], held: frozenset[int]) -> None:
        for publisher in mine:
            lane = self._publisher.lanes.get(publisher.partition)
            if publisher.partition not in held and lane is not None and lane.epoch == publisher.epoch:
                _log.warning("partition %d is published by somebody else now", publisher.partition)
                metrics.leases_lost.inc()
                self._publisher.drop(publisher.partition)

    async def _let_go(self, lanes: Sequence[Lane]) -> None:
        """Read no more of these and wait a moment for what is under way: the next one repeats what is left of it."""
        for lane in lanes:
            lane.last = lane.sent
        try:
            async with asyncio.timeout(_LET_GO_S):
                while any(lane.rows for lane in lanes):  # noqa: ASYNC110  # Reports come to many lanes at once.
                    await asyncio.sleep(0.005)
        except TimeoutError:
            _log.warning("kafka has not taken everything: whoever publishes next repeats some messages")
        try:
            await self._advance()
            rows = [PublisherRow(lane.partition, lane.epoch, lane.done) for lane in lanes if not lane.dropped]
            await self._store.release_publishers(self._holder, rows)
        except Transient as problem:
            _log.warning("leases of %d partitions run out by themselves: %s", len(lanes), problem)
        for lane in lanes:
            if not lane.dropped:
                self._publisher.drop(lane.partition)
