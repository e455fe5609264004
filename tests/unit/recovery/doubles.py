"""A store, a clock and a scanner in memory: everything that recovery asks, with time in the hands of the test."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from holdfast.contracts.messages import decode_tick
from holdfast.contracts.topics import REPORTS, TICKS
from holdfast.core.errors import Transient
from holdfast.core.ids import InstanceKey, TaskPath, instance_id
from holdfast.core.inputs import DispatchLost, Tick
from holdfast.log.memory import MemoryLog
from holdfast.log.memory_admin import MemoryAdmin
from holdfast.log.memory_producer import MemoryProducer
from holdfast.log.protocol import Message, TopicPartition, TopicSpec
from holdfast.store.rows import DueLease, DueTimer, QueuedTask
from holdfast_recovery.backlog import FENCE_HEADER, INSTANCE_HEADER, Scanned, mark
from holdfast_recovery.dispatches import LostDispatches
from holdfast_recovery.sender import TickSender

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KEY = InstanceKey("shop/order/1")
ID = UUID(str(instance_id(KEY)))
PATH = TaskPath("charge")
QUEUE = "payment"
TOPIC = f"holdfast.tasks.{QUEUE}"


@dataclass
class Clock:
    """The database's clock and this process's monotonic one, moving together."""

    s: float = 1000.0

    def __call__(self) -> float:
        return self.s

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.s)


@dataclass
class RecoveryRows:
    """The rows that recovery looks at, in one partition unless told otherwise."""

    clock: Clock
    timers: dict[tuple[str, int], DueTimer] = field(default_factory=dict)
    claimed: dict[tuple[str, int], datetime] = field(default_factory=dict)
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    leases: list[DueLease] = field(default_factory=list)
    queued: list[QueuedTask] = field(default_factory=list)
    inbox: dict[int, tuple[int, int, int]] = field(default_factory=lambda: {0: (0, 0, 0)})
    outbox: dict[int, tuple[int, int]] = field(default_factory=lambda: {0: (0, 0)})
    parked: set[str] = field(default_factory=set)
    waits: list[float] = field(default_factory=list)
    away: bool = False

    async def now(self) -> datetime:
        if self.away:
            raise Transient("Postgres is away")
        return self.clock.now

    def timer(self, key: str, in_s: float, token: int = 1) -> DueTimer:
        timer = DueTimer(0, ID, KEY, key, token, self.clock.now + timedelta(seconds=in_s))
        self.timers[key, token] = timer
        return timer

    async def claim_due_timers(self, *, claim_s: float, limit: int) -> list[DueTimer]:
        now = await self.now()
        free = [
            (key, timer)
            for key, timer in self.timers.items()
            if key not in self.sent and max(timer.due_at, self.claimed.get(key, timer.due_at)) <= now
        ][:limit]
        for key, _ in free:
            self.claimed[key] = now + timedelta(seconds=claim_s)
        return [timer for _, timer in free]

    async def next_due(self) -> datetime | None:
        unsent = [
            max(timer.due_at, self.claimed.get(key, timer.due_at))
            for key, timer in self.timers.items()
            if key not in self.sent
        ]
        return min(unsent, default=None)

    async def mark_timers_sent(self, sent: Sequence[tuple[DueTimer, int]]) -> None:
        for timer, offset in sent:
            if (timer.key, timer.token) in self.timers:
                self.sent[timer.key, timer.token] = offset

    async def unanswered_timers(self, *, limit: int, claim_s: float = 10.0) -> list[DueTimer]:
        return [self.timers[key] for key, offset in self.sent.items() if offset < self.inbox[0][2]][:limit]

    async def wait_for_timers(self, timeout_s: float) -> None:
        """Time passes exactly as long as was asked for, which is as far as nobody tells of an earlier timer."""
        self.waits.append(timeout_s)
        self.clock.s += timeout_s

    def lease(self, lease_s: float = 30.0, timeout_s: float = 86_400.0, path: str = PATH, fence: int = 1) -> None:
        now = self.clock.now
        ends = now + timedelta(seconds=lease_s), now + timedelta(seconds=timeout_s)
        self.leases.append(DueLease(0, ID, KEY, TaskPath(path), fence, 0, lease_s, *ends))

    def heartbeat(self) -> None:
        """The coordinator commits a renewal of every lease."""
        self.leases = [
            replace(lease, renewals=lease.renewals + 1, expires_at=self.clock.now + timedelta(seconds=lease.lease_s))
            for lease in self.leases
        ]

    async def lapsed_leases(
        self, partition: int, until: datetime, reports_end: int, *, limit: int, after: DueLease | None = None
    ) -> list[DueLease]:
        if self.inbox[partition][1] < reports_end:
            return []
        due = [lease for lease in self.leases if min(lease.expires_at, lease.timeout_at) <= until]
        start = 0 if after is None else due.index(after) + 1
        return due[start : start + limit]

    async def partitions_with_due_leases(self, until: datetime) -> dict[int, float]:
        due = [lease for lease in self.leases if min(lease.expires_at, lease.timeout_at) <= until]
        return {0: min(lease.lease_s for lease in due)} if due else {}

    async def next_lease_due(self) -> datetime | None:
        return min((min(lease.expires_at, lease.timeout_at) for lease in self.leases), default=None)

    async def queued_since(self, before: datetime, *, limit: int, after: QueuedTask | None = None) -> list[QueuedTask]:
        due = [task for task in self.queued if task.queued_at <= before]
        start = 0 if after is None else due.index(after) + 1
        return due[start : start + limit]

    async def still_queued(self, tasks: Sequence[QueuedTask]) -> list[QueuedTask]:
        return [task for task in tasks if task in self.queued]

    async def inbox_positions(self) -> dict[int, tuple[int, int, int]]:
        return self.inbox

    async def outbox_positions(self) -> dict[int, tuple[int, int]]:
        return self.outbox

    async def close(self) -> None:
        pass

    async def parked_instances(self, partitions: Sequence[int]) -> set[str]:
        return self.parked


class World:
    """Kafka, the rows and the time, as one recovery sees them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rows = RecoveryRows(self.clock)
        self.log = MemoryLog()
        for topic in (REPORTS, TICKS):
            self.log.create(TopicSpec(topic, 1))
        self.admin = MemoryAdmin(self.log)
        self.sender = TickSender(lambda: MemoryProducer(self.log), "recovery-1", timeout_s=0.05)

    def ticks(self) -> list[Tick]:
        records = self.log.topics[TICKS].partitions[0].records
        return [decode_tick(record.value or b"", "test") for record in records]

    def report(self, count: int = 1) -> None:
        """Kafka takes reports of workers."""
        for _ in range(count):
            self.log.append(Message(REPORTS, KEY.encode(), b"report"), 1000)

    def coordinator_catches_up(self, but: int = 0) -> None:
        end = self.log.topics[REPORTS].partitions[0].end - but
        commands, _, ticks = self.rows.inbox[0]
        self.rows.inbox[0] = (commands, end, ticks)

    def dispatch(self, queue: str, fence: int, path: str = PATH, *, publish: bool = True) -> QueuedTask:
        task = QueuedTask(0, ID, KEY, TaskPath(path), 1, 1, fence, queue, self.clock.now)
        self.rows.queued.append(task)
        if publish:
            headers = ((INSTANCE_HEADER, KEY.encode()), (FENCE_HEADER, str(fence).encode()))
            self.log.append(Message(f"holdfast.tasks.{queue}", b"key", b"task", headers, 0), 1000)
        return task


class MemoryScanner:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.scanned = 0

    async def scan(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], records_max: int
    ) -> dict[TopicPartition, Scanned]:
        found: dict[TopicPartition, Scanned] = {}
        for tp, (start, end) in ranges.items():
            partition = self._log.partition(tp)
            assert partition is not None
            scanned = found[tp] = Scanned(array("q"), array("q"), start)
            for record in partition.read(start, min(records_max, end - start)):
                headers = dict(record.headers)
                scanned.offsets.append(record.offset)
                scanned.marks.append(mark(headers[INSTANCE_HEADER] or b"", headers[FENCE_HEADER] or b""))
                scanned.next = record.offset + 1
                self.scanned += 1
        return found


class Shop(World):
    def __init__(self) -> None:
        super().__init__()
        self.log.create(TopicSpec(TOPIC, 2))
        self.scanner = MemoryScanner(self.log)
        self.dispatches = self.loop()

    def loop(
        self, *, page_rows: int = 5000, backlog_records_max: int = 1000, publish_wait_s: float = 0.0
    ) -> LostDispatches:
        return LostDispatches(
            self.rows,
            self.rows,
            self.admin,
            self.scanner,
            self.sender,
            publish_wait_s=publish_wait_s,
            page_rows=page_rows,
            backlog_records_max=backlog_records_max,
        )

    def commit(self, offset: int) -> None:
        self.log.group(f"holdfast.worker.{QUEUE}").committed[TopicPartition(TOPIC, 0)] = offset

    async def look(self) -> list[int]:
        """One look, long after everything was queued; the fences that were declared lost by it."""
        self.clock.s += 11
        before = len(self.ticks())
        await self.dispatches.step()
        return [tick.fence for tick in self.ticks()[before:] if isinstance(tick, DispatchLost)]
