"""Hot states, per partition, so that a partition that is lost takes its states with it."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.ids import InstanceId
from holdfast.core.state import State


@dataclass(slots=True)
class Entry:
    state: State
    snapshot_sequence: int = 0
    snapshot_bytes: int = 0
    batch: int = 0  # the newest batch that touched it

    def wants_snapshot(self, events_min: int) -> bool:
        """The distance grows with the size of a snapshot, so that its cost per event stays the same."""
        distance = max(events_min, self.snapshot_bytes // 100)
        return not self.state.finished and self.state.sequence - self.snapshot_sequence >= distance


class StateCache:
    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._partitions: dict[int, dict[InstanceId, Entry]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, partition: int, instance: InstanceId) -> Entry | None:
        entries = self._partitions.get(partition)
        return None if entries is None else entries.get(instance)

    def put(self, partition: int, entry: Entry) -> None:
        entries = self._partitions.setdefault(partition, {})
        if entry.state.id not in entries:
            self._count += 1
        entries[entry.state.id] = entry

    def discard(self, partition: int, instance: InstanceId) -> None:
        if self._partitions.get(partition, {}).pop(instance, None) is not None:
            self._count -= 1

    def drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._count -= len(self._partitions.pop(partition, {}))

    def committed(self, batch: int, touched: Iterable[tuple[int, InstanceId]]) -> None:
        """A finished instance is not needed any more, unless the batch that is being decided has just used it."""
        for partition, instance in touched:
            entry = self.get(partition, instance)
            if entry is not None and entry.state.finished and entry.batch <= batch:
                self.discard(partition, instance)
        self._evict(batch)

    def _evict(self, batch: int) -> None:
        """Oldest first, but nothing that a batch under way may still be using."""
        if self._count <= self._entries_max:
            return
        for partition, entries in self._partitions.items():
            surplus = self._count - self._entries_max
            for instance in [key for key, entry in entries.items() if entry.batch <= batch][: max(surplus, 0)]:
                self.discard(partition, instance)
