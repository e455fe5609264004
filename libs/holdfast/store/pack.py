"""A commit as the arrays that `holdfast.commit_batch` takes (migrations/0002_commit.sql describes each).

This runs for every input, so it is written for speed: each distinct id, text and time is put into a table once and
rows are numbers that point there, packed by one call each. Pointers start at 1; 0 is NULL. `_value_` instead of an enum
member: hashing a member runs Python code, hashing its text does not.
"""

import re
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import orjson

from holdfast.contracts.event_codec import encode_event
from holdfast.core.changes import Changes, LeaseRow, TaskRow
from holdfast.core.events import EVENT_TYPES, Event
from holdfast.core.ids import InstanceId, TaskPath, split_key
from holdfast.core.inputs import Error, Origin
from holdfast.core.transitions import FINISHED
from holdfast.store.errors import Unstorable
from holdfast.store.pack_rare import pack_commands, pack_parking
from holdfast.store.pack_tables import Pack, row_packer
from holdfast.store.rows import Commit, PartitionAdvance

_PARTITIONS_ROW = row_packer(12)
_CREATED_ROW = row_packer(15)
_UPDATED_ROW = row_packer(11)
_ORIGINS_ROW = row_packer(5)
_EVENTS_ROW = row_packer(8)
_TASKS_ROW = row_packer(13)
_LEASES_ROW = row_packer(10)
_LEASES_ENDED_ROW = row_packer(2)
_RENEWALS_ROW = row_packer(6)
_TIMERS_ROW = row_packer(4)
_TIMERS_GONE_ROW = row_packer(2)


def home_of(commit: Commit, instance: InstanceId) -> int:
    try:
        return commit.homes[instance]
    except KeyError:
        raise LookupError(f"commit.homes does not name the partition of the new instance {instance}") from None


def pack(commit: Commit) -> tuple[str | bytes, ...]:
    batch = Pack(commit.service)
    _partitions(batch, commit.partitions)
    # Rows are locked in id order by everybody, so that two batches can never wait for each other.
    for changes in sorted(commit.changes, key=attrgetter("row.instance_id.int")):
        place = batch.ids[changes.row.instance_id]
        _instance(batch, place, changes, commit)
        _events(batch, place, changes)
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
            batch.ids[snapshot.instance_id],
            snapshot.sequence,
            snapshot.shape,
            batch.blob(snapshot.body),
        )
    if commit.rejections or commit.parked or commit.unparked or commit.parked_tries:
        pack_parking(batch, commit)
    return batch.arguments()


def error_json(error: Error) -> bytes:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details is not None:
        body["details"] = orjson.Fragment(error.details)
    return orjson.dumps(body)


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


def _partitions(batch: Pack, partitions: list[PartitionAdvance]) -> None:
    for advance in sorted(partitions, key=lambda advance: advance.partition):
        batch.partitions.append(
            _PARTITIONS_ROW(
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
        )


def _instance(batch: Pack, place: int, changes: Changes, commit: Commit) -> None:
    row = changes.row
    text, time = batch.texts, batch.times
    if changes.expected_sequence == 0:
        namespace, workflow, run_id = split_key(row.key)
        batch.created.append(
            _CREATED_ROW(
                place,
                home_of(commit, row.instance_id),
                text[namespace],
                text[workflow],
                text[run_id],
                row.version,
                text[row.state._value_],
                row.execution,
                row.sequence,
                row.fence,
                text[row.awaiting],
                0 if row.error is None else batch.doc(error_json(row.error)),
                time[row.created_at],
                time[row.updated_at],
                time[row.finished_at],
            )
        )
        return
    batch.updated.append(
        _UPDATED_ROW(
            place,
            changes.expected_sequence,
            row.version,
            text[row.state._value_],
            row.execution,
            row.sequence,
            row.fence,
            text[row.awaiting],
            0 if row.error is None else batch.doc(error_json(row.error)),
            time[row.updated_at],
            # A change of a finished instance that does not name the end (a rejected report) keeps the one on record.
            -1 if row.finished_at is None and row.state in FINISHED else time[row.finished_at],
        )
    )


def payloads_of(changes: Changes) -> list[bytes]:
    """The events as JSON, made once: the store keeps the very bytes that are published."""
    if len(changes.payloads) != len(changes.events):
        instance = changes.row.instance_id
        changes.payloads = [storable_event(recorded.event, instance) for recorded in changes.events]
    return changes.payloads


def _events(batch: Pack, place: int, changes: Changes) -> None:
    text, time, docs, rows = batch.texts, batch.times, batch.docs, batch.events
    last: Origin | None = None
    origin_place = 0
    for (sequence, execution, event, occurred_at, origin), payload in zip(
        changes.events, payloads_of(changes), strict=True
    ):
        if origin is not last:
            # The events of one input share its origin.
            last = origin
            origin_place = batch.origins_count * 5 + 1
            batch.origins_count += 1
            batch.origins.append(
                _ORIGINS_ROW(
                    text[origin.cause],
                    text[origin.actor_type._value_],
                    text[origin.actor_id],
                    text[origin.trace_id],
                    text[origin.span_id],
                )
            )
        name, version = EVENT_TYPES[event.__class__]
        docs.append(payload)
        rows.append(
            _EVENTS_ROW(
                place,
                sequence,
                execution,
                text[name],
                version,
                len(docs),
                time[occurred_at],
                origin_place,
            )
        )


def _tasks(batch: Pack, place: int, tasks: Iterable[TaskRow]) -> None:
    text, time, rows = batch.texts, batch.times, batch.tasks
    for task in tasks:
        rows.append(
            _TASKS_ROW(
                place,
                task.execution,
                text[task.path],
                task.attempt,
                text[task.status._value_],
                task.fence,
                text[task.queue],
                text[task.activity],
                text[task.holder],
                time[task.queued_at],
                time[task.started_at],
                time[task.ended_at],
                0 if task.error is None else batch.doc(error_json(task.error)),
            )
        )


def _leases(batch: Pack, place: int, leases: dict[TaskPath, LeaseRow | None]) -> None:
    text, time = batch.texts, batch.times
    for path, lease in leases.items():
        if lease is None:
            batch.leases_ended.append(_LEASES_ENDED_ROW(place, text[path]))
            continue
        batch.leases.append(
            _LEASES_ROW(
                place,
                text[path],
                lease.execution,
                lease.attempt,
                lease.fence,
                text[lease.holder],
                text[lease.address],
                time[lease.since],
                time[lease.expires_at],
                time[lease.timeout_at],
            )
        )
        batch.lease_seconds.append(lease.lease_s)


def _timers(batch: Pack, place: int, changes: Changes) -> None:
    for key, timer in changes.timers.items():
        if timer is None:
            batch.timers_gone.append(_TIMERS_GONE_ROW(place, batch.texts[key]))
        else:
            batch.timers.append(_TIMERS_ROW(place, batch.texts[key], timer.token, batch.times[timer.due_at]))


def _renewals(batch: Pack, commit: Commit) -> None:
    for renewal in sorted(commit.renewals, key=lambda renewal: renewal.instance_id.int):
        batch.renewals.append(
            _RENEWALS_ROW(
                batch.ids[renewal.instance_id],
                batch.texts[renewal.path],
                renewal.fence,
                renewal.renewals,
                batch.times[renewal.expires_at],
                batch.doc(renewal.details),
            )
        )
