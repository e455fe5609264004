"""The twins of `KafkaConsumer` and `KafkaTail`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Mapping, Sequence

from holdfast.core.errors import Fenced, Transient
from holdfast.log.memory import MemoryLog
from holdfast.log.protocol import Assignments, Record, TopicPartition

_log = logging.getLogger(__name__)


class _MemoryReader:
    """Reads straight from the log at its positions; there is no buffer that could be stale."""

    def __init__(self, log: MemoryLog, first: Collection[str] = ()) -> None:
        self._memory = log
        self._first = frozenset(first)
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None
        self._woken = False
        self._closed = False
        self._turn = 0

    async def batch(self, records_max: int) -> list[Record]:
        while True:
            if self._failure is not None:
                raise self._failure
            records = self._read(records_max) if self._memory.up else []
            if records:
                return records
            if self._woken or self._closed:
                self._woken = False
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def wake(self) -> None:
        self._woken = True
        self._notify()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read(self, records_max: int) -> list[Record]:
        records: list[Record] = []
        for tp in self._order():
            partition = self._memory.partition(tp)
            if partition is None or tp in self._paused:
                continue
            if not partition.start <= self._next[tp] <= partition.end:
                self._next[tp] = partition.start  # Out of range: Kafka's `auto.offset.reset=earliest`.
            found = partition.read(self._next[tp], records_max - len(records))
            self._next[tp] += len(found)
            records += found
            if len(records) == records_max:
                break
        return records

    def _order(self) -> list[TopicPartition]:
        """Topics in `first` first; among the others each partition gets its turn to be first."""
        self._turn += 1
        ordered = sorted(self._next)
        turn = self._turn % len(ordered) if ordered else 0
        return sorted(ordered[turn:] + ordered[:turn], key=lambda tp: tp.topic not in self._first)


class MemoryTail(_MemoryReader):
    def __init__(self, log: MemoryLog, topic: str) -> None:
        super().__init__(log)
        self._topic = topic

    async def start(self) -> None:
        self._memory.listen(self, self._notify)
        topic = self._memory.topics.get(self._topic)
        for number, partition in enumerate(topic.partitions if topic else ()):
            self._next[TopicPartition(self._topic, number)] = partition.end

    async def close(self) -> None:
        self._memory.unlisten(self)
        self._closed = True
        self._notify()

    def _read(self, records_max: int) -> list[Record]:
        topic = self._memory.topics.get(self._topic)
        for number in range(len(topic.partitions) if topic else 0):
            self._next.setdefault(TopicPartition(self._topic, number), 0)
        return super()._read(records_max)


class MemoryConsumer(_MemoryReader):
    def __init__(
        self,
        log: MemoryLog,
        topics: Sequence[str],
        group: str,
        assignments: Assignments,
        *,
        first: Collection[str] = (),
        revoke_timeout_s: float = 20.0,
    ) -> None:
        super().__init__(log, first)
        self.topics = list(topics)
        self.member_id = ""
        self._group = log.group(group)
        self._assignments = assignments
        self._revoke_timeout_s = revoke_timeout_s
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._gone: asyncio.Future[None] | None = None
        self._asked: asyncio.Task[None] | None = None
        self.errors = 0

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._assignment

    async def start(self) -> None:
        self._memory.listen(self, self._notify)
        self._join()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.difference_update(partitions)
        self._notify()

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._next.update((tp, offset) for tp, offset in offsets.items() if tp in self._next)
        self._notify()

    async def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool = False) -> None:
        problem: Exception | None = None
        if self not in self._group.members:
            problem = Fenced("commit: not a member of the group")
        elif not self._memory.up:
            problem = Transient("commit: the broker is away")
        else:
            self._group.committed.update(offsets)
        if problem is not None:
            self.errors += 1
            if wait:
                raise problem

    async def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._next[tp] for tp in partitions if tp in self._next}

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._group.committed[tp] for tp in partitions if tp in self._group.committed}

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._notify()
        if self._asked is not None and not self._asked.done() and not self._next:
            self._asked.cancel()  # `assigned` waits for something that will not come any more.
        elif self._asked is not None:
            await asyncio.wait([self._asked])
        await self.take_away()
        self._memory.unlisten(self)
        self._leave()

    # The group's side.

    async def ask(self, question: Coroutine[None, None, None]) -> None:
        """Wait until the member has answered, or is no member any more."""
        if self._gone is None:
            question.close()
            return
        self._asked = asyncio.get_running_loop().create_task(question)
        await asyncio.wait([self._asked, self._gone], return_when=asyncio.FIRST_COMPLETED)

    async def give(self, partitions: list[TopicPartition]) -> None:
        if not partitions or self._closed:
            return
        gone = self._gone
        try:
            starts = await self._assignments.assigned(partitions) or {}
        except Exception as failure:
            self._fail(failure)
            return
        if gone is not self._gone or (gone is not None and gone.done()):
            # Expelled while it answered: it never owned them in the group's eyes, and `expelled` tells it so.
            self._assignment = frozenset(partitions)
            return
        for tp in partitions:
            partition = self._memory.partition(tp)
            start = self._group.committed.get(tp, partition.start if partition else 0)
            self._next[tp] = starts.get(tp, start)
        self._assignment = frozenset(partitions)
        self._notify()

    async def take_away(self) -> None:
        partitions = sorted(self._assignment)
        if not partitions:
            return
        self._drop()
        try:
            async with asyncio.timeout(self._revoke_timeout_s):
                await self._assignments.revoked(partitions)
        except TimeoutError:
            self.errors += 1
            _log.error("revoked was not answered in time; the rebalance goes on without")
        except Exception as failure:
            self._fail(failure)
        self._assignment = frozenset()

    def expelled(self, unaware_until: Awaitable[object] | None) -> asyncio.Task[None]:
        self._leave()
        return asyncio.get_running_loop().create_task(self._find_out(unaware_until))

    async def _find_out(self, unaware_until: Awaitable[object] | None) -> None:
        if unaware_until is not None:
            await unaware_until
        if self._asked is not None:
            await asyncio.wait([self._asked])
        partitions = sorted(self._assignment)
        self._drop()
        self._assignment = frozenset()
        if partitions:
            await self._assignments.lost(partitions)
        if not self._closed:
            self._join()

    def _join(self) -> None:
        # Ids grow with every join, as the order in which a simulation would see them.
        self._group.joins += 1
        self.member_id = f"member-{self._group.joins:06d}"
        self._gone = asyncio.get_running_loop().create_future()
        self._group.members.append(self)
        self._group.rebalance()

    def _leave(self) -> None:
        if self in self._group.members:
            self._group.members.remove(self)
            self._group.rebalance()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _drop(self) -> None:
        self._next.clear()
        self._paused.clear()

    def _fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure
        self._notify()
