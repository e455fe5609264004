"""Dispatches that no worker will ever be given, told from those that only wait.

A task that has been QUEUED for a while is either not published yet, in the topic's backlog, in a worker's hands, or
lost. In this order, because each step relies on the one before:

1. Its outbox row is published: `done` has reached the number that was the last when the task was first seen. Before
   that it is late, not lost. A parked dispatch waits for an operator.
2. The committed offset of its worker group is read, then the end of the topic; what lies between is the backlog. A
   dispatch in it will be delivered. One that is not was committed by a worker, or is gone with its topic.
3. A worker commits only after Kafka has acknowledged a report. So the end of the instance's reports is read *after*
   the committed offset, and reports are processed up to it. Whoever is still QUEUED with that fence then was lost.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.contracts.topics import REPORTS, task_topic, worker_group
from holdfast.core.ids import TaskPath
from holdfast.core.inputs import DispatchLost
from holdfast.log.protocol import Admin, TopicPartition
from holdfast.store.protocol import RecoveryStore
from holdfast.store.rows import QueuedTask
from holdfast_recovery import metrics
from holdfast_recovery.backlog import Backlog, Scanner, mark
from holdfast_recovery.sender import TickSender

_log = logging.getLogger(__name__)

_LAG_POLL_S = 0.05
_SCAN_RECORDS_MAX = 200_000

_Key = tuple[object, TaskPath, int]


class DispatchStore(RecoveryStore, Protocol):
    async def parked_instances(self, partitions: Sequence[int]) -> set[str]: ...


class LostDispatches:
    def __init__(
        self,
        store: DispatchStore,
        admin: Admin,
        scanner: Scanner,
        sender: TickSender,
        *,
        every_s: float = 10.0,
        patience_s: float = 10.0,
        page_rows: int = 5000,
        backlog_records_max: int = 2_000_000,
    ) -> None:
        self._store = store
        self._admin = admin
        self._scanner = scanner
        self._sender = sender
        self._every_s = every_s
        self._patience = timedelta(seconds=patience_s)
        self._page_rows = page_rows
        self._records_max = backlog_records_max
        self._first_seen: dict[_Key, int] = {}  # the last outbox number of the partition when the task was first seen
        self._backlogs: dict[str, Backlog] = {}

    async def step(self) -> float:
        before = await self._store.now() - self._patience
        waiting = await self._store.queued_since(before, limit=self._page_rows)
        metrics.dispatches_waiting.set(len(waiting))
        published = await self._published(waiting)
        missing = await self._missing(published)
        metrics.backlog_indexed.set(sum(backlog.size for backlog in self._backlogs.values()))
        if missing:
            await self._report(missing)
        return self._every_s

    async def _published(self, waiting: Sequence[QueuedTask]) -> list[QueuedTask]:
        if not waiting:
            self._first_seen.clear()
            return []
        positions = await self._store.outbox_positions()
        # After the positions: what was parked was parked before `done` moved over it.
        parked = await self._store.parked_instances(sorted({task.partition for task in waiting}))
        seen = {_key(task): self._first_seen.get(_key(task), positions[task.partition][0]) for task in waiting}
        self._first_seen = seen
        return [
            task for task in waiting if positions[task.partition][1] >= seen[_key(task)] and task.instance not in parked
        ]

    async def _missing(self, published: Sequence[QueuedTask]) -> list[QueuedTask]:
        by_queue: defaultdict[str, list[QueuedTask]] = defaultdict(list)
        for task in published:
            by_queue[task.queue].append(task)
        self._backlogs = {queue: backlog for queue, backlog in self._backlogs.items() if queue in by_queue}
        missing: list[QueuedTask] = []
        for queue, tasks in by_queue.items():
            missing += await self._missing_of(queue, tasks)
        return missing

    async def _missing_of(self, queue: str, tasks: Sequence[QueuedTask]) -> list[QueuedTask]:
        if queue not in self._backlogs:
            limit = self._records_max
            self._backlogs[queue] = Backlog(task_topic(queue), worker_group(queue), records_max=limit)
        backlog = self._backlogs[queue]
        if not await backlog.catch_up(self._admin, self._scanner, _SCAN_RECORDS_MAX):
            _log.warning("cannot tell which of %d tasks of queue %s are lost: no topic, or too long", len(tasks), queue)
            return []
        marks = {mark(task.instance.encode(), str(task.fence).encode()): task for task in tasks}
        there = backlog.contains(marks)
        return [task for number, task in marks.items() if number not in there]

    async def _report(self, missing: Sequence[QueuedTask]) -> None:
        reports = {TopicPartition(REPORTS, task.partition) for task in missing}
        ends = await self._admin.end_offsets(reports)
        await self._processed({tp.partition: end for tp, end in ends.items()})
        known = [task for task in missing if TopicPartition(REPORTS, task.partition) in ends]
        lost = await self._store.still_queued(known)
        if not lost:
            return
        for task in lost:
            _log.error("a dispatch was lost: %s of %s, fence %d", task.path, task.instance, task.fence)
        await self._sender.send([DispatchLost(t.instance, self._sender.origin, t.path, t.fence) for t in lost])
        metrics.dispatches_lost.inc(len(lost))

    async def _processed(self, ends: dict[int, int]) -> None:
        """Wait until reports are processed up to these ends, for as long as that takes: a fixed end is reached."""
        while True:
            positions = await self._store.inbox_positions()
            if all(positions[partition][1] >= end for partition, end in ends.items()):
                return
            await asyncio.sleep(_LAG_POLL_S)


def _key(task: QueuedTask) -> _Key:
    return task.instance_id, task.path, task.fence
