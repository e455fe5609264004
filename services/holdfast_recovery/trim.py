"""Task topics keep records until they are consumed (`retention.ms=-1`); this deletes what was.

Below the committed offset of the worker group nothing is ever read again: a group that starts anew begins at the
first record that is left, which then is the first unfinished dispatch.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from holdfast.contracts.topics import task_topic, worker_group
from holdfast.log.protocol import Admin, TopicPartition
from holdfast_recovery import metrics

_log = logging.getLogger(__name__)


class Trim:
    def __init__(
        self,
        queues: Callable[[], Awaitable[Iterable[str]]],
        admin: Admin,
        *,
        every_s: float = 60.0,
        records_min: int = 1000,
    ) -> None:
        """`records_min`: a partition is left alone until so many records can go."""
        self._queues = queues
        self._admin = admin
        self._every_s = every_s
        self._records_min = records_min

    async def step(self) -> float:
        for queue in await self._queues():
            await self._trim(queue)
        return self._every_s

    async def _trim(self, queue: str) -> None:
        topic = (await self._admin.describe([task_topic(queue)])).get(task_topic(queue))
        if topic is None:
            return
        every = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        committed = await self._admin.committed(worker_group(queue), every)
        starts = await self._admin.start_offsets(every)
        ends = await self._admin.end_offsets(every)
        # Committed beyond the end: an offset of an earlier topic of this name, which says nothing about this one.
        below = {
            tp: offset
            for tp, offset in committed.items()
            if tp in starts and offset - starts[tp] >= self._records_min and offset <= ends.get(tp, -1)
        }
        if below:
            await self._admin.delete_records_before(below)
            count = sum(offset - starts[tp] for tp, offset in below.items())
            metrics.records_trimmed.inc(count)
            _log.info("%d finished dispatches deleted from %s", count, topic.name)
