"""Publishing the outbox rows of any number of partitions, strictly in number order each, with one producer.

Producing is not delivery: `done` of a partition moves only when every delivery report up to it is in. What can go
wrong has three answers. The producer is of no more use, or a message failed without a reason in itself: everything
goes back to `done`, a new producer is made, and rows are read from Postgres again. Kafka will never take a message
(unknown topic, too large, not authorised): it and later ones of its instance are parked, loudly, and the partition
goes on. Kafka is away: nothing is reported, in-flight bytes reach their limit, and rows wait in Postgres.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from holdfast.contracts.frame import FramedMessage, decode_frame
from holdfast.core.errors import Corrupt
from holdfast.log.protocol import Delivery, Message, Producer
from holdfast.relay import metrics
from holdfast.relay.lane import Lane, Row
from holdfast.relay.parking import Parked, Parking, instance_of
from holdfast.store.protocol import OutboxStore
from holdfast.store.rows import OutboxRow
from holdfast.store.rows import Publisher as PublisherRow

_log = logging.getLogger(__name__)
_new = tuple.__new__  # What a NamedTuple does, without its Python-level constructor.

_MESSAGE_OVERHEAD_BYTES = 200
_PRODUCER_DELAY_S = 0.1
_PRODUCER_DELAY_MAX_S = 5.0

ProducerFactory = Callable[[], Producer]


class PartitionPublisher:
    """Make it inside a running event loop. Nothing here takes or renews a lease; see `hosted` and the relay service."""

    def __init__(
        self,
        producer_factory: ProducerFactory,
        store: OutboxStore,
        *,
        in_flight_bytes_max: int = 32 * 1024 * 1024,
        rows_max: int = 200,
    ) -> None:
        self.lanes: dict[int, Lane] = {}
        self.moved = asyncio.Event()  # some `done` moved
        self.fell_behind = asyncio.Event()  # some rows have to be read from the store
        self.in_flight_bytes = 0
        self._factory = producer_factory
        self._store = store
        self._bytes_max = in_flight_bytes_max
        self._rows_max = rows_max
        self._room = asyncio.Event()
        self._room.set()
        self._producer: Producer | None = None
        self._generation = 0
        self._producer_not_before = 0.0
        self._producer_delay_s = _PRODUCER_DELAY_S
        self._parking = Parking(store, self._parked)
        self._closing: set[asyncio.Task[int]] = set()

    def open(self, partition: int, epoch: int, done: int, last: int | None, parked: Iterable[str]) -> Lane:
        self.drop(partition)
        lane = self.lanes[partition] = Lane(partition, epoch, done, last, set(parked))
        return lane

    def drop(self, partition: int) -> None:
        """Somebody else's now. What is under way may still arrive: a repetition, like any zombie's."""
        lane = self.lanes.pop(partition, None)
        if lane is not None:
            lane.dropped = True
            self._release(sum(row.size for row in lane.rows))

    @property
    def has_room(self) -> bool:
        return self.in_flight_bytes < self._bytes_max

    async def room(self) -> None:
        await self._room.wait()

    def send(self, lane: Lane, number: int, messages: Sequence[FramedMessage]) -> bool:
        """Hand the next row to Kafka; False if it has to be read from the store later instead."""
        if number != lane.sent + 1 or not self.has_room or not self._ready():
            return False
        whole = [_new(Message, (topic, key, value, headers, None)) for topic, key, value, headers in messages]
        size = sum([len(message[2] or b"") + _MESSAGE_OVERHEAD_BYTES for message in whole])
        row = Row(number, whole, None, size)
        self.in_flight_bytes += size
        if self.in_flight_bytes >= self._bytes_max:
            self._room.clear()
        lane.push(row)
        if lane.parked:
            self._divert(lane, row)
        else:
            self._hand_over(lane, row)
        return True

    async def read_more(self) -> int:
        """Read rows of the lanes that are behind and send them; how many were sent."""
        await self.room()
        if not self._ready():
            await asyncio.sleep(max(0.0, self._producer_not_before - time.monotonic()))
            return 0
        behind = [(lane.partition, lane.sent) for lane in self.lanes.values() if lane.behind]
        if not behind:
            return 0
        return sum([self._send_stored(row) for row in await self._store.read_outbox(behind, rows_max=self._rows_max)])

    def _send_stored(self, row: OutboxRow) -> bool:
        lane = self.lanes.get(row.partition)
        if lane is None or row.number != lane.sent + 1:
            return False  # Meanwhile the lane is gone, or was rewound.
        try:
            return self.send(lane, row.number, decode_frame(row.body))
        except Corrupt as problem:
            # Nothing may overtake this row. Without us the lease runs out, and a newer relay may be able to read it.
            _log.error("outbox row %d of partition %d stays unpublished: %s", row.number, row.partition, problem)
            metrics.rows_corrupt.inc()
            self.drop(row.partition)
            return False

    def unstored(self) -> list[PublisherRow]:
        return [PublisherRow(p, lane.epoch, lane.done) for p, lane in self.lanes.items() if lane.done > lane.stored]

    def stored(self, positions: Iterable[PublisherRow]) -> None:
        for position in positions:
            lane = self.lanes.get(position.partition)
            if lane is not None and lane.epoch == position.epoch:
                lane.stored = max(lane.stored, position.done)

    async def flush(self, timeout_s: float) -> None:
        if self._producer is not None:
            await self._producer.flush(timeout_s)

    async def close(self) -> None:
        await self._parking.close()
        for partition in list(self.lanes):
            self.drop(partition)
        self._generation += 1
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(0.0)
        if self._closing:
            await asyncio.wait(self._closing)

    # --- below: what happens to rows that are under way

    def _ready(self) -> bool:
        if self._producer is not None and self._producer.fatal is not None:
            self._start_over(self._producer.fatal.message)
        if self._producer is None:
            if time.monotonic() < self._producer_not_before:
                return False
            self._producer = self._factory()
        return True

    def _hand_over(self, lane: Lane, row: Row) -> None:
        assert self._producer is not None
        self._producer.publish(row.messages, partial(self._reported, self._generation, lane, row))

    def _divert(self, lane: Lane, row: Row) -> None:
        """The same for a lane with parked instances: their messages are not sent but follow what is parked."""
        split = [instance_of(message) in lane.parked for message in row.messages]
        if not any(split):
            self._hand_over(lane, row)
            return
        follow = [
            Parked(place, row.messages[place], "follows a parked message") for place, yes in enumerate(split) if yes
        ]
        row.positions = [place for place, yes in enumerate(split) if not yes]
        row.messages = [row.messages[place] for place in row.positions]
        if row.messages:
            row.open += 1
            self._hand_over(lane, row)
        self._parking.put(self._generation, lane, row, follow)

    def _reported(self, generation: int, lane: Lane, row: Row, deliveries: list[Delivery]) -> None:
        if generation != self._generation or lane.dropped:
            return
        failed = [delivery for delivery in deliveries if delivery[3] is not None]
        if failed and not self._settle_failures(lane, row, deliveries):
            return
        self._producer_delay_s = _PRODUCER_DELAY_S
        self._part_done(lane, row)

    def _settle_failures(self, lane: Lane, row: Row, deliveries: list[Delivery]) -> bool:
        """False if everything has to start over; else what Kafka will never take is on its way to be parked."""
        never: list[Parked] = []
        for index, delivery in enumerate(deliveries):
            error = delivery.error
            if error is None:
                continue
            if not error.permanent:
                self._start_over(f"partition {lane.partition}, row {row.number}: {error.name}: {error.message}")
                return False
            message = row.messages[index]
            lane.parked.add(instance_of(message))
            never.append(Parked(row.position(index), message, f"{error.name}: {error.message}"))
            _log.error(
                "kafka will never take a message to %s of instance %s: parked, later ones of the instance follow (%s)",
                message.topic, instance_of(message), error.message,
            )  # fmt: skip
        row.open += 1
        self._parking.put(self._generation, lane, row, never)
        return True

    def _parked(self, generation: int, lane: Lane, row: Row) -> None:
        if generation == self._generation and not lane.dropped:
            self._part_done(lane, row)

    def _part_done(self, lane: Lane, row: Row) -> None:
        row.open -= 1
        if row.open:
            return
        metrics.rows_published.inc()
        self._release(row.size)
        row.size = 0
        if lane.settle():
            self.moved.set()

    def _release(self, size: int) -> None:
        self.in_flight_bytes -= size
        if self.has_room:
            self._room.set()

    def _start_over(self, why: str) -> None:
        """A report of the old producer counts no more, whatever it says: at worst we repeat what it delivered."""
        _log.error("publishing starts over from what is done, with a new producer: %s", why)
        metrics.producers_replaced.inc()
        self._generation += 1
        old, self._producer = self._producer, None
        self._producer_not_before = time.monotonic() + self._producer_delay_s
        self._producer_delay_s = min(self._producer_delay_s * 2, _PRODUCER_DELAY_MAX_S)
        self.in_flight_bytes = 0
        self._room.set()
        for lane in self.lanes.values():
            lane.rewind()
        self.fell_behind.set()
        if old is not None:
            old.purge()
            task = asyncio.get_running_loop().create_task(old.close(0.0))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
