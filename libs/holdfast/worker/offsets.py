"""The low watermark of one partition: which offset may be committed, and how far ahead of it we may run.

An offset may be committed when every record before it is settled: Kafka has acknowledged a report for it, so that
from now on the lease and not Kafka looks after the task. The rule of caution at the next assignment (claim what is
below committed + `ahead_max`) is right only because nobody ever runs further ahead than that of what Kafka has
*acknowledged* as committed, so that is what `committed` holds here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.log.protocol import Record, TopicPartition

ahead_max = 1_000


class Entry:
    """One record on its way to being settled."""

    __slots__ = ("offset", "partition", "settled")

    def __init__(self, partition: Partition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.settled = False


class Partition:
    """One assigned partition of a task topic, for the time of one assignment."""

    __slots__ = (
        "cautious_below",
        "committed",
        "entries",
        "held",
        "lost",
        "next",
        "on_progress",
        "paused",
        "pending",
        "queued",
        "tp",
    )

    def __init__(self, tp: TopicPartition, committed: int, end: int, on_progress: Callable[[Partition], None]) -> None:
        self.tp = tp
        self.committed = committed
        self.next = committed  # what may be committed
        self.cautious_below = min(end, committed + ahead_max)
        self.entries: deque[Entry] = deque()  # begun and not yet below the watermark, by offset
        self.pending: deque[Record] = deque()  # read and not begun
        self.queued = False  # is in the line of partitions with something to begin
        self.held = False  # has reached its limit and waits for a commit
        self.paused = False  # has waited so long that Kafka is told to send no more of it
        self.lost = False  # revoked or lost: nothing more is begun or committed
        self.on_progress = on_progress

    @property
    def limit(self) -> int:
        """The first offset that must not be begun yet."""
        return self.committed + ahead_max

    def settle(self, entry: Entry) -> None:
        """A report of this record is acknowledged (or needs none)."""
        if entry.settled:
            return
        entry.settled = True
        entries = self.entries
        if not entries or entries[0] is not entry:
            return
        while entries and entries[0].settled:
            self.next = entries.popleft().offset + 1
        if not self.lost:
            self.on_progress(self)
