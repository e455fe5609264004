"""A member of a consumer group: `Consumer` over confluent-kafka.

The rebalance is eager and its callbacks run in the reader thread, which asks the event loop and waits for the answer.
The assignor is `range`, which gives equal partition numbers of topics with equal counts to one member: the three
inbox topics of an instance end up in one hand.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from holdfast.log.kafka_config import KafkaConfig, as_holdfast_error
from holdfast.log.kafka_reader import KafkaReader
from holdfast.log.protocol import Assignments, Record, TopicPartition

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class KafkaConsumer(KafkaReader):
    def __init__(
        self,
        kafka: KafkaConfig,
        topics: Sequence[str],
        group: str,
        assignments: Assignments,
        *,
        first: Collection[str] = (),
        session_timeout_ms: int = 10_000,
        poll_interval_max_ms: int = 300_000,
        revoke_timeout_s: float = 20.0,
        buffer_records_max: int = 20_000,
        buffer_bytes_max: int = 64 * 1024 * 1024,
    ) -> None:
        """Records of topics in `first` are handed out before others. `session_timeout_ms` is how long a killed member
        keeps its partitions. Whoever cannot answer `assigned` within `poll_interval_max_ms` loses them. A full buffer
        pauses its partitions until half of it is gone; that half is what bridges the time until they fetch again."""
        config = kafka.client(
            group_id=group,
            partition_assignment_strategy="range",
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=max(500, session_timeout_ms // 5),
            max_poll_interval_ms=max(poll_interval_max_ms, session_timeout_ms),
            on_commit=self._on_commit,
        )
        super().__init__(config, first, buffer_records_max, buffer_bytes_max)
        self._topics = list(topics)
        self._assignments = assignments
        self._revoke_timeout_s = revoke_timeout_s
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._positions: dict[TopicPartition, int] = {}
        self._seeks: deque[tuple[TopicPartition, int, int]] = deque()
        self._seeking: dict[TopicPartition, int] = {}
        self._seek_count = 0
        self._starts: Mapping[TopicPartition, int] = {}
        self._commits: deque[Mapping[TopicPartition, int]] = deque()
        self._asking: concurrent.futures.Future[Mapping[TopicPartition, int]] | None = None

    # On the event loop.

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._assignment

    async def batch(self, records_max: int) -> list[Record]:
        records = await super().batch(records_max)
        self._positions.update({record[:2]: record[2] + 1 for record in records})  # type: ignore[misc]
        return records

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._buffer.hold(list(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._buffer.release(list(partitions))
        self._notify()

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._buffer.drop(offsets.keys())
        for partition, offset in offsets.items():
            self._seek_count += 1
            self._seeking[partition] = self._seek_count
            self._positions[partition] = offset
            self._seeks.append((partition, offset, self._seek_count))

    async def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool = False) -> None:
        if not offsets:
            return
        if not wait:
            self._commits.append(offsets)
            return
        wanted = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        done = await self._in_thread(lambda: self._handle.commit(offsets=wanted, asynchronous=False), "commit")
        for partition in done or ():
            if partition.error is not None:
                raise as_holdfast_error(partition.error, f"commit {partition.topic}-{partition.partition}")

    async def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self._positions[partition] for partition in partitions if partition in self._positions}

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        found = await self._in_thread(lambda: self._handle.committed(wanted, timeout=10), "committed offsets")
        return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

    def _cancel_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def _deliver(self, records: list[Record]) -> None:
        if self._seeking:
            # Read before the thread got round to the seek.
            records = [record for record in records if record[:2] not in self._seeking]
        super()._deliver(records)

    def _sought(self, partition: TopicPartition, number: int) -> None:
        if self._seeking.get(partition) == number:
            del self._seeking[partition]

    async def _assigned_on_loop(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        starts = await self._assignments.assigned(partitions) or {}
        self._positions.update((tp, starts[tp]) for tp in partitions if tp in starts)
        self._assignment |= frozenset(partitions)
        return starts

    async def _revoked_on_loop(self, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)
        held = [tp for tp in partitions if tp in self._assignment]
        if not held:
            return  # `assigned` never answered: nobody has anything to finish.
        try:
            async with asyncio.timeout(self._revoke_timeout_s):
                await self._assignments.revoked(held)
        finally:
            self._let_go(held)

    async def _lost_on_loop(self, partitions: list[TopicPartition]) -> None:
        self._drop(partitions)
        held = [tp for tp in partitions if tp in self._assignment]
        self._let_go(held)
        if held:
            async with asyncio.timeout(self._revoke_timeout_s):
                await self._assignments.lost(held)

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self._buffer.drop(partitions)
        self._buffer.release(partitions)
        for partition in partitions:
            self._seeking.pop(partition, None)

    def _let_go(self, partitions: list[TopicPartition]) -> None:
        self._assignment -= frozenset(partitions)
        for partition in partitions:
            self._positions.pop(partition, None)

    # In the reader thread.

    def _open(self) -> None:
        self._handle.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _paused(self) -> Collection[TopicPartition]:
        return self._buffer.held

    def _each_round(self) -> None:
        super()._each_round()
        self._send_commits()
        for _ in range(len(self._seeks)):
            partition, offset, number = self._seeks.popleft()
            if self._seeking.get(partition) != number:
                continue  # Sought again since, or gone.
            try:
                self._handle.seek(confluent_kafka.TopicPartition(*partition, offset))
            except KafkaException as problem:
                if partition in self._assigned_here and problem.args[0].code() == KafkaError._STATE:
                    self._seeks.append((partition, offset, number))  # Not being fetched yet: again in a moment.
                    continue
                _log.warning("seek %s to %s: %s", partition, offset, problem)
            self._post(self._sought, partition, number)

    def _send_commits(self) -> None:
        latest: dict[TopicPartition, int] = {}
        while self._commits:
            latest.update(self._commits.popleft())
        wanted = [
            confluent_kafka.TopicPartition(*tp, offset) for tp, offset in latest.items() if tp in self._assigned_here
        ]
        if wanted:
            try:
                self._handle.commit(offsets=wanted, asynchronous=True)
            except KafkaException as problem:
                self._on_commit(problem.args[0], wanted)

    def _on_assign(self, handle: confluent_kafka.Consumer, given: list[confluent_kafka.TopicPartition]) -> None:
        self._rebalances += 1
        partitions = _named(given)
        self._asking = asyncio.run_coroutine_threadsafe(self._assigned_on_loop(partitions), self._loop)
        if self._closing:
            self._asking.cancel()
        starts = self._answer(self._asking, "assigned")
        self._asking = None
        if starts is None:
            handle.assign([])
            return
        self._assigned_here = set(partitions)
        self._starts = starts
        self._start_over()

    def _start_over(self) -> None:
        self._resume_all()  # librdkafka would remember a pause from the assignment before.
        starts = self._starts
        if self._assigned_here:
            self._handle.assign(
                [confluent_kafka.TopicPartition(*tp, starts.get(tp, OFFSET_INVALID)) for tp in self._assigned_here]
            )

    def _on_revoke(self, handle: confluent_kafka.Consumer, given: list[confluent_kafka.TopicPartition]) -> None:
        self._let_go_of(handle, given, self._revoked_on_loop(_named(given)), "revoked")

    def _on_lost(self, handle: confluent_kafka.Consumer, given: list[confluent_kafka.TopicPartition]) -> None:
        self._let_go_of(handle, given, self._lost_on_loop(_named(given)), "lost")

    def _let_go_of(
        self,
        handle: confluent_kafka.Consumer,
        given: list[confluent_kafka.TopicPartition],
        question: Coroutine[None, None, None],
        name: str,
    ) -> None:
        self._rebalances += 1
        self._answer(asyncio.run_coroutine_threadsafe(question, self._loop), name)
        if name == "revoked":
            self._send_commits()
        self._commits.clear()
        self._assigned_here -= set(_named(given))
        handle.unassign()

    def _answer(self, asked: concurrent.futures.Future[_T], question: str) -> _T | None:
        """Wait for the loop's answer, and do what it asks for meanwhile (a commit inside `revoked`). None where it
        failed, which `batch` then raises, or where we close."""
        asked.add_done_callback(lambda _: self._tasks.put(None))
        while not asked.done():
            self._run_task(self._tasks.get())
        try:
            return asked.result()
        except concurrent.futures.CancelledError:
            return None
        except TimeoutError:
            self.errors[f"{question}_timeout"] += 1
            _log.error("%s was not answered in time; the rebalance goes on without", question)
        except BaseException as failure:
            self._post(self._fail, failure)
        return None

    def _on_commit(self, error: KafkaError | None, partitions: list[confluent_kafka.TopicPartition]) -> None:
        if error is not None:
            self.errors[error.name()] += 1
            _log.warning("commit of offsets: %s", error.str())


def _named(given: Iterable[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.partition) for tp in given]
