"""One queue: reading its tasks as a member of `holdfast.worker.<queue>`, beginning them, committing behind them.

The reader asks Kafka for no more than there are free slots, so what is not begun stays where others can get it. What
was read and may not begin yet (another queue took the slot, or the partition is too far ahead of its committed offset)
waits in its partition; when the partition is taken away it is simply dropped, and Kafka gives it to the next owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from holdfast.contracts.topics import task_topic, worker_group
from holdfast.core.errors import Fenced, Transient
from holdfast.log.protocol import Admin, Assignments, Consumer, Record, TopicPartition
from holdfast.worker.engine import Engine
from holdfast.worker.offsets import Partition, ahead_max

_log = logging.getLogger(__name__)

OpenConsumer = Callable[[str, str, Assignments], Consumer]
"""(topic, group, assignments) -> a consumer that is not started yet."""

commit_interval_s = 0.1
retry_s = 0.5
revoke_wait_s = 2.0
pause_after_s = 0.5
_batch_max = 500
_far = ahead_max // 2


class Intake:
    def __init__(self, queue: str, engine: Engine, admin: Admin, open_consumer: OpenConsumer) -> None:
        self.queue = queue
        self._engine = engine
        self._admin = admin
        self._group = worker_group(queue)
        self._consumer = open_consumer(task_topic(queue), self._group, self)
        self._partitions: dict[int, Partition] = {}
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Partition] = deque()
        self._held: dict[Partition, None] = {}  # the reader waits for these
        self._patience: asyncio.TimerHandle | None = None
        self._progressed: dict[Partition, None] = {}
        self._progress = asyncio.Event()
        self._hurry = asyncio.Event()  # a partition is about to reach its limit
        self._settled = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = False
        self._closed = False
        self.joined = False
        self.commit_failures = 0

    # Partitions come and go.

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        starts, ends = await self._bounds(partitions)
        for tp in partitions:
            self._partitions[tp.partition] = Partition(tp, starts[tp], ends[tp], self._on_progress)
        self.joined = True
        _log.info("queue %s: assigned %s", self.queue, sorted(self._partitions))
        return starts

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin nothing more of these. Whatever settles in a moment need not be delivered again, so wait for that
        moment; what runs longer goes on under its lease."""
        taken = [self._partitions[tp.partition] for tp in partitions if tp.partition in self._partitions]
        for partition in taken:
            partition.pending.clear()
        try:
            async with asyncio.timeout(revoke_wait_s):
                await self._until_settled(taken)
        except TimeoutError:
            _log.info("queue %s: letting go with reports on their way", self.queue)
        try:
            await self._commit(taken)
        except (Fenced, Transient) as problem:
            _log.warning("queue %s: no commit before letting go: %s", self.queue, problem)
        self._let_go(taken)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._let_go([self._partitions[tp.partition] for tp in partitions if tp.partition in self._partitions])

    def _let_go(self, taken: Sequence[Partition]) -> None:
        for partition in taken:
            partition.lost = True
            partition.pending.clear()
            self._progressed.pop(partition, None)
            self._no_longer_held(partition)
            if self._partitions.get(partition.tp.partition) is partition:
                del self._partitions[partition.tp.partition]
        self.pump()  # The reader may have waited for one of these.

    async def _bounds(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to start, and where the log ends. Without an answer nothing can be begun, so ask until there is one."""
        while True:
            try:
                committed = await self._admin.committed(self._group, partitions)
                firsts = await self._admin.start_offsets(partitions)
                ends = await self._admin.end_offsets(partitions)
                starts = {tp: _start(committed.get(tp), firsts[tp], ends[tp]) for tp in partitions}
                return starts, ends
            except (Transient, KeyError) as problem:
                _log.warning("queue %s: kafka does not say where to start: %s", self.queue, problem)
                await asyncio.sleep(retry_s)

    # Reading and beginning.

    async def run(self) -> None:
        await self._consumer.start()
        committing = asyncio.create_task(self._keep_committing(), name=f"commit-{self.queue}")
        try:
            while not self._stopping:
                room = self._engine.free
                if room <= 0 or self._ready or self._held:
                    self._room.clear()
                    await self._room.wait()
                    continue
                self._take(await self._consumer.batch(min(room, _batch_max)))
        finally:
            committing.cancel()

    def pump(self) -> None:
        """Begin what may begin. Called when slots became free and when an offset was committed."""
        ready, engine = self._ready, self._engine
        while ready and engine.free > 0 and not self._stopping:
            partition = ready.popleft()
            partition.queued = False
            pending = partition.pending
            while pending and engine.free > 0:
                if pending[0].offset >= partition.limit:
                    self._hold(partition)
                    break
                engine.begin(partition, pending.popleft())
            else:
                if pending:
                    partition.queued = True
                    ready.append(partition)
        if not ready and not self._held and engine.free > 0:
            self._room.set()

    def _take(self, records: Sequence[Record]) -> None:
        partitions, ready = self._partitions, self._ready
        for record in records:
            partition = partitions.get(record[1])
            if partition is None:
                continue  # Taken away between reading and now.
            partition.pending.append(record)
            if not partition.queued and not partition.held:
                partition.queued = True
                ready.append(partition)
        self.pump()

    def _hold(self, partition: Partition) -> None:
        """Too far ahead of what is committed: the rest waits until that moves, which is a matter of milliseconds, so
        the reader waits too. Pausing is for when it takes longer: what Kafka sent ahead is thrown away then and the
        next fetch has its own wait, half a second in all."""
        partition.held = True
        if self._patience is None:
            self._patience = self._loop.call_later(pause_after_s, self._pause_held)
        self._held[partition] = None
        if not partition.entries and partition.pending[0].offset > partition.next:
            # A gap in the offsets: nothing in it can ever be settled.
            partition.next = partition.pending[0].offset
        if partition.next > partition.committed:
            self._on_progress(partition)
            self._hurry.set()

    def _pause_held(self) -> None:
        self._patience = None
        for partition in self._held:
            partition.paused = True
        self._consumer.pause([partition.tp for partition in self._held])
        self._held.clear()
        self.pump()

    def _release(self, partition: Partition) -> None:
        partition.held = False
        self._no_longer_held(partition)
        if partition.paused:
            partition.paused = False
            self._consumer.resume([partition.tp])
        if partition.pending and not partition.queued:
            partition.queued = True
            self._ready.append(partition)

    def _no_longer_held(self, partition: Partition) -> None:
        self._held.pop(partition, None)
        if not self._held and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # Committing.

    def _on_progress(self, partition: Partition) -> None:
        if partition not in self._progressed:
            self._progressed[partition] = None
            self._progress.set()
        if partition.next - partition.committed > _far:
            self._hurry.set()
        if not partition.entries:
            self._settled.set()

    async def _keep_committing(self) -> None:
        while True:
            await self._progress.wait()
            self._progress.clear()
            try:
                await self._commit(list(self._progressed))
            except (Fenced, Transient) as problem:
                self.commit_failures += 1
                _log.warning("queue %s: commit: %s", self.queue, problem)
                await asyncio.sleep(retry_s)
                self._progress.set()
                continue
            await self._until_worth_committing()
            if self._progressed:
                self._progress.set()  # Went on while the commit was on its way.

    async def _until_worth_committing(self) -> None:
        """A commit costs a round trip whatever it covers; but nobody should have to wait for one."""
        self._hurry.clear()
        if not any(each.held or each.next - each.committed > _far for each in self._progressed):
            handle = self._loop.call_later(commit_interval_s, self._hurry.set)
            await self._hurry.wait()
            handle.cancel()

    async def _commit(self, partitions: Sequence[Partition]) -> None:
        wanted = {each: each.next for each in partitions if each.next > each.committed and not each.lost}
        if not wanted:
            return
        await self._consumer.commit({each.tp: offset for each, offset in wanted.items()}, wait=True)
        for partition, offset in wanted.items():
            partition.committed = offset
            if partition.next == offset:
                self._progressed.pop(partition, None)
            if partition.held and not partition.lost:
                self._release(partition)
        self.pump()

    # Leaving.

    def stop_reading(self) -> None:
        """What was read and not begun is left to Kafka, which gives it to the next owner as soon as we have left."""
        self._stopping = True
        for partition in self._partitions.values():
            partition.pending.clear()
        self._room.set()
        self._consumer.wake()

    async def leave(self) -> None:
        """Once all that was begun is settled (its outcome or `started` is acknowledged), others may have the rest."""
        await self._until_settled(list(self._partitions.values()))
        await self.close()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._consumer.close()  # Asks `revoked`, which commits.

    async def _until_settled(self, partitions: Sequence[Partition]) -> None:
        while any(partition.entries for partition in partitions):
            self._settled.clear()
            await self._settled.wait()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment

    @property
    def pending(self) -> int:
        return sum(len(partition.pending) for partition in list(self._partitions.values()))


def _start(committed: int | None, first: int, end: int) -> int:
    if committed is None or committed > end:
        return first  # A new group, or a topic that was made again.
    return max(committed, first)
