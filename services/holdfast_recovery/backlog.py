"""Which dispatches are on a task topic and not yet finished with: everything from the group's committed offset on.

Kept between looks, so that a backlog is read once: records below the committed offset are forgotten, new ones are
read up to the end. A record is remembered as a 64-bit hash of (instance, fence), which its headers tell, and its
offset: 16 bytes. Two that share a hash would only make a lost dispatch look like one that waits.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.log.protocol import Admin, TopicPartition

INSTANCE_HEADER = "hf_instance"
FENCE_HEADER = "hf_fence"


def mark(instance: bytes, fence: bytes) -> int:
    return hash((instance, fence))


@dataclass(slots=True)
class Scanned:
    """Marks of one partition with their offsets, in order, and where to read on."""

    offsets: array[int]
    marks: array[int]
    next: int


class Scanner(Protocol):
    async def scan(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], records_max: int
    ) -> dict[TopicPartition, Scanned]:
        """Read [start, end) of each partition, together at most about so many records; Transient if Kafka is away."""
        ...


@dataclass(slots=True)
class _Partition:
    first: int = 0  # everything from here ...
    next: int = 0  # ... up to here is known
    offsets: array[int] = field(default_factory=lambda: array("q"))
    marks: array[int] = field(default_factory=lambda: array("q"))

    def start_at(self, offset: int) -> None:
        """What is below needs no answer any more. A committed offset that went back means: read again from there."""
        if self.first <= offset <= self.next:
            cut = bisect_left(self.offsets, offset)
            del self.offsets[:cut]
            del self.marks[:cut]
        else:
            self.offsets, self.marks, self.next = array("q"), array("q"), offset
        self.first = offset

    def add(self, scanned: Scanned) -> None:
        self.offsets.extend(scanned.offsets)
        self.marks.extend(scanned.marks)
        self.next = scanned.next


class Backlog:
    """One task topic as seen by one worker group. `records_max` bounds what is remembered."""

    def __init__(self, topic: str, group: str, *, records_max: int = 2_000_000) -> None:
        self._topic = topic
        self._group = group
        self._records_max = records_max
        self._topic_id = ""
        self._partitions: dict[TopicPartition, _Partition] = {}

    @property
    def size(self) -> int:
        return sum(len(partition.marks) for partition in self._partitions.values())

    async def catch_up(self, admin: Admin, scanner: Scanner, records_max: int) -> bool:
        """Read up to an end that is asked for now. False while not all is known: no topic, too much."""
        described = (await admin.describe([self._topic])).get(self._topic)
        if described is None:
            return False
        if described.topic_id != self._topic_id:  # Made again: nothing that we know of the old one holds.
            self._topic_id, self._partitions = described.topic_id, {}
        every = [TopicPartition(self._topic, number) for number in range(described.partitions)]
        committed = await admin.committed(self._group, every)
        starts = await admin.start_offsets(every)
        ends = await admin.end_offsets(every)
        if len(ends) < len(every) or len(starts) < len(every):
            return False
        for partition in every:
            start, end = starts[partition], ends[partition]
            offset = max(committed.get(partition, start), start)
            # Committed beyond the end: left over from an earlier topic of this name. Workers begin at the start.
            self._partitions.setdefault(partition, _Partition()).start_at(offset if offset <= end else start)
        return await self._read(scanner, ends, records_max)

    async def _read(self, scanner: Scanner, ends: Mapping[TopicPartition, int], records_max: int) -> bool:
        while missing := self._missing(ends):
            room = min(records_max, self._records_max - self.size)
            if room <= 0:
                return False
            for partition, scanned in (await scanner.scan(missing, room)).items():
                self._partitions[partition].add(scanned)
        return True

    def _missing(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (known.next, ends[tp]) for tp, known in self._partitions.items() if known.next < ends[tp]}

    def contains(self, marks: Iterable[int]) -> set[int]:
        wanted = set(marks)
        found: set[int] = set()
        for partition in self._partitions.values():
            found |= wanted.intersection(partition.marks)
        return found
