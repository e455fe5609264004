"""One delivery of one dispatch, from the moment it is taken from Kafka until its outcome is acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from enum import Enum
from typing import Any, Protocol

from holdfast.core.changes import Dispatch
from holdfast.core.ids import InstanceKey, Payload
from holdfast.worker.activity import Activity
from holdfast.worker.context import ActivityContext
from holdfast.worker.offsets import Entry, Partition

AttemptKey = tuple[InstanceKey, int]
"""Instance and fence: two deliveries of one dispatch share it, nothing else does."""


class Stop(Enum):
    """Why an attempt has to end early. It decides what is reported when it has."""

    CANCELLED = "cancelled"  # by the workflow: report that we obeyed
    LEASE_LOST = "lease_lost"  # somebody else has it: say nothing
    DRAINING = "draining"  # this worker goes away: hand back


class Child(Protocol):
    """The child process that runs an attempt."""

    def cancel(self, attempt: Attempt, reason: str) -> None: ...


class Attempt(Entry):
    """It is also the activity's link to the worker, used from any thread: every such use is one plain assignment or
    `deque.append`, which need no lock."""

    __slots__ = (
        "activity",
        "beat_sent",
        "begun_at",
        "cancelled",
        "child",
        "claimed",
        "details",
        "dispatch",
        "ended",
        "entered",
        "followers",
        "key",
        "progress",
        "stop",
        "task",
    )

    def __init__(self, partition: Partition, offset: int, dispatch: Dispatch, progress: deque[Attempt]) -> None:
        self.partition = partition
        self.offset = offset
        self.settled = False
        self.dispatch = dispatch
        self.key: AttemptKey = (dispatch.instance, dispatch.fence)
        self.activity: Activity[..., Any] | None = None
        self.begun_at = -1.0  # on the loop's clock; negative until it runs
        self.claimed = False  # `started` went out before it ran
        self.entered = False  # the user's code has been called
        self.ended = False  # nothing more is to be sent but the outcome
        self.stop: Stop | None = None
        self.cancelled: str | None = None
        self.task: asyncio.Task[None] | None = None
        self.child: Child | None = None
        self.followers: list[Entry] | None = None  # later deliveries of the same dispatch, settled with this one
        self.progress = progress  # where attempts with news for the next heartbeat are put
        self.details: Payload | None = None
        self.beat_sent = False  # a heartbeat is on its way and not acknowledged

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun_at

    def beat(self, details: Payload | None) -> bool:
        if details is not None and not self.ended:
            self.details = details
            self.progress.append(self)
        return self.cancelled is None and not self.ended

    def context(self) -> ActivityContext:
        return ActivityContext(self.dispatch, self)

    def settle(self) -> None:
        """Kafka has a report of it: from here on the lease looks after it."""
        self.partition.settle(self)
        if self.followers is not None:
            followers, self.followers = self.followers, None
            for entry in followers:
                entry.partition.settle(entry)
