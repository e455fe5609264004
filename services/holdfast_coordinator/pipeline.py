"""The coordinator's loop: one batch commits while the next is read, decoded and decided.

Everything that can go wrong with a commit ends in the same place, `_recover`: both batches are dropped with all cached
states, the partitions' rows are read, and reading goes on where they say. So there is one way to be wrong and one way
back, whatever happened: fenced, a conflict, a connection that broke with the outcome unknown.
"""

import asyncio
import time
from functools import partial

from holdfast.core.errors import Fenced, Refused, Transient
from holdfast.core.ids import InstanceId
from holdfast.kit.backoff import Backoff
from holdfast.kit.clock import DatabaseClock
from holdfast.kit.logging import Logger
from holdfast.log.protocol import Consumer, Record
from holdfast.relay.hosted import HostedPublisher
from holdfast.store.errors import Conflict, Unstorable
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.rows import CommandKey, CommandRow, Commit, Committed, Settled
from holdfast_coordinator import metrics
from holdfast_coordinator.assignment import Assignment
from holdfast_coordinator.batch import Batch
from holdfast_coordinator.cache import StateCache
from holdfast_coordinator.parking import Parking, Tools
from holdfast_coordinator.preparing import Preparer
from holdfast_coordinator.wakers import Wakers

_TELL_KAFKA_S = 1.0
_LOOK_S = 0.2


class Pipeline:
    def __init__(
        self,
        store: CoordinatorStore,
        consumer: Consumer,
        assignment: Assignment,
        cache: StateCache,
        preparer: Preparer,
        parking: Parking,
        clock: DatabaseClock,
        publisher: HostedPublisher | None,
        log: Logger,
        *,
        batch_inputs_max: int,
    ) -> None:
        self._store = store
        self._consumer = consumer
        self._assignment = assignment
        self._cache = cache
        self._preparer = preparer
        self._parking = parking
        self._clock = clock
        self._publisher = publisher
        self._log = log
        self._batch_inputs_max = batch_inputs_max
        self._wakers = Wakers(store, log)
        self._flying: asyncio.Task[None] | None = None
        self._flying_batch: Batch | None = None
        self._time = asyncio.get_running_loop().time
        self._told_at = 0.0
        self._backoff = Backoff()  # between failures with no commit in between

    async def run(self, stopping: asyncio.Event) -> None:
        waker = asyncio.create_task(self._wake(stopping), name="holdfast-coordinator-waker")
        try:
            while not stopping.is_set():
                records = await self._consumer.batch(self._batch_inputs_max)
                try:
                    await self._step(records, self._assignment.generation)
                except Unstorable as problem:
                    await self._recover(f"unstorable: {problem}")
                    self._parking.one_by_one = True
                except (Transient, Fenced, Conflict) as problem:
                    await self._recover(f"{type(problem).__name__}: {problem}")
            await self._finish()
        finally:
            waker.cancel()
            await self._wakers.close()

    async def _finish(self) -> None:
        try:
            await self._land()
        except (Transient, Fenced, Conflict, Unstorable) as problem:
            self._log.warning("last_batch_not_committed", reason=str(problem))  # It is read again by the next owner.

    async def _wake(self, stopping: asyncio.Event) -> None:
        """The loop sleeps until a record comes; somebody has to tell it that a retry or a claim is due, or the end."""
        while not stopping.is_set():
            if self._assignment.wants_reclaim or self._parking.due(self._time()):
                self._consumer.wake()
            try:
                await asyncio.wait_for(stopping.wait(), _LOOK_S)
            except TimeoutError:
                continue
        self._consumer.wake()

    async def _step(self, records: list[Record], generation: int) -> None:
        if self._flying is not None and self._flying.done():
            await self._land()
        if self._parking.due(self._time()):
            await self._land()
            await self._retry_parked()
        if self._assignment.wants_reclaim:
            await self._land()
            await self._assignment.reclaim(self._consumer.assignment)
            # What we hold was read before the claim, and what came before it was thrown away: read it all again.
            self._consumer.seek(self._assignment.offsets())
            return
        mine = [record for record in records if self._is_new(record)]
        if not mine:
            return
        batch = await self._prepare(mine, generation)
        if self._publisher is not None:
            await self._publisher.room()
        await self._land()
        if generation == self._assignment.generation:
            self._launch(batch)
            await asyncio.sleep(0)  # Or the statement would leave only after the next batch is decided.
        else:
            # Read under an assignment that is gone. What is ours now starts where its claim says.
            self._cache.drop(self._assignment.owned)
            self._consumer.seek(self._assignment.offsets())

    def _is_new(self, record: Record) -> bool:
        """Ours, and not decided yet: a seek and a rebalance may both show a record again."""
        owned = self._assignment.owned.get(record.partition)
        return owned is not None and record.offset >= owned.next[record.topic]

    async def _prepare(self, records: list[Record], generation: int) -> Batch:
        batch, inputs = self._preparer.read(records, generation)
        batch.first_try_s = self._parking.first_delay_s
        recent = self._flying_batch.commands if self._flying_batch is not None else {}
        skip = self._parking.instances
        known: dict[CommandKey, CommandRow] = {}
        broken: dict[InstanceId, str] = {}
        if self._parking.one_by_one:
            # The database refused something in this batch: each instance gets a transaction of its own.
            self._parking.one_by_one = False
            new = [inbound.instance_id for inbound in inputs if inbound.instance_id not in skip]
            broken = dict.fromkeys(new, "decided one by one")
            batch.first_try_s = 0.0
        else:
            known, broken = await self._preparer.load(
                batch,
                inputs,
                skip=skip,
                recent=recent,
                committing=self._wait_for,
                still_ours=lambda: generation == self._assignment.generation,
            )
        if generation != self._assignment.generation:
            return batch  # It is dropped, and read anew.
        failed = self._preparer.decide(batch, inputs, known, skip, broken)
        self._parking.add(batch, failed, self._time())
        return batch

    async def _wait_for(self, misses: frozenset[InstanceId]) -> None:
        """A state that the batch under way has changed cannot be loaded before that batch is through."""
        if self._flying_batch is not None and not misses.isdisjoint(self._flying_batch.work):
            await self._land()

    def _launch(self, batch: Batch) -> None:
        commit = self._preparer.build(batch, self._assignment.owned)
        if self._publisher is not None:
            for advance in commit.partitions:
                advance.publisher_epoch = self._publisher.epoch(advance.partition)
                advance.outbox_done = self._publisher.done(advance.partition)
        self._assignment.idle.clear()
        self._flying_batch = batch
        self._flying = asyncio.create_task(self._commit(batch))
        self._flying.add_done_callback(self._landed)

    def _landed(self, flying: "asyncio.Task[None]") -> None:
        """The loop may be waiting for records that never come; a failure must not wait with it."""
        if not flying.cancelled() and flying.exception() is not None:
            self._consumer.wake()

    async def _land(self) -> None:
        """Wait for the batch under way; raises what went wrong with it."""
        flying, self._flying = self._flying, None
        if flying is not None:
            try:
                await flying
            finally:
                self._flying_batch = None

    async def _commit(self, batch: Batch) -> None:
        assert batch.commit is not None
        began = time.perf_counter()
        try:
            committed = await self._store.commit(batch.commit)
        except Exception as problem:
            metrics.commits.labels(type(problem).__name__).inc()
            raise
        finally:
            self._assignment.idle.set()
        metrics.commit_seconds.observe(time.perf_counter() - began)
        self._clock.observe(committed.now)
        self._assignment.fine()
        self._backoff.reset()
        self._publish(batch, committed)
        self._cache.committed(batch.number, batch.touched())
        self._parking.committed(batch)
        self._wakers.after(batch.commit, relay_waiting=committed.relay_waiting and self._needs_relay(batch.commit))
        self._count(batch)
        await self._tell_kafka()

    def _publish(self, batch: Batch, committed: Committed) -> None:
        """Only now: what is sent is committed, always."""
        if self._publisher is None or batch.commit is None:
            return
        for advance in batch.commit.partitions:
            if advance.outbox_done is not None and advance.partition not in committed.publisher_lost:
                self._publisher.stored(advance.partition, advance.outbox_done)
            if advance.outbox_number is not None:
                self._publisher.publish(advance.partition, advance.outbox_number, batch.frames[advance.partition])
        if committed.publisher_lost:
            self._publisher.drop(committed.publisher_lost)

    def _needs_relay(self, commit: Commit) -> bool:
        """Whether a row was written that we do not publish ourselves."""
        return any(
            advance.outbox_number is not None
            and (self._publisher is None or self._publisher.epoch(advance.partition) is None)
            for advance in commit.partitions
        )

    def _count(self, batch: Batch) -> None:
        assert batch.commit is not None
        metrics.commits.labels("ok").inc()
        metrics.batch_inputs.observe(batch.inputs)
        metrics.events.inc(sum(len(changes.events) for changes in batch.commit.changes))
        metrics.cached.set(len(self._cache))
        metrics.rejections.inc(len(batch.commit.rejections))
        for row in batch.commit.commands:
            metrics.commands.labels(row.outcome).inc()

    async def _tell_kafka(self) -> None:
        """For lag tools only: Postgres knows where we are."""
        if self._time() - self._told_at >= _TELL_KAFKA_S:
            self._told_at = self._time()
            await self._consumer.commit(self._assignment.offsets())

    async def _recover(self, why: str) -> None:
        """Drop everything that is not committed, learn where the partitions are, and read on from there."""
        self._assignment.fault(why)
        if self._backoff.failures:
            await asyncio.sleep(self._backoff.next_s())  # It failed before, and nothing has worked since.
        else:
            self._backoff.next_s()
        while True:
            flying, self._flying, self._flying_batch = self._flying, None, None
            if flying is not None:
                await asyncio.gather(flying, return_exceptions=True)
            generation = self._assignment.generation
            self._cache.drop(self._assignment.owned)
            rows = await self._settle()
            if generation != self._assignment.generation:
                continue  # A rebalance came in between: what is ours now was claimed anew.
            if rows is not None:
                break
            await asyncio.sleep(self._backoff.next_s())
        self._assignment.adopt(rows)
        self._consumer.seek(self._assignment.offsets())

    async def _settle(self) -> list[Settled] | None:
        """What the rows of our partitions say, and which instances are parked; None if that cannot be learned now."""
        rows = await self._assignment.settle()
        if rows is not None:
            try:
                await self._parking.resync(self._store)
            except (Transient, Refused) as problem:
                self._assignment.fault(f"cannot read what is parked: {problem}")
                return None
        return rows

    async def _retry_parked(self) -> None:
        generation = self._assignment.generation
        tools = Tools(
            self._preparer,
            self._store,
            partial(self._commit_parked, generation),
            lambda: generation == self._assignment.generation,
            self._log,
        )
        try:
            for instance in await self._store.parked_due(sorted(self._assignment.owned), self._clock.now()):
                await self._parking.retry(instance, tools)
        finally:
            self._parking.looked(self._time())  # Also when it failed: the others must not wait for it.

    async def _commit_parked(self, generation: int, batch: Batch) -> None:
        owned = self._assignment.owned
        if generation != self._assignment.generation or not all(number in owned for number in batch.partitions):
            raise Fenced("the partition left while its parked inputs were tried")
        numbers = {number: owned[number].outbox_last for number in batch.partitions}
        try:
            self._launch(batch)
            await self._land()
        except Unstorable:
            for number, last in numbers.items():
                owned[number].outbox_last = last  # Surely rolled back, so the number is free again.
            raise
