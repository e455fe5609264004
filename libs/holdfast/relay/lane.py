"""The bookkeeping of one partition's outbox: what was handed to Kafka, and up to where all of it has arrived.

Rows go out in number order and without gaps; several may be under way at once, because an idempotent producer keeps
the order within each topic partition. Reports come back in any order, so `done` is the highest number below which
nothing is missing. Rewinding to `done` is always safe: what was published from there is a repetition of committed
messages in the same order, and two such streams together never show a later message before an earlier one.
"""

from collections import deque
from collections.abc import Sequence

from holdfast.log.protocol import Message


class Row:
    """An outbox row under way. It is complete when nothing is `open`: its delivery reports and its parked messages."""

    __slots__ = ("messages", "number", "open", "positions", "size")

    def __init__(self, number: int, messages: Sequence[Message], positions: Sequence[int] | None, size: int) -> None:
        self.number = number
        self.messages = messages
        self.positions = positions  # places in the outbox row; None: all of it, in order
        self.size = size
        self.open = 1

    def position(self, index: int) -> int:
        return index if self.positions is None else self.positions[index]


class Lane:
    __slots__ = ("done", "dropped", "epoch", "last", "parked", "partition", "rows", "sent", "stored", "touched")

    def __init__(self, partition: int, epoch: int, done: int, last: int | None, parked: set[str]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.done = done  # all delivery reports up to here are in
        self.stored = done  # what Postgres knows of `done`
        self.sent = done  # handed to the producer
        self.last = last  # the newest row that is known to exist; None: only the store knows
        self.parked = parked  # instances whose messages go no other way than to `outbox_parked`
        self.rows: deque[Row] = deque()
        self.touched = 0.0  # monotonic: when a commit last renewed this lease, as far as we know
        self.dropped = False

    @property
    def behind(self) -> bool:
        """There may be rows in the store that have to go out before anything newer."""
        return self.last is None or self.sent < self.last

    def push(self, row: Row) -> None:
        self.rows.append(row)
        self.sent = row.number
        if self.last is not None and self.last < row.number:
            self.last = row.number

    def settle(self) -> bool:
        """Move `done` over every row that is complete and has nothing incomplete before it; True if it moved."""
        rows, before = self.rows, self.done
        while rows and not rows[0].open:
            self.done = rows.popleft().number
        return self.done != before

    def rewind(self) -> None:
        """Forget what is under way: it is read from the store again."""
        self.rows.clear()
        self.sent = self.done
