"""Dispatches that no worker will ever be given, told from those that only wait.

A task that has been QUEUED for a while is either not published yet, in the topic's backlog, in a worker's hands, or
lost. In this order, because each step relies on the one before:

1. Its outbox row is published: `done` reaches the number that was the last one when the task was seen. Before that it
   is late, not lost. A parked dispatch waits for an operator.
2. The committed offset of its worker group is read, then the end of the topic; what lies between is the backlog. A
   dispatch in it will be delivered. One that is not was committed by a worker, or is gone with its topic.
3. A worker commits only after Kafka has acknowledged a report. So the end of the instance's reports is read *after*
   the committed offset, and reports are processed up to it. Whoever is still QUEUED with that fence then was lost.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.contracts.topics import REPORTS, task_topic, worker_group
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


class ParkedMessages(Protocol):
    async def parked_instances(self, partitions: Sequence[int]) -> set[str]: ...


class LostDispatches:
    def __init__(
        self,
        store: RecoveryStore,
        outbox: ParkedMessages,
        admin: Admin,
        scanner: Scanner,
        sender: TickSender,
        *,
        every_s: float = 10.0,
        patience_s: float = 10.0,
        publish_wait_s: float = 5.0,
        page_rows: int = 5000,
        backlog_records_max: int = 2_000_000,
    ) -> None:
        """Tasks are looked at once they have waited for `patience_s`, a page at a time, all of them in each round.
        `publish_wait_s` is how long one look waits for the relay; what is late then is left for the next round."""
        self._store = store
        self._outbox = outbox
        self._admin = admin
        self._scanner = scanner
        self._sender = sender
        self._every_s = every_s
        self._patience = timedelta(seconds=patience_s)
        self._publish_wait_s = publish_wait_s
        self._page_rows = page_rows
        self._records_max = backlog_records_max
        self._after: QueuedTask | None = None  # where the round is
        self._waiting = 0
        self._backlogs: dict[str, Backlog] = {}
        self._queues: set[str] = set()  # seen in this round

    async def step(self) -> float:
        before = await self._store.now() - self._patience
        page = await self._store.queued_since(before, limit=self._page_rows, after=self._after)
        missing = await self._missing(await self._published(page))
        if missing:
            await self._report(missing)
        self._waiting += len(page)
        if len(page) == self._page_rows:
            self._after = page[-1]
            return self._every_s / 10
        self._end_round()
        return self._every_s

    def _end_round(self) -> None:
        metrics.dispatches_waiting.set(self._waiting)
        metrics.backlog_indexed.set(sum(backlog.size for backlog in self._backlogs.values()))
        self._backlogs = {queue: backlog for queue, backlog in self._backlogs.items() if queue in self._queues}
        self._after, self._waiting, self._queues = None, 0, set()

    async def _published(self, page: Sequence[QueuedTask]) -> list[QueuedTask]:
        """Those whose outbox row is in Kafka. Positions are read after the tasks, so each row is among them."""
        if not page:
            return []
        lasts = {partition: last for partition, (last, _) in (await self._store.outbox_positions()).items()}
        partitions = {task.partition for task in page}
        done = await self._reached({p: lasts[p] for p in partitions}, self._outbox_done, self._publish_wait_s)
        # Only now: what was parked was parked before `done` moved over it.
        parked = await self._outbox.parked_instances(sorted(partitions))
        return [task for task in page if task.partition in done and task.instance not in parked]

    async def _missing(self, published: Sequence[QueuedTask]) -> list[QueuedTask]:
        by_queue: defaultdict[str, list[QueuedTask]] = defaultdict(list)
        for task in published:
            by_queue[task.queue].append(task)
        self._queues.update(by_queue)
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
        # For as long as it takes: an end that was read is reached, unless nobody processes reports at all.
        heard = await self._reached({tp.partition: end for tp, end in ends.items()}, self._reports_next, None)
        known = [task for task in missing if task.partition in heard]
        lost = await self._store.still_queued(known)
        if not lost:
            return
        for task in lost:
            _log.error("a dispatch was lost: %s of %s, fence %d", task.path, task.instance, task.fence)
        await self._sender.send([DispatchLost(t.instance, self._sender.origin, t.path, t.fence) for t in lost])
        metrics.dispatches_lost.inc(len(lost))

    async def _outbox_done(self) -> dict[int, int]:
        return {partition: done for partition, (_, done) in (await self._store.outbox_positions()).items()}

    async def _reports_next(self) -> dict[int, int]:
        return {partition: reports for partition, (_, reports, _) in (await self._store.inbox_positions()).items()}

    async def _reached(
        self, goals: Mapping[int, int], position: Callable[[], Awaitable[dict[int, int]]], wait_s: float | None
    ) -> set[int]:
        """Wait until every partition is at its goal; those that are, when the time is over."""
        loop = asyncio.get_running_loop()
        until = None if wait_s is None else loop.time() + wait_s
        while True:
            positions = await position()
            there = {partition for partition, goal in goals.items() if positions.get(partition, -1) >= goal}
            if len(there) == len(goals) or (until is not None and loop.time() >= until):
                return there
            await asyncio.sleep(_LAG_POLL_S)
