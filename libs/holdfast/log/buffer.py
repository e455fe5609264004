"""What was read and not yet asked for: lists of records on the event loop's side of a Kafka reader.

Two ranks: topics named in `first` are handed out before the others (a report before a command). Records of a
partition that is paused are held aside, those of one that is gone or sought away are dropped. All of that is rare;
the common case is one list in and the same list out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from holdfast.log.protocol import Record, TopicPartition


class Buffer:
    def __init__(self, first: Collection[str] = ()) -> None:
        self._first = frozenset(first)
        self._ranks: tuple[deque[list[Record]], ...] = (deque(), deque())
        self._held: dict[TopicPartition, list[Record]] = {}
        # How many have left each rank since the beginning; the reader subtracts it from what it has put in.
        self.left = [0, 0]

    def rank(self, topic: str) -> int:
        return 0 if topic in self._first else 1

    def put(self, records: list[Record]) -> None:
        if self._held:
            records = self._set_aside(records)
        if not self._first:
            if records:
                self._ranks[1].append(records)
            return
        first = self._first
        urgent = [record for record in records if record[0] in first]
        if urgent:
            self._ranks[0].append(urgent)
        if len(urgent) < len(records):
            self._ranks[1].append([record for record in records if record[0] not in first] if urgent else records)

    def take(self, records_max: int) -> list[Record]:
        taken: list[Record] = []
        for rank, chunks in enumerate(self._ranks):
            before = len(taken)
            while chunks and len(taken) < records_max:
                chunk = chunks.popleft()
                room = records_max - len(taken)
                if len(chunk) > room:
                    chunks.appendleft(chunk[room:])
                    chunk = chunk[:room]
                taken = taken + chunk if taken else chunk
            self.left[rank] += len(taken) - before
        return taken

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget every record of these, held ones too."""
        gone = frozenset(partitions)
        for partition in gone:
            if partition in self._held:
                self._held[partition] = []
        self._remove(gone)

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Put what is here of these aside, and what comes from now on."""
        paused = [partition for partition in partitions if partition not in self._held]
        for partition in paused:
            self._held[partition] = []
        for record in self._remove(frozenset(paused)):
            self._held[TopicPartition(record.topic, record.partition)].append(record)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            records = self._held.pop(partition, [])
            if records:
                rank = self.rank(partition.topic)
                self.left[rank] -= len(records)
                self._ranks[rank].append(records)

    @property
    def held(self) -> Collection[TopicPartition]:
        return self._held.keys()

    def _set_aside(self, records: list[Record]) -> list[Record]:
        rest = []
        for record in records:
            held = self._held.get(record[:2])  # type: ignore[call-overload]  # A tuple equals its NamedTuple.
            if held is None:
                rest.append(record)
            else:
                held.append(record)
                self.left[self.rank(record.topic)] += 1
        return rest

    def _remove(self, partitions: frozenset[TopicPartition]) -> list[Record]:
        removed: list[Record] = []
        for rank, chunks in enumerate(self._ranks):
            for _ in range(len(chunks)):
                chunk = chunks.popleft()
                kept = [record for record in chunk if record[:2] not in partitions]
                if len(kept) < len(chunk):
                    removed += [record for record in chunk if record[:2] in partitions]
                    self.left[rank] += len(chunk) - len(kept)
                if kept:
                    chunks.append(kept)
        return removed
