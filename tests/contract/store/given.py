"""Rows for the tests, with as much filled in as a test does not care about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.core.changes import Changes, InstanceRow, LeaseRenewal, LeaseRow, TaskRow, TimerRow
from holdfast.core.events import Event, Recorded, TaskScheduled, WorkflowCreated, WorkflowStarted
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath, instance_id
from holdfast.core.inputs import ActorType, Error, Origin
from holdfast.core.transitions import TaskStatus, WorkflowState
from holdfast.store.rows import Claim, CommandKey, CommandRow, Commit, Committed, ParkedInput, PartitionAdvance
from holdfast.store.stores import Stores

NOW = datetime(2026, 5, 4, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
CHARGE = TaskPath("charge")
ORIGIN = Origin(ActorType.CLIENT, "shop", "/shop#c-1", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


def key_of(run: str) -> InstanceKey:
    return InstanceKey(f"orders/fulfil/{run}")


def id_of(run: str) -> InstanceId:
    return instance_id(key_of(run))


def history(first: int, *events: Event) -> list[Recorded]:
    return [Recorded(number, 1, event, NOW, ORIGIN) for number, event in enumerate(events, first)]


def scheduled(fence: int = 1, path: TaskPath = CHARGE) -> TaskScheduled:
    return TaskScheduled(path, 1, fence, "payment.charge", "payment", Payload(b'{"amount":99}'))


def row(run: str, sequence: int, **fields: Any) -> InstanceRow:
    values: dict[str, Any] = {
        "version": 1,
        "state": WorkflowState.RUNNING,
        "execution": 1,
        "fence": 0,
        "awaiting": "tasks",
        "error": None,
        "created_at": None,
        "updated_at": NOW,
        "finished_at": None,
    }
    return InstanceRow(instance_id=id_of(run), key=key_of(run), sequence=sequence, **(values | fields))


def new(run: str, **parts: Any) -> Changes:
    """The first two events of an instance."""
    events = history(1, WorkflowCreated("orders", "fulfil", 1, run, Payload(b'{"amount":99}')), WorkflowStarted())
    return Changes(row(run, 2, created_at=parts.pop("created_at", NOW)), 0, events, **parts)


def more(run: str, expected: int, *events: Event, fields: dict[str, Any] | None = None, **parts: Any) -> Changes:
    """Further events of an instance whose sequence should be `expected`."""
    happened = events or (scheduled(),)
    return Changes(
        row(run, expected + len(happened), **(fields or {})), expected, history(expected + 1, *happened), **parts
    )


def task(status: TaskStatus, **fields: Any) -> TaskRow:
    values: dict[str, Any] = {"path": CHARGE, "execution": 1, "attempt": 1, "fence": 1} | fields
    return TaskRow(status=status, queue="payment", activity="payment.charge", **values)


def tasks(*rows: TaskRow) -> dict[tuple[int, TaskPath, int], TaskRow]:
    return {(row.execution, row.path, row.attempt): row for row in rows}


def lease(fence: int = 1, path: TaskPath = CHARGE, **fields: Any) -> LeaseRow:
    values: dict[str, Any] = {"lease_s": 30.0, "expires_at": NOW + timedelta(seconds=30), "timeout_at": LATER} | fields
    return LeaseRow(path, 1, 1, fence, "worker-1", "host:1", since=NOW, **values)


def renewal(run: str, renewals: int, *, fence: int = 1, seconds: float = 60, **fields: Any) -> LeaseRenewal:
    return LeaseRenewal(id_of(run), CHARGE, fence, renewals, NOW + timedelta(seconds=seconds), **fields)


def timer(key: str = "deadline", token: int = 1, due_at: datetime = NOW) -> dict[str, TimerRow | None]:
    return {key: TimerRow(key, token, due_at)}


def command(run: str, id: str = "c-1", *, outcome: str = "accepted", reason: str = "") -> CommandRow:
    return CommandRow(CommandKey(id_of(run), "/shop", id), key_of(run), "start", b"digest", outcome, reason, NOW)


def parked(run: str, offset: int, *, partition: int = 0, error: str = "it raised") -> ParkedInput:
    headers = (("ce_id", b"c-1"), ("empty", None))
    return ParkedInput(
        0, partition, id_of(run), key_of(run), "holdfast.reports", offset, b"key", b"\x00value", headers, error, NOW
    )


def error(code: str = "declined") -> Error:
    return Error(code, "the bank said no", Payload(b'{"code":51}'))


class Coordinator:
    """Owns partitions and keeps count of its offsets, like the real one."""

    def __init__(self, stores: Stores, claims: list[Claim]) -> None:
        self.stores = stores
        self.claims = {claim.partition: claim for claim in claims}
        self.offsets = {
            claim.partition: [claim.commands_next, claim.reports_next, claim.ticks_next] for claim in claims
        }
        self.outbox = {claim.partition: claim.outbox_last for claim in claims}

    @classmethod
    async def owning(
        cls, stores: Stores, *partitions: int, publish: bool = False, lease_s: float = 30
    ) -> "Coordinator":
        claims = await stores.coordinator.claim(
            partitions or [0], "coordinator-1", publish=publish, publisher_lease_s=lease_s
        )
        return cls(stores, claims)

    def advance(
        self,
        partition: int = 0,
        *,
        commands: int = 0,
        reports: int = 0,
        ticks: int = 0,
        body: bytes | None = None,
        done: int | None = None,
    ) -> PartitionAdvance:
        c, r, t = self.offsets[partition]
        claim = self.claims[partition]
        number = None if body is None else self.outbox[partition] + 1
        return PartitionAdvance(
            partition,
            claim.epoch,
            c,
            c + commands,
            r,
            r + reports,
            t,
            t + ticks,
            number,
            body,
            claim.publisher_epoch,
            done,
        )

    async def commit(
        self, *changes: Changes, home: int = 0, advance: PartitionAdvance | None = None, **parts: Any
    ) -> Committed:
        moved = advance or self.advance(home, commands=1)
        homes = {change.row.instance_id: home for change in changes if change.expected_sequence == 0}
        committed = await self.stores.coordinator.commit(
            Commit([moved], NOW, "coordinator 1", list(changes), homes, **parts)
        )
        self.offsets[moved.partition] = [moved.commands_next, moved.reports_next, moved.ticks_next]
        if moved.outbox_number is not None:
            self.outbox[moved.partition] = moved.outbox_number
        return committed


async def everything(stores: Stores, *runs: str) -> list[Any]:
    """All that is visible of some instances and of the store: for tests that say `nothing changed`."""
    seen: list[Any] = [await stores.recovery.inbox_positions(), await stores.recovery.outbox_positions()]
    seen.append(await stores.queries.counts())
    for run in runs:
        instance = id_of(run)
        seen.append(await stores.queries.instances([instance]))
        seen.append(await stores.queries.events(instance))
        seen.append(await stores.queries.tasks(instance))
        seen.append(await stores.queries.leases(instance))
        seen.append(await stores.queries.timers(instance))
        seen.append(await stores.queries.commands(instance))
        seen.append(await stores.coordinator.load([instance]))
    return seen
