"""Leases and time-outs that ran out: lag-aware, so that neither a slow coordinator nor a broker that was away looks
like dead workers.

The database says what time it is (T), then Kafka says where the reports of each partition end (E). Every heartbeat
that Kafka took before T is below E. Once the coordinator has processed reports up to E, a lease that is still past
due at T had no heartbeat in time. A pair (T, E) stays true however long it takes to get there, so it is kept until it
is settled: with a fresh E every time, a busy partition would never be caught up with. `Answers` says whether Kafka
was there for the worker to be heard.

Nothing here is sure to be right at once, only never wrong too early: the coordinator ignores a tick whose lease was
renewed since, and whoever dies leaves it to the next look.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.contracts.topics import REPORTS
from holdfast.core.inputs import LapseKind, LeaseExpired
from holdfast.log.protocol import Admin, TopicPartition
from holdfast.store.protocol import RecoveryStore
from holdfast.store.rows import DueLease
from holdfast_recovery import metrics
from holdfast_recovery.answers import HEARTBEATS_PER_LEASE, Answers
from holdfast_recovery.sender import TickSender

_EVER = timedelta(days=3650)
_ASKS_PER_HEARTBEAT = 2
_ASK_S_MIN = 0.02


class Leases:
    def __init__(
        self,
        store: RecoveryStore,
        admin: Admin,
        sender: TickSender,
        *,
        ask_s: float = 1.0,
        survey_s: float = 5.0,
        lag_poll_s: float = 0.1,
        resend_s: float = 5.0,
        page_rows: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask_s` is how often Kafka is asked at least, also while no lease exists: the first one finds a history.
        `survey_s` is how long a lease shorter than all others may go unnoticed."""
        self._store = store
        self._admin = admin
        self._sender = sender
        self._ask_s = ask_s
        self._survey_s = survey_s
        self._lag_poll_s = lag_poll_s
        self._resend_s = resend_s
        self._page_rows = page_rows
        self._clock = clock
        self._answers: defaultdict[int, Answers] = defaultdict(Answers)
        self._open: dict[int, tuple[datetime, int]] = {}  # partition -> (T, E) that reports have not reached yet
        self._ask_at = 0.0
        self._survey_at = 0.0
        self._shortest_s: float | None = None
        self._sent: dict[tuple[object, ...], float] = {}

    async def step(self) -> float:
        if self._clock() >= self._ask_at:
            await self._ask()
        await self._settle()
        metrics.reports_behind.set(len(self._open))
        left_s = max(0.0, self._ask_at - self._clock())
        return min(left_s, self._lag_poll_s) if self._open else left_s

    async def _ask(self) -> None:
        partitions = await self._store.inbox_positions()
        until = await self._store.now()
        ends = await self._admin.end_offsets([TopicPartition(REPORTS, partition) for partition in partitions])
        answered_at = self._clock()
        for answer in ends:
            self._answers[answer.partition].answered(answered_at)
        for partition in await self._store.partitions_with_due_leases(until):
            end = ends.get(TopicPartition(REPORTS, partition))
            if end is not None:
                self._open.setdefault(partition, (until, end))
        self._ask_at = answered_at + await self._pause_s(until)

    async def _pause_s(self, now: datetime) -> float:
        """Until the next expiry, but often enough that a missing answer is noticed within the shortest heartbeat."""
        if self._clock() >= self._survey_at:
            every = await self._store.partitions_with_due_leases(now + _EVER)
            self._shortest_s = min(every.values(), default=None)
            self._survey_at = self._clock() + self._survey_s
        pause_s = self._ask_s
        if self._shortest_s is not None:
            pause_s = min(pause_s, self._shortest_s / HEARTBEATS_PER_LEASE / _ASKS_PER_HEARTBEAT)
        due = await self._store.next_lease_due()
        if due is not None and due > now:
            pause_s = min(pause_s, (due - now).total_seconds())
        return max(pause_s, _ASK_S_MIN)

    async def _settle(self) -> None:
        if not self._open:
            return
        positions = await self._store.inbox_positions()
        for partition, (until, end) in list(self._open.items()):
            if positions[partition][1] < end:
                continue
            await self._settle_one(partition, until, end)
            del self._open[partition]

    async def _settle_one(self, partition: int, until: datetime, end: int) -> None:
        after: DueLease | None = None
        while True:
            page = await self._store.lapsed_leases(partition, until, end, limit=self._page_rows, after=after)
            await self._expire(partition, until, page)
            if len(page) < self._page_rows:
                return
            after = page[-1]

    async def _expire(self, partition: int, until: datetime, lapsed: list[DueLease]) -> None:
        now = self._clock()
        self._sent = {key: at for key, at in self._sent.items() if now - at < self._resend_s}
        steady = [lease for lease in lapsed if self._answers[partition].steady(lease.lease_s, now)]
        metrics.leases_spared.inc(len(lapsed) - len(steady))
        ticks = [tick for lease in steady if _key(tick := self._tick(lease, until)) not in self._sent]
        if not ticks:
            return
        await self._sender.send(ticks)
        for tick in ticks:
            self._sent[_key(tick)] = now
            metrics.leases_expired.labels(tick.kind.value).inc()

    def _tick(self, lease: DueLease, until: datetime) -> LeaseExpired:
        kind = LapseKind.TIMEOUT if lease.timeout_at <= until else LapseKind.LEASE
        return LeaseExpired(lease.instance, self._sender.origin, lease.path, lease.fence, lease.renewals, kind)


def _key(tick: LeaseExpired) -> tuple[object, ...]:
    return tick.instance, tick.path, tick.fence, tick.renewals, tick.kind
