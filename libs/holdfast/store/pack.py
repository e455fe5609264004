"""A commit as the arrays that `holdfast.commit_batch` takes (migrations/0002_commit.sql describes each).

This runs for every input, so it is written for speed: each distinct id, text and time is put into a table once and
rows are numbers that point there. Pointers start at 1; 0 is NULL. `_value_` instead of an enum member: hashing a member
runs Python code, hashing its text does not.
"""

from collections.abc import Iterable
from typing import Any

import orjson

from holdfast.contracts.event_codec import encode_event
from holdfast.core.changes import Changes, LeaseRow, TaskRow
from holdfast.core.events import EVENT_TYPES, Recorded
from holdfast.core.ids import TaskPath, split_key
from holdfast.core.inputs import Error, Origin
from holdfast.core.transitions import FINISHED
from holdfast.store.pack_tables import Pack
from holdfast.store.rows import Commit, PartitionAdvance


class Pack:
    """The tables and sections of one batch; `arguments` are those of the function, in its order."""

    __slots__ = (
        "blobs",
        "commands",
        "created",
        "docs",
        "events",
        "ids",
        "lease_seconds",
        "leases",
        "leases_ended",
        "origins",
        "parking",
        "partitions",
        "rare",
        "renewals",
        "repeats",
        "service",
        "snapshots",
        "tasks",
        "texts",
        "timers",
        "timers_gone",
        "times",
        "updated",
    )

    def __init__(self, service: str) -> None:
        self.service = service
        self.ids: dict[UUID, int] = {}
        # None is looked up like any other text or time, and is 0.
        self.texts: dict[str | None, int] = {None: 0}
        self.times: dict[datetime | None, int] = {None: 0}
        self.docs: list[str] = []
        self.blobs: list[bytes] = []
        self.partitions: list[int] = []
        self.created: list[int] = []
        self.updated: list[int] = []
        self.origins: list[int] = []
        self.events: list[int] = []
        self.tasks: list[int] = []
        self.leases: list[int] = []
        self.lease_seconds: list[float] = []
        self.leases_ended: list[int] = []
        self.renewals: list[int] = []
        self.timers: list[int] = []
        self.timers_gone: list[int] = []
        self.commands: list[int] = []
        self.repeats: list[int] = []
        self.snapshots: list[int] = []
        self.rare: list[int] = []
        self.parking: list[int] = []

    def arguments(self) -> tuple[Any, ...]:
        texts, times = list(self.texts), list(self.times)
        return (
            self.service,
            list(self.ids),
            texts[1:],
            times[1:],
            self.docs,
            self.blobs,
            self.partitions,
            self.created,
            self.updated,
            self.origins,
            self.events,
            self.tasks,
            self.leases,
            self.lease_seconds,
            self.leases_ended,
            self.renewals,
            self.timers,
            self.timers_gone,
            self.commands,
            self.repeats,
            self.snapshots,
            self.rare,
            self.parking,
        )

    def id(self, value: UUID) -> int:
        return self.ids.setdefault(value, len(self.ids) + 1)

    def text(self, value: str | None) -> int:
        return self.texts.setdefault(value, len(self.texts))

    def time(self, value: datetime | None) -> int:
        return self.times.setdefault(value, len(self.times))

    def doc(self, value: str | None) -> int:
        if value is None:
            return 0
        self.docs.append(value)
        return len(self.docs)

    def blob(self, value: bytes | None) -> int:
        if value is None:
            return 0
        self.blobs.append(value)
        return len(self.blobs)


def pack(commit: Commit) -> tuple[Any, ...]:
    batch = Pack(commit.service)
    _partitions(batch, commit.partitions)
    # Rows are locked in id order by everybody, so that two batches can never wait for each other.
    for changes in sorted(commit.changes, key=_instance_order):
        place = batch.id(changes.row.instance_id)
        _instance(batch, place, changes, commit.homes)
        _events(batch, place, changes.events)
        if changes.tasks:
            _tasks(batch, place, changes.tasks.values())
        if changes.leases:
            _leases(batch, place, changes.leases)
        if changes.timers:
            _timers(batch, place, changes)
    _renewals(batch, commit)
    if commit.commands:
        _commands(batch, commit.commands)
    for snapshot in commit.snapshots:
        batch.snapshots += (
            batch.id(snapshot.instance_id),
            snapshot.sequence,
            snapshot.shape,
            batch.blob(snapshot.body),
        )
    if commit.rejections or commit.parked or commit.unparked or commit.parked_tries:
        _parking(batch, commit)
    return batch.arguments()


def error_json(error: Error | None) -> str | None:
    if error is None:
        return None
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details is not None:
        body["details"] = orjson.Fragment(error.details)
    return orjson.dumps(body).decode()


def _instance_order(changes: Changes) -> int:
    return changes.row.instance_id.int


def _partitions(batch: Pack, partitions: list[PartitionAdvance]) -> None:
    for advance in sorted(partitions, key=lambda advance: advance.partition):
        batch.partitions += (
            advance.partition,
            advance.epoch,
            advance.commands_from,
            advance.commands_next,
            advance.reports_from,
            advance.reports_next,
            advance.ticks_from,
            advance.ticks_next,
            advance.outbox_number or 0,
            batch.blob(advance.outbox_body),
            -1 if advance.publisher_epoch is None else advance.publisher_epoch,
            -1 if advance.outbox_done is None else advance.outbox_done,
        )


def _instance(batch: Pack, place: int, changes: Changes, homes: dict[Any, int]) -> None:
    row = changes.row
    text, time = batch.text, batch.time
    if changes.expected_sequence == 0:
        namespace, workflow, run_id = split_key(row.key)
        batch.created += (
            place,
            homes[row.instance_id],
            text(namespace),
            text(workflow),
            text(run_id),
            row.version,
            text(row.state._value_),
            row.execution,
            row.sequence,
            row.fence,
            text(row.awaiting),
            batch.doc(error_json(row.error)),
            time(row.created_at),
            time(row.updated_at),
            time(row.finished_at),
        )
        return
    batch.updated += (
        place,
        changes.expected_sequence,
        row.version,
        text(row.state._value_),
        row.execution,
        row.sequence,
        row.fence,
        text(row.awaiting),
        batch.doc(error_json(row.error)),
        time(row.updated_at),
        # A change of a finished instance that does not name the end (a rejected report) keeps the one on record.
        -1 if row.finished_at is None and row.state in FINISHED else time(row.finished_at),
    )


def _events(batch: Pack, place: int, events: list[Recorded]) -> None:
    text, time, docs, rows = batch.text, batch.time, batch.docs, batch.events
    last: Origin | None = None
    origin_place = 0
    for sequence, execution, event, occurred_at, origin in events:
        if origin is not last:
            # The events of one input share its origin.
            last = origin
            origin_place = len(batch.origins) + 1
            batch.origins += (
                text(origin.cause),
                text(origin.actor_type._value_),
                text(origin.actor_id),
                text(origin.trace_id),
                text(origin.span_id),
            )
        name, version = EVENT_TYPES[event.__class__]
        docs.append(encode_event(event).decode())
        rows += (place, sequence, execution, text(name), version, len(docs), time(occurred_at), origin_place)


def _tasks(batch: Pack, place: int, tasks: Iterable[TaskRow]) -> None:
    text, time, rows = batch.text, batch.time, batch.tasks
    for task in tasks:
        rows += (
            place,
            task.execution,
            text(task.path),
            task.attempt,
            text(task.status._value_),
            task.fence,
            text(task.queue),
            text(task.activity),
            text(task.holder),
            time(task.queued_at),
            time(task.started_at),
            time(task.ended_at),
            0 if task.error is None else batch.doc(error_json(task.error)),
        )


def _leases(batch: Pack, place: int, leases: dict[TaskPath, LeaseRow | None]) -> None:
    text, time = batch.text, batch.time
    for path, lease in leases.items():
        if lease is None:
            batch.leases_ended += (place, text(path))
            continue
        batch.leases += (
            place,
            text(path),
            lease.execution,
            lease.attempt,
            lease.fence,
            text(lease.holder),
            text(lease.address),
            time(lease.since),
            time(lease.expires_at),
            time(lease.timeout_at),
        )
        batch.lease_seconds.append(lease.lease_s)


def _timers(batch: Pack, place: int, changes: Changes) -> None:
    for key, timer in changes.timers.items():
        if timer is None:
            batch.timers_gone += (place, batch.text(key))
        else:
            batch.timers += (place, batch.text(key), timer.token, batch.time(timer.due_at))


def _renewals(batch: Pack, commit: Commit) -> None:
    for renewal in sorted(commit.renewals, key=lambda renewal: renewal.instance_id.int):
        batch.renewals += (
            batch.id(renewal.instance_id),
            batch.text(renewal.path),
            renewal.fence,
            renewal.renewals,
            batch.time(renewal.expires_at),
            batch.doc(None if renewal.details is None else renewal.details.decode()),
        )


def is_repeat(row: CommandRow) -> bool:
    """Counted with what is on record, if anything is, instead of clashing with it."""
    return row.outcome == "duplicate" or row.reason == "id_reused"


def _commands(batch: Pack, commands: list[CommandRow]) -> None:
    repeats: dict[CommandKey, tuple[CommandRow, int]] = {}
    for row in commands:
        if is_repeat(row):
            first, count = repeats.get(row.key, (row, 0))
            repeats[row.key] = (first, count + 1)
        else:
            batch.commands += _command(batch, row)
    for row, count in repeats.values():
        batch.repeats += (*_command(batch, row), count)


def _command(batch: Pack, row: CommandRow) -> tuple[int, ...]:
    text = batch.text
    return (
        batch.id(row.key.instance_id),
        text(row.key.source),
        text(row.key.id),
        text(row.instance),
        text(row.type),
        batch.blob(row.digest),
        text(row.outcome),
        text(row.reason),
        batch.time(row.received_at),
    )


def _parking(batch: Pack, commit: Commit) -> None:
    """Reports that are only counted, and everything about instances whose inputs are parked."""
    text, time, out = batch.text, batch.time, batch.parking
    counts: dict[tuple[UUID, str, int], int] = {}
    for rejection in commit.rejections:
        key = (rejection.instance_id, rejection.path, rejection.fence)
        counts[key] = counts.get(key, 0) + rejection.count
    for (instance, path, fence), count in counts.items():
        out += (batch.id(instance), text(path), fence, count)
    ends = [len(out)]
    places: dict[UUID, int] = {}
    for parked in commit.parked:
        places[parked.instance_id] = places.get(parked.instance_id, 0) + 1
        out += _parked(batch, parked, places[parked.instance_id])
    ends.append(len(out))
    for instance, number in commit.unparked:
        out += (batch.id(instance), number)
    ends.append(len(out))
    for tried in commit.parked_tries:
        out += (
            batch.id(tried.instance_id),
            tried.tries,
            time(tried.next_try_at),
            text(printable(tried.error)),
            int(tried.quarantine),
        )
    ends.append(len(out))
    batch.rare = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _parked(batch: Pack, parked: ParkedInput, place: int) -> tuple[int, ...]:
    return (
        batch.id(parked.instance_id),
        parked.partition,
        batch.text(parked.instance),
        batch.text(parked.topic),
        parked.offset,
        batch.blob(parked.key),
        batch.blob(parked.value),
        batch.blob(_headers.encode(parked.headers)),
        batch.text(printable(parked.error)),
        batch.time(parked.parked_at),
        place,
    )


def printable(text: str) -> str:
    """Parking must never fail on its own data: an error's text may quote the very bytes that Postgres refused."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
