"""Writing to Kafka: idempotent, acks=all, never giving up by itself.

librdkafka takes a message at once and reports later, from a thread of ours that only polls. A report is a Python
call per message whatever we do, so that call does next to nothing: it notes the outcome in its batch's list and
counts down. What became complete in one round of polling goes to the event loop with one `call_soon_threadsafe`.

A message that finds librdkafka's queue full waits in `_waiting`, in order, and everything after it too: a gap
followed by later messages would break the order that idempotence is there to keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from holdfast.contracts.topics import message_bytes_max
from holdfast.core.errors import Refused
from holdfast.log.kafka_config import ClientValue, KafkaConfig, delivery_error
from holdfast.log.protocol import Delivery, DeliveryError, Message, OnDeliveries, OnDelivery

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_PENDING = Delivery("", -1, -1)
_new = tuple.__new__  # What a NamedTuple does, without its Python-level constructor.


class _Batch:
    """The messages of one `publish` and what became of them.

    Two threads count, each its own counter, and whoever counts last sees both: no lock on the hot path.
    """

    __slots__ = ("count", "deliveries", "done", "finished", "local", "messages", "reported")

    def __init__(self, messages: Sequence[Message], done: OnDeliveries, finished: Callable[[_Batch], None]) -> None:
        self.messages = messages
        self.done: OnDeliveries | None = done
        self.finished = finished
        self.count = len(messages)
        self.deliveries = [_PENDING] * self.count
        self.reported = 0  # by the polling thread
        self.local = 0  # by the event loop: what librdkafka did not even take

    def report(self, index: int, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        topic = self.messages[index][0]
        if error is None:
            self.deliveries[index] = _new(Delivery, (topic, message.partition(), message.offset(), None))
        else:
            self.deliveries[index] = Delivery(topic, -1, -1, delivery_error(error))
        self.reported += 1
        if self.reported + self.local == self.count:
            self.finished(self)


class KafkaProducer:
    """`Producer` over confluent-kafka. Make it inside a running event loop."""

    def __init__(
        self,
        kafka: KafkaConfig,
        *,
        linger_ms: float = 0,
        message_timeout_ms: int = 0,
        message_bytes_max: int = message_bytes_max,
        unknown_topic_ms: int = 10_000,
    ) -> None:
        """`message_timeout_ms=0` never gives up. `message_bytes_max` is what our topics take.
        `unknown_topic_ms` is how long a topic may be unknown (it may just have been made) before it is an error."""
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[_Batch, int]] = deque()
        self._complete: list[_Batch] = []
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._fatal: DeliveryError | None = None
        self._closed = False
        self.errors = 0
        config: dict[str, ClientValue] = kafka.client(
            acks="all",
            enable_idempotence=True,
            max_in_flight_requests_per_connection=5,
            partitioner="murmur2_random",
            linger_ms=linger_ms,
            message_timeout_ms=message_timeout_ms,
            message_max_bytes=message_bytes_max,
            topic_metadata_propagation_max_ms=unknown_topic_ms,
            error_cb=self._on_error,
        )
        self._handle = confluent_kafka.Producer(config, logger=_log)
        self._produce = self._handle.produce
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="holdfast-producer", daemon=True)
        self._thread.start()

    @property
    def outstanding(self) -> int:
        return self._outstanding

    @property
    def fatal(self) -> DeliveryError | None:
        return self._fatal

    def send(self, message: Message, on_delivery: OnDelivery | None = None) -> None:
        self.publish((message,), _ignore if on_delivery is None else partial(_first, on_delivery))

    async def send_all(self, messages: Sequence[Message]) -> list[Delivery]:
        future: asyncio.Future[list[Delivery]] = self._loop.create_future()
        self.publish(messages, partial(_resolve, future))
        return await future

    def publish(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        if self._closed:
            raise Refused("producer_closed", "this producer was closed; make a new one")
        if not messages:
            self._loop.call_soon(done, [])
            return
        batch = _Batch(messages, done, self._complete.append)
        self._outstanding += len(messages)
        self._idle.clear()
        if self._waiting:
            self._waiting.append((batch, 0))
        else:
            self._enqueue(batch, 0)

    async def flush(self, timeout_s: float) -> int:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        return self._outstanding

    def purge(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        purged = delivery_error(KafkaError(KafkaError._PURGE_QUEUE))
        for batch, start in waiting:
            for index in range(start, batch.count):
                self._fail(batch, index, purged)
        self._handle.purge(in_queue=True, in_flight=True, blocking=False)

    async def close(self, timeout_s: float = 10.0) -> int:
        if self._closed:
            return 0
        self._closed = True
        left = await self.flush(timeout_s)
        if left:
            self.purge()
            await self.flush(timeout_s)
        self._stop.set()
        await asyncio.to_thread(self._thread.join)
        return left

    def _enqueue(self, batch: _Batch, start: int) -> bool:
        """Hand messages to librdkafka; False where its queue was full and the rest waits."""
        produce, report, messages = self._produce, batch.report, batch.messages
        for index in range(start, batch.count):
            topic, key, value, headers, partition = messages[index]
            try:
                produce(
                    topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    partial(report, index),
                    None,
                    0,
                    headers if headers.__class__ is list else list(headers),
                )
            except BufferError:
                self._waiting.appendleft((batch, index))
                return False
            except KafkaException as problem:
                self._fail(batch, index, delivery_error(problem.args[0]))
        return True

    def _fail(self, batch: _Batch, index: int, error: DeliveryError) -> None:
        batch.deliveries[index] = Delivery(batch.messages[index].topic, -1, -1, error)
        batch.local += 1
        if batch.reported + batch.local == batch.count:
            self._loop.call_soon(self._hand_over, [batch])

    def _poll(self) -> None:
        poll, complete = self._handle.poll, self._complete
        while not self._stop.is_set():
            poll(_POLL_S)
            if complete or self._waiting:
                batches = complete.copy()
                complete.clear()
                try:
                    self._loop.call_soon_threadsafe(self._hand_over, batches)
                except RuntimeError:
                    return  # The loop is closed: nobody is left to be told.

    def _hand_over(self, batches: list[_Batch]) -> None:
        for batch in batches:
            done, batch.done = batch.done, None
            if done is None:
                continue  # Both threads saw it complete.
            self._outstanding -= batch.count
            try:
                done(batch.deliveries)
            except Exception:
                # One caller's mistake must not keep the reports of the others.
                _log.exception("a delivery callback raised")
        while self._waiting:
            batch, start = self._waiting.popleft()
            if not self._enqueue(batch, start):
                break
        if not self._outstanding:
            self._idle.set()

    def _on_error(self, error: KafkaError) -> None:
        self.errors += 1
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = self._fatal or delivery_error(error)
            _log.error("kafka producer is of no more use: %s", error.str())
        else:
            _log.warning("kafka producer: %s", error.str())


def _ignore(deliveries: list[Delivery]) -> None:
    """For messages whose sender does not ask."""


def _first(on_delivery: OnDelivery, deliveries: list[Delivery]) -> None:
    on_delivery(deliveries[0])


def _resolve(future: asyncio.Future[list[Delivery]], deliveries: list[Delivery]) -> None:
    if not future.done():  # Whoever waited may have been cancelled.
        future.set_result(deliveries)
