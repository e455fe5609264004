"""One thread that reads Kafka for one event loop; what `KafkaConsumer` and `KafkaTail` share.

Only the thread touches the consumer handle: a commit from another thread while this one polled was seen to wait
forever (confluent-kafka 2.16.1). The thread polls, takes
whatever else is there without waiting, and hands the whole list over with one `call_soon_threadsafe`. The loop calls
what it is handed in order, and rebalance callbacks run inside the thread's polls, so a question about a revoked
partition reaches the loop after every record that was read of it: dropping what is buffered at that moment drops all.

Back-pressure: with the buffer full the thread waits a moment for room; if there is none, it pauses the partitions and
goes on polling, because a member that does not poll is thrown out of its group. Pausing makes librdkafka throw away
what it has fetched, so it is the second resort.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from holdfast.core.errors import Fenced, HoldfastError
from holdfast.log.buffer import Buffer
from holdfast.log.kafka_config import ClientValue, as_holdfast_error
from holdfast.log.protocol import Record, TopicPartition

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_new = tuple.__new__  # What a NamedTuple does, without its Python-level constructor.

# Everything that the loop wants of the thread is seen within this time; while records flow, at once.
_POLL_S = 0.05
_ROOM_S = 0.2
_ROOM_LOOK_S = 0.02  # while waiting, what the loop asks of the thread must not wait long
_CHUNK_RECORDS_MAX = 1000


class _Task(NamedTuple):
    work: Callable[[], Any]
    future: asyncio.Future[Any]


class KafkaReader:
    """Reads with the handle that `_open` makes. `buffer_records_max` and `buffer_bytes_max` bound what waits here."""

    def __init__(
        self, config: dict[str, ClientValue], first: Collection[str], buffer_records_max: int, buffer_bytes_max: int
    ) -> None:
        self._config: dict[str, Any] = {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            # A fetch that waits at the broker also delays partitions that were assigned or resumed meanwhile.
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 100,
            # Little is fetched ahead, so that a report does not queue behind a hundred thousand commands. The
            # back-off after "enough is queued" has to be short then: its default of 1 s would be a stall.
            "queued.min.messages": 2000,
            "queued.max.messages.kbytes": 16_384,
            "fetch.queue.backoff.ms": 5,
            # New topics and partitions are seen after this time.
            "topic.metadata.refresh.interval.ms": 10_000,
            "error_cb": self._on_error,
            **config,
        }
        self._buffer = Buffer(first)
        self._records_max = buffer_records_max
        self._bytes_max = buffer_bytes_max
        self._limit = buffer_records_max
        self._handed = [0, 0]
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._room = threading.Event()
        self._waits_for_room = False
        self._assigned_here: set[TopicPartition] = set()  # the thread's view; `assignment` is the loop's
        self._ranks = frozenset((0, 1) if first else (1,))
        self._throttled: frozenset[int] = frozenset()
        self._fetch_paused: set[TopicPartition] = set()
        self._rebalances = 0
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._closing = False
        self._stopped: asyncio.Future[None] | None = None
        self.errors: Counter[str] = Counter()

    # On the event loop.

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        self._handle = confluent_kafka.Consumer(self._config, logger=_log)
        self._thread = threading.Thread(target=self._run, name="holdfast-reader", daemon=True)
        self._thread.start()

    async def batch(self, records_max: int) -> list[Record]:
        while True:
            if self._failure is not None:
                raise self._failure
            records = self._buffer.take(records_max)
            if records:
                if self._waits_for_room:
                    self._room.set()
                return records
            if self._woken or self._closing:
                self._woken = False
                return []
            self._waiter = self._loop.create_future()
            await self._waiter

    def wake(self) -> None:
        self._woken = True
        self._notify()

    async def close(self, timeout_s: float = 30.0) -> None:
        """Let go of everything (`revoked` is awaited) and leave the group."""
        if self._stopped is None:
            return
        self._closing = True
        self._notify()
        self._room.set()
        self._cancel_asking()
        done, _ = await asyncio.wait([self._stopped], timeout=timeout_s)
        if not done:
            _log.error("kafka reader did not stop within %s s; its thread is left behind", timeout_s)

    def _cancel_asking(self) -> None:
        """For a reader that asks the loop: a question that waits for something which will not come any more."""

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _deliver(self, records: list[Record]) -> None:
        self._buffer.put(records)
        self._notify()

    def _fail(self, failure: BaseException) -> None:
        self._failure = self._failure or failure
        self._notify()

    async def _in_thread(self, work: Callable[[], _T], doing: str) -> _T:
        """Have the thread do something with the handle, between two polls or while it waits for our answer."""
        future: asyncio.Future[_T] = self._loop.create_future()
        if self._stopped is None or self._stopped.done():
            raise Fenced(f"{doing}: the consumer is closed")
        self._tasks.put(_Task(work, future))
        try:
            return await future
        except (KafkaException, RuntimeError) as problem:
            raise as_holdfast_error(problem, doing) from problem

    # In the reader thread.

    def _open(self) -> None:
        """Subscribe or assign."""
        raise NotImplementedError

    def _each_round(self) -> None:
        """What the thread does between two polls."""
        while not self._tasks.empty():
            self._run_task(self._tasks.get())

    def _run_task(self, task: _Task | None) -> None:
        if task is None:
            return  # Only meant to wake the thread up.
        try:
            self._post(_settle, task.future, task.work(), None)
        except Exception as problem:
            self._post(_settle, task.future, None, problem)

    def _paused(self) -> Collection[TopicPartition]:
        return ()

    def _run(self) -> None:
        try:
            self._open()
            while not self._closing and self._failure is None:
                self._each_round()
                self._settle_pauses()
                self._read()
        except BaseException as failure:
            self._post(self._fail, failure)
        finally:
            try:
                self._handle.close()
            except BaseException:
                _log.exception("closing a kafka reader")
            self._post(self._finish)

    def _finish(self) -> None:
        while not self._tasks.empty():
            if task := self._tasks.get():
                _settle(task.future, None, RuntimeError("the consumer is closed"))
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    def _read(self) -> None:
        message = self._handle.poll(_POLL_S)
        if message is None:
            return
        before = self._rebalances
        messages = self._handle.consume(_CHUNK_RECORDS_MAX, 0)
        if before != self._rebalances:
            self._start_over()
            return
        messages.insert(0, message)
        records = [
            _new(
                Record,
                (m.topic(), m.partition(), m.offset(), m.key(), m.value(), m.headers() or (), m.timestamp()[1]),
            )
            for m in messages
            if m.error() is None
        ]
        if len(records) < len(messages):
            self._complain(messages)
        if records:
            self._limit = max(
                1, min(self._records_max, self._bytes_max * len(records) // (sum(map(len, messages)) + 1))
            )
            self._count(records)
            self._post(self._deliver, records)

    def _start_over(self) -> None:
        """A rebalance came inside `consume`: what is from before it and what from after cannot be told apart."""

    def _count(self, records: list[Record]) -> None:
        buffer = self._buffer
        urgent = sum(1 for record in records if not buffer.rank(record[0])) if len(self._ranks) > 1 else 0
        self._handed[0] += urgent
        self._handed[1] += len(records) - urgent

    def _settle_pauses(self) -> None:
        """Make librdkafka fetch what is neither paused by the user nor of a rank that is full."""
        full = self._full_ranks()
        if full == self._ranks and full != self._throttled:
            self._wait_for_room()
            full = self._full_ranks()
        self._throttled = full
        paused = self._paused()
        if not full and not paused and not self._fetch_paused:
            return
        rank = self._buffer.rank
        wanted = {tp for tp in self._assigned_here if tp in paused or rank(tp.topic) in full}
        if stop := wanted - self._fetch_paused:
            self._handle.pause([confluent_kafka.TopicPartition(*tp) for tp in stop])
        if go := self._fetch_paused - wanted:
            self._handle.resume([confluent_kafka.TopicPartition(*tp) for tp in go])
        self._fetch_paused = wanted

    def _resume_all(self) -> None:
        if self._fetch_paused:
            self._handle.resume([confluent_kafka.TopicPartition(*tp) for tp in self._fetch_paused])
            self._fetch_paused = set()

    def _full_ranks(self) -> frozenset[int]:
        handed, left, limit = self._handed, self._buffer.left, self._limit
        # A rank that was throttled has to empty itself by half, or it would pause and resume for every batch.
        return frozenset(
            rank
            for rank in self._ranks
            if handed[rank] - left[rank] >= (limit // 2 if rank in self._throttled else limit)
        )

    def _wait_for_room(self) -> None:
        """A pause throws away what was fetched ahead and costs most of a second, so a short wait is tried first."""
        until = time.monotonic() + _ROOM_S
        self._waits_for_room = True
        while self._full_ranks() == self._ranks and not self._closing and time.monotonic() < until:
            self._room.clear()
            self._each_round()
            if self._full_ranks() == self._ranks:
                self._room.wait(_ROOM_LOOK_S)
        self._waits_for_room = False

    def _complain(self, messages: Iterable[confluent_kafka.Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._on_error(error, message.topic())

    def _on_error(self, error: KafkaError, topic: str | None = None) -> None:
        self.errors[error.name()] += 1
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._post(self._fail, HoldfastError(f"kafka consumer is of no more use: {error.str()}"))
        else:
            _log.warning("kafka consumer%s: %s", f" of {topic}" if topic else "", error.str())

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody is left to be told.
            self._loop.call_soon_threadsafe(callback, *args)


def _settle(future: asyncio.Future[Any], result: object, problem: BaseException | None) -> None:
    if future.done():
        return  # Whoever waited was cancelled.
    if problem is not None:
        future.set_exception(problem)
    else:
        future.set_result(result)
