"""A commit as the arrays that `holdfast.commit_batch` takes (migrations/0002_commit.sql describes each).

This runs for every input, so it is written for speed: each distinct id, text and time is put into a table once and
rows are numbers that point there. Pointers start at 1; 0 is NULL. `_value_` instead of an enum member: hashing a member
runs Python code, hashing its text does not.
"""

import re
from collections.abc import Iterable
from typing import Any

import orjson

from holdfast.contracts.event_codec import encode_event
from holdfast.core.changes import Changes, LeaseRow, TaskRow
from holdfast.core.events import EVENT_TYPES, Event, Recorded
from holdfast.core.ids import InstanceId, TaskPath, split_key
from holdfast.core.inputs import Error, Origin
from holdfast.core.transitions import FINISHED
from holdfast.store.errors import Unstorable
from holdfast.store.pack_rare import pack_commands, pack_parking
from holdfast.store.pack_tables import Pack
from holdfast.store.rows import Commit, PartitionAdvance


def home_of(commit: Commit, instance: InstanceId) -> int:
    try:
        return commit.homes[instance]
    except KeyError:
        raise LookupError(f"commit.homes does not name the partition of the new instance {instance}") from None


def pack(commit: Commit) -> tuple[Any, ...]:
    batch = Pack(commit.service)
    _partitions(batch, commit.partitions)
    # Rows are locked in id order by everybody, so that two batches can never wait for each other.
    for changes in sorted(commit.changes, key=_instance_order):
        place = batch.id(changes.row.instance_id)
        _instance(batch, place, changes, commit)
        _events(batch, place, changes.row.instance_id, changes.events)
        if changes.tasks:
            _tasks(batch, place, changes.tasks.values())
        if changes.leases:
            _leases(batch, place, changes.leases)
        if changes.timers:
            _timers(batch, place, changes)
    _renewals(batch, commit)
    if commit.commands:
        pack_commands(batch, commit.commands)
    for snapshot in commit.snapshots:
        batch.snapshots += (
            batch.id(snapshot.instance_id),
            snapshot.sequence,
            snapshot.shape,
            batch.blob(snapshot.body),
        )
    if commit.rejections or commit.parked or commit.unparked or commit.parked_tries:
        pack_parking(batch, commit)
    return batch.arguments()


def error_json(error: Error | None) -> str | None:
    if error is None:
        return None
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details is not None:
        body["details"] = orjson.Fragment(error.details)
    return orjson.dumps(body).decode()


# An escaped NUL, unless the backslash is escaped itself.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def storable_event(event: Event, instance: InstanceId) -> bytes:
    """An event as JSON. `json` columns would take an escaped NUL or half a surrogate pair, and every reader that
    unpacks the text would fail on it later: refused here, where the instance is known."""
    try:
        body = encode_event(event)
        if b"\\u" in body:
            orjson.loads(body)
            if _NUL.search(body):
                raise Unstorable("a NUL cannot be stored", frozenset([instance]))
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, UnicodeError) as error:
        raise Unstorable(f"cannot be written as JSON: {error}", frozenset([instance])) from error
    return body


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


def _instance(batch: Pack, place: int, changes: Changes, commit: Commit) -> None:
    row = changes.row
    text, time = batch.text, batch.time
    if changes.expected_sequence == 0:
        namespace, workflow, run_id = split_key(row.key)
        batch.created += (
            place,
            home_of(commit, row.instance_id),
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


def _events(batch: Pack, place: int, instance: InstanceId, events: list[Recorded]) -> None:
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
        docs.append(storable_event(event, instance).decode())
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
