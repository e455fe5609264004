"""Which partitions are ours: the row in Postgres says so, Kafka only suggests it.

A claim raises the partition's epoch and fences everybody before us. From then on every commit carries the epoch and the
offsets it has read; one that does not match hits no row. Losing the row while Kafka still counts us as the owner is
possible (a zombie that woke up claimed late), so such a partition is claimed again after a pause, for as long as Kafka
says that it is ours.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.contracts.topics import COMMANDS, INBOX, REPORTS, TICKS
from holdfast.log.protocol import TopicPartition
from holdfast.store.rows import Claim, PartitionAdvance, Settled


@dataclass(slots=True)
class Owned:
    """A partition of ours, with what is committed and what is decided ahead of that."""

    partition: int
    epoch: int
    next: dict[str, int]  # topic -> the next offset to decide
    outbox_last: int

    @classmethod
    def from_claim(cls, claim: Claim) -> "Owned":
        offsets = {COMMANDS: claim.commands_next, REPORTS: claim.reports_next, TICKS: claim.ticks_next}
        return cls(claim.partition, claim.epoch, offsets, claim.outbox_last)

    def settle(self, row: Settled) -> None:
        self.next = {COMMANDS: row.commands_next, REPORTS: row.reports_next, TICKS: row.ticks_next}
        self.outbox_last = row.outbox_last

    def advance(self, nexts: Mapping[str, int]) -> PartitionAdvance:
        """Offsets move on as soon as a batch is decided; the batch after it builds on that."""
        before = self.next
        self.next = {topic: max(offset, nexts.get(topic, offset)) for topic, offset in before.items()}
        after = self.next
        return PartitionAdvance(
            self.partition,
            self.epoch,
            before[COMMANDS],
            after[COMMANDS],
            before[REPORTS],
            after[REPORTS],
            before[TICKS],
            after[TICKS],
        )

    def offsets(self) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, self.partition): offset for topic, offset in self.next.items()}


def inbox_partitions(partitions: Iterable[TopicPartition]) -> list[int]:
    """The partition numbers: `range` puts the same numbers of all three topics into one hand."""
    return sorted({partition for topic, partition in partitions if topic in INBOX})
