"""An outbox in memory and a producer whose reports come when the test says so."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.contracts.frame import FramedMessage, encode_frame
from holdfast.core.errors import Transient
from holdfast.log.protocol import Delivery, DeliveryError, Message, OnDeliveries, OnDelivery
from holdfast.store.rows import OutboxRow, Publisher

LATER = DeliveryError(-195, "_TRANSPORT", True, False, False, "lost the connection")
NEVER = DeliveryError(3, "UNKNOWN_TOPIC_OR_PART", False, False, True, "no such topic")
FATAL = DeliveryError(-150, "_FATAL", False, True, False, "fenced by another producer id")


def message(instance: str, value: str, topic: str = "holdfast.events") -> FramedMessage:
    return (topic, instance.encode(), value.encode(), ())


def task(instance: str, value: str, topic: str = "holdfast.tasks.pay") -> FramedMessage:
    return (topic, b"idempotency-key", value.encode(), (("hf_instance", instance.encode()), ("hf_fence", b"1")))


class Reports:
    """One `publish` call that waits for its reports."""

    def __init__(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        self.messages = list(messages)
        self._done = done

    @property
    def values(self) -> list[str]:
        return [(message.value or b"").decode() for message in self.messages]

    def arrive(self, errors: dict[int, DeliveryError] | None = None) -> None:
        failed = errors or {}
        self._done([Delivery(m.topic, 0, 0, failed.get(index)) for index, m in enumerate(self.messages)])


class ManualProducer:
    """Takes everything, reports nothing by itself."""

    def __init__(self) -> None:
        self.calls: list[Reports] = []
        self.fatal: DeliveryError | None = None
        self.purged = False
        self.closed = False

    @property
    def outstanding(self) -> int:
        return 0

    @property
    def values(self) -> list[str]:
        return [value for call in self.calls for value in call.values]

    def publish(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        self.calls.append(Reports(messages, done))

    def send(self, message: Message, on_delivery: OnDelivery | None = None) -> None:
        raise NotImplementedError

    async def send_all(self, messages: Sequence[Message]) -> list[Delivery]:
        raise NotImplementedError

    async def flush(self, timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        self.purged = True

    async def close(self, timeout_s: float = 10.0) -> int:
        self.closed = True
        return 0


class Producers:
    """A factory that remembers what it made."""

    def __init__(self) -> None:
        self.made: list[ManualProducer] = []

    def __call__(self) -> ManualProducer:
        self.made.append(ManualProducer())
        return self.made[-1]

    @property
    def newest(self) -> ManualProducer:
        return self.made[-1]


class Outbox:
    """Rows, leases and parked messages of any number of partitions."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], bytes] = {}
        self.epochs: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.parked: list[tuple[int, int, int, str, str, bytes, str]] = []
        self.renewed: list[set[int]] = []
        self.released: set[int] = set()
        self.reads = 0
        self.fail: deque[Exception] = deque()

    def put(self, partition: int, number: int, *messages: FramedMessage) -> None:
        self.rows[partition, number] = encode_frame(messages)

    def _ours(self, publishers: Sequence[Publisher]) -> frozenset[int]:
        if self.fail:
            raise self.fail.popleft()
        return frozenset(p.partition for p in publishers if self.epochs.get(p.partition, p.epoch) == p.epoch)

    async def claim_publishers(self, holder: str, *, lease_s: float, most: int) -> list[Publisher]:
        raise NotImplementedError

    async def renew_publishers(self, holder: str, publishers: Sequence[Publisher], *, lease_s: float) -> frozenset[int]:
        self.renewed.append({publisher.partition for publisher in publishers})
        return self._ours(publishers)

    async def release_publishers(self, holder: str, publishers: Sequence[Publisher]) -> None:
        self.released |= self._ours(publishers)

    async def read_outbox(self, positions: Sequence[tuple[int, int]], *, rows_max: int) -> list[OutboxRow]:
        self.reads += 1
        if self.fail:
            raise self.fail.popleft()
        return [
            OutboxRow(partition, number, self.rows[partition, number])
            for partition, after in positions
            for number in sorted(n for p, n in self.rows if p == partition and n > after)[:rows_max]
        ]

    async def advance(self, positions: Sequence[Publisher]) -> frozenset[int]:
        ours = self._ours(positions)
        for position in positions:
            if position.partition in ours:
                self.done[position.partition] = position.done
                for key in [key for key in self.rows if key[0] == position.partition and key[1] <= position.done]:
                    del self.rows[key]
        return ours

    async def park_outbox(
        self, partition: int, number: int, position: int, topic: str, instance: str, body: bytes, error: str
    ) -> None:
        if self.fail:
            raise self.fail.popleft()
        self.parked.append((partition, number, position, topic, instance, body, error))

    async def parked_instances(self, partitions: Sequence[int]) -> set[str]:
        return {parked[4] for parked in self.parked if parked[0] in partitions}

    async def wait_for_outbox(self, timeout_s: float) -> None:
        raise NotImplementedError


AWAY = Transient("Postgres is away")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # What is waited for is a fact, not an event of ours.
            await asyncio.sleep(0.001)
