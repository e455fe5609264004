"""One batch: what it read, what was decided, and the commit that makes it so."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.contracts.frame import FramedMessage
from holdfast.core.changes import Changes, LeaseRenewal
from holdfast.core.ids import InstanceId, TaskPath
from holdfast.store.rows import CommandKey, CommandRow, Commit, ParkedInput, ParkedTry, Rejection
from holdfast_coordinator.cache import Entry
from holdfast_coordinator.intake import Inbound, Turned


@dataclass(slots=True)
class Work:
    """What the inputs of one instance have led to so far; thrown away whole if one of them cannot be decided."""

    entry: Entry | None
    partition: int
    inputs: list[Inbound] = field(default_factory=list)
    changes: Changes | None = None
    renewals: dict[TaskPath, LeaseRenewal] = field(default_factory=dict)
    commands: list[CommandRow] = field(default_factory=list)
    outcomes: list[FramedMessage] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    number: int
    generation: int  # of the assignment under which it was read
    now: datetime
    nexts: dict[int, dict[str, int]]  # partition -> topic -> the offset after the last record
    turned: list[Turned] = field(default_factory=list)
    work: dict[InstanceId, Work] = field(default_factory=dict)
    parked: list[ParkedInput] = field(default_factory=list)
    parked_now: set[InstanceId] = field(default_factory=set)
    first_try_s: float = 0.0  # how long newly parked inputs wait for their first try
    tries: list[ParkedTry] = field(default_factory=list)
    commands: dict[CommandKey, CommandRow] = field(default_factory=dict)  # decided in this batch
    commit: Commit | None = None
    frames: dict[int, list[FramedMessage]] = field(default_factory=lambda: defaultdict(list))
    inputs: int = 0

    @property
    def partitions(self) -> list[int]:
        return sorted(self.nexts)

    def touched(self) -> list[tuple[int, InstanceId]]:
        return [(work.partition, instance) for instance, work in self.work.items()]
