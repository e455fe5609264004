"""Partitions come and go: claimed, revoked, lost, taken from us, claimed again.

`generation` changes whenever something may have left us. Whatever was read or loaded under an older one is thrown away:
a stale state must never be cached, and never decide anything, not even that there is nothing to do.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.errors import Refused, Transient
from holdfast.kit.backoff import Backoff
from holdfast.kit.clock import DatabaseClock
from holdfast.kit.health import Health
from holdfast.kit.logging import Logger
from holdfast.log.protocol import TopicPartition
from holdfast.relay.hosted import HostedPublisher
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.rows import Settled
from holdfast_coordinator import metrics
from holdfast_coordinator.cache import StateCache
from holdfast_coordinator.ownership import Owned, inbox_partitions
from holdfast_coordinator.parking import Parking
from holdfast_coordinator.settings import CoordinatorSettings


class Assignment:
    """Implements `holdfast.log.protocol.Assignments` for the coordinator's consumer."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        store: CoordinatorStore,
        cache: StateCache,
        parking: Parking,
        clock: DatabaseClock,
        publisher: HostedPublisher | None,
        log: Logger,
        *,
        holder: str,
        health: Health,
    ) -> None:
        self._settings = settings
        self._store = store
        self._cache = cache
        self._parking = parking
        self._clock = clock
        self._publisher = publisher
        self._log = log
        self._holder = holder
        self._health = health
        self._time = asyncio.get_running_loop().time
        self._reclaim_at: dict[int, float] = {}
        self.owned: dict[int, Owned] = {}
        self.generation = 0
        self._faulty = False
        self.idle = asyncio.Event()  # no commit is under way
        self.idle.set()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        numbers = inbox_partitions(partitions)
        offsets = await self._claim(numbers) if numbers else {}
        self.fine()
        # A spare one, with more coordinators than partitions, is assigned nothing and is ready too.
        self._health.started()
        self._log.info("partitions_assigned", partitions=numbers)
        return offsets

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Still ours: what is being committed may finish; nothing new is begun under the old assignment."""
        self.generation += 1
        try:
            await self.idle.wait()
        finally:
            self._let_go(inbox_partitions(partitions))

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.generation += 1
        self._let_go(inbox_partitions(partitions))

    def offsets(self) -> dict[TopicPartition, int]:
        """Where to read on, for everything that is ours."""
        return {place: offset for owned in self.owned.values() for place, offset in owned.offsets().items()}

    def fault(self, text: str) -> None:
        """Nothing moves, and this is why; until the next commit or claim."""
        if not self._faulty:
            self._log.warning("coordinator_waits", reason=text)
        self._faulty = True
        self._health.fails("commits", text)

    def fine(self) -> None:
        if self._faulty:
            self._faulty = False
            self._health.passes("commits")

    async def settle(self) -> list[Settled] | None:
        """What the rows of our partitions say; None if that cannot be learned now."""
        mine = sorted(self.owned)
        try:
            return await self._store.settle(mine) if mine else []
        except (Transient, Refused) as problem:
            self.fault(f"cannot read the partitions' rows: {problem}")
            return None

    def adopt(self, rows: Iterable[Settled]) -> None:
        """After a failure: go on where the rows say, and let go of what somebody else has claimed."""
        for row in rows:
            owned = self.owned.get(row.partition)
            if owned is None:
                continue
            if row.epoch == owned.epoch:
                owned.settle(row)
                if self._publisher is not None:
                    self._publisher.expect(row.partition, row.outbox_last)
            else:
                self._log.warning("partition_claimed_by_somebody_else", partition=row.partition)
                self._let_go([row.partition])
                self._reclaim_at[row.partition] = self._time() + self._settings.reclaim_s

    @property
    def wants_reclaim(self) -> bool:
        return any(at <= self._time() for at in self._reclaim_at.values())

    async def reclaim(self, assigned: Iterable[TopicPartition]) -> None:
        """Claim again what Kafka still counts as ours: a zombie may have claimed it late and gone away."""
        due = [partition for partition, at in self._reclaim_at.items() if at <= self._time()]
        for partition in due:
            del self._reclaim_at[partition]
        still = set(inbox_partitions(assigned))
        mine = [partition for partition in due if partition in still]
        if mine:
            self.generation += 1
            await self._claim(mine)

    async def _claim(self, numbers: list[int]) -> dict[TopicPartition, int]:
        backoff = Backoff()
        while True:
            try:
                claims = await self._store.claim(
                    numbers,
                    self._holder,
                    publish=self._publisher is not None,
                    publisher_lease_s=self._settings.publisher_lease_s,
                )
                break
            except (Transient, Refused) as problem:
                self.fault(f"cannot claim partitions: {problem}")
                await asyncio.sleep(backoff.next_s())
        offsets: dict[TopicPartition, int] = {}
        for claim in claims:
            self._clock.observe(claim.now)
            self._cache.drop([claim.partition])
            owned = self.owned[claim.partition] = Owned.from_claim(claim)
            self._parking.take(claim.partition, claim.parked)
            self._reclaim_at.pop(claim.partition, None)
            offsets |= owned.offsets()
        if self._publisher is not None:
            await self._publisher.take(claims)
            for claim in claims:
                # The loop may have committed while the lane was being opened.
                if claim.partition in self.owned:
                    self._publisher.expect(claim.partition, self.owned[claim.partition].outbox_last)
        metrics.owned.set(len(self.owned))
        self.fine()
        return offsets

    def _let_go(self, partitions: list[int]) -> None:
        self._cache.drop(partitions)
        for partition in partitions:
            self.owned.pop(partition, None)
            self._reclaim_at.pop(partition, None)
            self._parking.drop(partition)
        if self._publisher is not None:
            self._publisher.drop(partitions)
        metrics.owned.set(len(self.owned))
        self._log.info("partitions_released", partitions=partitions)
