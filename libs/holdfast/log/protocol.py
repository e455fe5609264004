"""What Holdfast asks of Kafka: three small ports and the values that pass through them.

`Consumer` reads as a member of a group, `Tail` reads everything from now on without one, `Producer` writes and
tells when it is written, `Admin` asks and arranges. There are two implementations, Kafka and memory, and one
contract suite (tests/contract/log) that both pass. Everything here lives on one event loop: unless a method is
async it returns at once, and callbacks are called on the loop.

Values are NamedTuples because hundreds of thousands of them are made: a tuple is the cheapest thing with names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Record(NamedTuple):
    """One message as it was read. A tombstone has value None; key None is legal, if strange."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Message(NamedTuple):
    """One message to be written. Without a partition, the key's murmur2 chooses, as in Java."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class DeliveryError:
    """Why a message was not written, and what to do about it.

    `permanent`: the same message fails again; park it. `fatal`: this producer is of no more use; make a new one.
    `retriable`: neither, the same message may work later. The three exclude each other.
    """

    code: int
    name: str
    retriable: bool
    fatal: bool
    permanent: bool
    message: str


class Delivery(NamedTuple):
    """What became of one message. `partition` and `offset` are -1 where the broker never took it."""

    topic: str
    partition: int
    offset: int
    error: DeliveryError | None = None


OnDelivery: TypeAlias = Callable[[Delivery], None]
OnDeliveries: TypeAlias = Callable[[list[Delivery]], None]


class Assignments(Protocol):
    """Implemented by a consumer's user: partitions come and go. The rebalance waits for each answer."""

    async def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """These are ours now. Answer where to start; a partition that is missing starts at the offset the group
        has committed, else at the earliest. Retrying (Postgres away) is the callee's."""
        ...

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These are still ours until this returns (or takes longer than the consumer allows): finish and let go."""
        ...

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These already belong to somebody else: write nothing for them, only drop."""
        ...


class Tail(Protocol):
    """Reads every partition of one topic from the moment `start` returns; commits nothing."""

    async def start(self) -> None: ...

    async def batch(self, records_max: int) -> list[Record]:
        """Wait until something is there and take it, never waiting for more. [] only after `wake` or `close`."""
        ...

    def wake(self) -> None:
        """Make the `batch` that waits now (or the next one) return at once, with what there is or []."""
        ...

    async def close(self) -> None: ...


class Consumer(Tail, Protocol):
    """Reads as a member of a group. Order holds within a partition; nothing is read twice in one assignment
    unless sought. What `batch` returns belongs to partitions that are ours when it returns."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions whose `assigned` has been answered and which were not taken since."""
        ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on `batch` returns nothing of these. Ends with `resume` or with the assignment."""
        ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The next record that `batch` returns of each is the one at (or the first after) the offset."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool = False) -> None:
        """Tell Kafka the next offset to read. Without `wait` a failure is only logged and counted; with it,
        `Fenced` says that the partition is no longer ours and `Transient` that Kafka did not answer."""
        ...

    async def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record that `batch` returned; missing where nothing is known yet."""
        ...

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed; missing where it has nothing."""
        ...


class Producer(Protocol):
    """Writes with acks=all, in order per partition, without duplicates, and never gives up by itself.

    A message that finds the local queue full waits here in order; `outstanding` is there for back-pressure."""

    @property
    def outstanding(self) -> int:
        """Messages taken and not yet reported."""
        ...

    @property
    def fatal(self) -> DeliveryError | None:
        """Set once this producer can write nothing more."""
        ...

    def send(self, message: Message, on_delivery: OnDelivery | None = None) -> None: ...

    async def send_all(self, messages: Sequence[Message]) -> list[Delivery]:
        """Write and wait for all reports; in the order of the messages. Failures are in the list, not raised."""
        ...

    def publish(self, messages: Sequence[Message], done: OnDeliveries) -> None:
        """The hot path: `done` is called once, on the loop, when all reports are in; in the order of the messages."""
        ...

    async def flush(self, timeout_s: float) -> int:
        """Wait until nothing is outstanding; returns how many still are."""
        ...

    def purge(self) -> None:
        """Give up everything outstanding: each is reported as failed (retriable), though the broker may have it."""
        ...

    async def close(self, timeout_s: float = 10.0) -> int:
        """Flush, purge what is left, and stop; returns how many were purged."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be made."""

    name: str
    partitions: int
    replication: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is. `topic_id` is new when a topic was deleted and made again."""

    name: str
    topic_id: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class Admin(Protocol):
    """Every call is bounded in time and raises `Transient` (try again) or `Refused` (it will not work)."""

    async def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there. Topics that do not exist are missing from the answer."""
        ...

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that the next record gets (the last stable one). Topics that do not exist are missing."""
        ...

    async def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed; missing where it has nothing."""
        ...

    async def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Missing where there is no such topic."""
        ...

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Missing where there is no such topic."""
        ...

    async def create(self, topics: Iterable[TopicSpec]) -> set[str]:
        """Make those that are not there yet; returns the names that were made by this call."""
        ...

    async def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these, leave the others."""
        ...

    async def add_partitions(self, topic: str, partitions: int) -> None: ...

    async def delete_topics(self, topics: Iterable[str]) -> set[str]:
        """Returns the names that were there."""
        ...

    async def delete_records_before(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    async def group_members(self, group: str) -> list[GroupMember]:
        """[] for a group that nobody is in."""
        ...

    async def close(self) -> None: ...
