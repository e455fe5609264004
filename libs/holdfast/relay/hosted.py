"""A relay inside a coordinator: what it has just committed goes to Kafka from memory, without a look at Postgres.

The coordinator claims the publisher's lease together with the partition (`take`), publishes each row right after its
commit returned (`publish`), and stores `done` in its next commit (`done`, then `stored` once that commit is through).
Whatever cannot go out at once, because a backlog is still being read, Kafka is slow, or a producer was replaced, is
read from Postgres instead; nothing newer overtakes it. When no commit comes along, `done` is stored and the lease
renewed from here, so an idle coordinator leaves neither rows behind nor its partitions to the relay service.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.contracts.frame import FramedMessage
from holdfast.core.errors import Transient
from holdfast.relay import metrics
from holdfast.relay.publisher import PartitionPublisher, ProducerFactory
from holdfast.store.protocol import OutboxStore
from holdfast.store.rows import Claim
from holdfast.store.rows import Publisher as PublisherRow

_log = logging.getLogger(__name__)

_RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class HostedLimits:
    lease_s: float = 5.0
    flush_s: float = 0.5  # an idle coordinator stores `done` this often
    in_flight_bytes_max: int = 64 * 1024 * 1024
    rows_max: int = 200


class HostedPublisher:
    """Make it inside a running event loop. `holder` is the name under which the coordinator claims its partitions."""

    def __init__(
        self,
        producer_factory: ProducerFactory,
        store: OutboxStore,
        *,
        holder: str,
        limits: HostedLimits | None = None,
    ) -> None:
        self._limits = limits or HostedLimits()
        self._store = store
        self._holder = holder
        self._publisher = PartitionPublisher(
            producer_factory,
            store,
            in_flight_bytes_max=self._limits.in_flight_bytes_max,
            rows_max=self._limits.rows_max,
        )
        self._behind = self._publisher.fell_behind
        self._stored_at = time.monotonic()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._read_backlogs(), name="holdfast-hosted-backlog"),
            loop.create_task(self._keep(), name="holdfast-hosted-lease"),
        ]

    async def take(self, claims: Sequence[Claim]) -> None:
        """These are ours to publish now. Returns when that is set up; backlogs are read in the background, first."""
        hosted = [claim for claim in claims if claim.publisher_epoch is not None]
        if not hosted:
            return
        parked = await self._parked_of([claim.partition for claim in hosted])
        for claim in hosted:
            assert claim.publisher_epoch is not None
            lane = self._publisher.open(
                claim.partition, claim.publisher_epoch, claim.outbox_done, claim.outbox_last, parked
            )
            lane.touched = time.monotonic()
        metrics.partitions_held.set(len(self._publisher.lanes))
        self._behind.set()

    def publish(self, partition: int, number: int, messages: Sequence[FramedMessage]) -> None:
        """Right after the commit that wrote row `number` returned. Never blocks."""
        lane = self._publisher.lanes.get(partition)
        if lane is None:
            return
        lane.touched = time.monotonic()
        if not self._publisher.send(lane, number, messages):
            lane.last = max(lane.last or 0, number)
            self._behind.set()

    def expect(self, partition: int, last: int) -> None:
        """Rows up to `last` are committed, though nobody told us (an unknown outcome): read what is missing."""
        lane = self._publisher.lanes.get(partition)
        if lane is not None and last > (lane.last or 0):
            lane.last = last
            self._behind.set()

    def done(self, partition: int) -> int | None:
        """For the next commit: everything up to here is in Kafka; None when Postgres knows that already."""
        lane = self._publisher.lanes.get(partition)
        return lane.done if lane is not None and lane.done > lane.stored else None

    def stored(self, partition: int, done: int) -> None:
        """A commit that moved `done` is through."""
        lane = self._publisher.lanes.get(partition)
        if lane is not None:
            lane.touched = self._stored_at = time.monotonic()
            lane.stored = max(lane.stored, done)

    def epoch(self, partition: int) -> int | None:
        """The publisher's epoch while the lease is ours, for `PartitionAdvance.publisher_epoch`; else None."""
        lane = self._publisher.lanes.get(partition)
        return None if lane is None else lane.epoch

    def wants_flush(self) -> dict[int, int]:
        """partition -> done that Postgres does not know. Stored from here every `flush_s` when no commit does."""
        return {position.partition: position.done for position in self._publisher.unstored()}

    @property
    def in_flight_bytes(self) -> int:
        return self._publisher.in_flight_bytes

    async def room(self) -> None:
        """Back-pressure: waits while more bytes are under way than the limit allows."""
        await self._publisher.room()

    def drop(self, partitions: Iterable[int]) -> None:
        """Revoked, lost, or `Committed.publisher_lost`: publish nothing more of these."""
        for partition in partitions:
            self._publisher.drop(partition)
        metrics.partitions_held.set(len(self._publisher.lanes))

    async def close(self, timeout_s: float = 5.0) -> None:
        """Wait for what is under way, store `done`, give the leases back. The outcome of a time-out is a repetition."""
        await self._publisher.flush(timeout_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(timeout_s):
                await self._flush()
                await self._store.release_publishers(self._holder, self._held())
        except (Transient, TimeoutError) as problem:
            _log.warning("leases of %d partitions run out by themselves: %s", len(self._publisher.lanes), problem)
        await self._publisher.close()

    def _held(self, idle_since: float | None = None) -> list[PublisherRow]:
        return [
            PublisherRow(partition, lane.epoch, lane.done)
            for partition, lane in self._publisher.lanes.items()
            if idle_since is None or lane.touched <= idle_since
        ]

    async def _parked_of(self, partitions: Sequence[int]) -> set[str]:
        while True:
            try:
                return await self._store.parked_instances(partitions)
            except Transient as problem:
                _log.warning("cannot take partitions to publish yet: %s", problem)
                await asyncio.sleep(_RETRY_S)

    async def _read_backlogs(self) -> None:
        while True:
            await self._behind.wait()
            self._behind.clear()
            while any(lane.behind for lane in self._publisher.lanes.values()):
                try:
                    sent = await self._publisher.read_more()
                except Transient as problem:
                    _log.warning("cannot read the outbox: %s", problem)
                    sent = 0
                if not sent:
                    # Rows that are not there are being committed, or a zombie of ours lost its lease: look again.
                    await asyncio.sleep(_RETRY_S)

    async def _keep(self) -> None:
        """Both for partitions that no commit has touched lately: those that are busy pay for nothing here."""
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(min(self._limits.flush_s, self._limits.lease_s / 6))
            metrics.in_flight_bytes.set(self._publisher.in_flight_bytes)
            try:
                if time.monotonic() - self._stored_at >= self._limits.flush_s:
                    await self._flush()
                if time.monotonic() - renewed_at >= self._limits.lease_s / 3:
                    renewed_at = time.monotonic()
                    await self._renew(renewed_at - self._limits.lease_s / 3)
            except Transient as problem:
                _log.warning("cannot keep the publisher's leases: %s", problem)

    async def _flush(self) -> None:
        positions = self._publisher.unstored()
        if not positions:
            return
        self._stored_at = time.monotonic()
        held = await self._store.advance(positions)
        self._publisher.stored(position for position in positions if position.partition in held)
        self._lose(position for position in positions if position.partition not in held)

    async def _renew(self, idle_since: float) -> None:
        idle = self._held(idle_since)
        if idle:
            held = await self._store.renew_publishers(self._holder, idle, lease_s=self._limits.lease_s)
            self._lose(position for position in idle if position.partition not in held)

    def _lose(self, positions: Iterable[PublisherRow]) -> None:
        for position in positions:
            lane = self._publisher.lanes.get(position.partition)
            if lane is not None and lane.epoch == position.epoch:  # It may have been claimed anew meanwhile.
                _log.warning("partition %d is published by somebody else now", position.partition)
                metrics.leases_lost.inc()
                self.drop([position.partition])
