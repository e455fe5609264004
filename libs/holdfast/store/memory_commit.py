"""A commit on the in-memory tables: everything that can fail is checked before anything changes."""

from dataclasses import replace

import orjson

from holdfast.core.changes import Changes, LeaseRenewal, TaskRow
from holdfast.core.errors import Fenced
from holdfast.core.ids import InstanceId
from holdfast.core.transitions import FINISHED
from holdfast.store.errors import Conflict, Unstorable
from holdfast.store.memory_tables import Instance, Lease, Parked, Tables, Timer
from holdfast.store.pack import home_of, storable_event
from holdfast.store.pack_rare import is_repeat
from holdfast.store.rows import Commit, Committed, ParkedTry, PartitionAdvance


def commit(tables: Tables, batch: Commit) -> Committed:
    check(tables, batch)
    return apply(tables, batch)


# --- what can fail


def check(tables: Tables, batch: Commit) -> None:
    for changes in batch.changes:
        _check_storable(changes)
    for advance in batch.partitions:
        _check_fence(tables, advance)
    _check_instances(tables, batch)
    _check_commands(tables, batch)


def _check_storable(changes: Changes) -> None:
    instance = changes.row.instance_id
    for recorded in changes.events:
        try:
            orjson.loads(storable_event(recorded.event, instance))
        except orjson.JSONDecodeError as error:
            raise Unstorable(f"not JSON: {error}", frozenset([instance])) from error
        if "\x00" in recorded.origin.actor_id or "\x00" in recorded.origin.cause:
            raise Unstorable("a NUL cannot be stored", frozenset([instance]))


def _check_fence(tables: Tables, advance: PartitionAdvance) -> None:
    row = tables.inbox.get(advance.partition)
    if (
        row is None
        or row.epoch != advance.epoch
        or row.commands_next != advance.commands_from
        or row.reports_next != advance.reports_from
        or row.ticks_next != advance.ticks_from
        or (advance.outbox_number is not None and advance.outbox_number != row.outbox_last + 1)
    ):
        raise Fenced("a partition is not ours any more, or was not read from where its row says")


def _check_instances(tables: Tables, batch: Commit) -> None:
    stale = set()
    for changes in batch.changes:
        found = tables.instances.get(changes.row.instance_id)
        current = 0 if found is None else found.row.sequence
        if current != changes.expected_sequence:
            stale.add(changes.row.instance_id)
        elif found is None:
            home_of(batch, changes.row.instance_id)
    if stale:
        raise Conflict("an instance moved on without us, or exists already", frozenset(stale))


def _check_commands(tables: Tables, batch: Commit) -> None:
    known = {row.key.instance_id for row in batch.commands if not is_repeat(row) and row.key in tables.commands}
    if known:
        raise Conflict("a command is on record already", frozenset(known))


# --- what changes


def apply(tables: Tables, batch: Commit) -> Committed:
    for changes in batch.changes:
        _apply_changes(tables, batch, changes)
    for renewal in batch.renewals:
        _renew(tables, renewal)
    for row in batch.commands:
        first, repeats = tables.commands.get(row.key, (row, -1))
        tables.commands[row.key] = (first, repeats + 1)
    for snapshot in batch.snapshots:
        older = tables.snapshots.get(snapshot.instance_id)
        if older is None or older.sequence < snapshot.sequence:
            tables.snapshots[snapshot.instance_id] = snapshot
    for rejection in batch.rejections:
        key = (rejection.instance_id, rejection.path, rejection.fence)
        tables.rejections[key] = tables.rejections.get(key, 0) + rejection.count
    _apply_parking(tables, batch)
    lost = frozenset(advance.partition for advance in batch.partitions if not _advance(tables, advance))
    unhosted = any(advance.outbox_number and advance.publisher_epoch is None for advance in batch.partitions)
    return Committed(tables.now(), (unhosted or bool(lost)) and tables.relays_waiting > 0, lost)


def _advance(tables: Tables, advance: PartitionAdvance) -> bool:
    """False: the publisher's lease is no longer ours."""
    row, out = tables.inbox[advance.partition], tables.outgoing[advance.partition]
    row.commands_next, row.reports_next = advance.commands_next, advance.reports_next
    row.ticks_next = advance.ticks_next
    if advance.outbox_number is not None:
        row.outbox_last = advance.outbox_number
        out.rows[advance.outbox_number] = advance.outbox_body or b""
    if advance.publisher_epoch is None:
        return True
    if advance.publisher_epoch != out.epoch:
        return False
    move_done(tables, advance.partition, advance.outbox_done or 0)
    tables.extend_lease(advance.partition)
    return True


def move_done(tables: Tables, partition: int, done: int) -> None:
    out = tables.outgoing[partition]
    out.done = max(out.done, done)
    for number in [number for number in out.rows if number <= out.done]:
        del out.rows[number]


def _apply_changes(tables: Tables, batch: Commit, changes: Changes) -> None:
    instance = changes.row.instance_id
    found = tables.instances.get(instance)
    if found is None:
        found = tables.instances[instance] = Instance(replace(changes.row), home_of(batch, instance), batch.service)
    else:
        keep = changes.row.finished_at is None and changes.row.state in FINISHED
        finished_at = found.row.finished_at if keep else changes.row.finished_at
        found.row = replace(changes.row, created_at=found.row.created_at, finished_at=finished_at)
        found.last_service = batch.service
    tables.events.setdefault(instance, []).extend(changes.events)
    tasks = tables.tasks.setdefault(instance, {})
    for key, task in changes.tasks.items():
        tasks[key] = _merged(tasks.get(key), task)
    leases = tables.leases.setdefault(instance, {})
    for path, lease in changes.leases.items():
        if lease is None:
            leases.pop(path, None)
        elif path not in leases or leases[path].row.fence <= lease.fence:
            leases[path] = Lease(replace(lease), found.partition)
    timers = tables.timers.setdefault(instance, {})
    for name, timer in changes.timers.items():
        if timer is None:
            timers.pop(name, None)
        else:
            timers[name] = Timer(replace(timer), found.partition)


def _merged(old: TaskRow | None, new: TaskRow) -> TaskRow:
    if old is None:
        return replace(new)
    return replace(
        new,
        holder=new.holder or old.holder,
        queued_at=new.queued_at or old.queued_at,
        started_at=new.started_at or old.started_at,
        ended_at=new.ended_at or old.ended_at,
        error=new.error or old.error,
    )


def _renew(tables: Tables, renewal: LeaseRenewal) -> None:
    lease = tables.leases.get(renewal.instance_id, {}).get(renewal.path)
    if lease is not None and lease.row.fence == renewal.fence and lease.renewals < renewal.renewals:
        lease.renewals = renewal.renewals
        lease.row.expires_at = renewal.expires_at
        lease.details = lease.details if renewal.details is None else renewal.details


def _apply_parking(tables: Tables, batch: Commit) -> None:
    for parked in batch.parked:
        place = tables.parked.get(parked.instance_id)
        if place is None:
            place = tables.parked[parked.instance_id] = Parked(
                parked.partition, parked.instance, parked.parked_at, next_try_at=parked.parked_at
            )
        number = max(place.inputs, default=0) + 1
        place.inputs[number] = replace(parked, number=number)
    for instance, number in batch.unparked:
        if instance in tables.parked:
            place = tables.parked[instance]
            place.inputs.pop(number, None)
            place.tries, place.next_try_at, place.error = 0, tables.now(), ""
    for tried in batch.parked_tries:
        _tried(tables, tried)
    for instance, _ in batch.unparked:
        _let_go(tables, instance)


def _tried(tables: Tables, tried: ParkedTry) -> None:
    place = tables.parked.get(tried.instance_id)
    if place is None:
        return
    place.tries, place.next_try_at, place.error = tried.tries, tried.next_try_at, tried.error
    place.quarantined_at = (place.quarantined_at or tables.now()) if tried.quarantine else None
    tables.freeze(tried.instance_id, tried.quarantine, tried.error)


def _let_go(tables: Tables, instance: InstanceId) -> None:
    place = tables.parked.get(instance)
    if place is not None and not place.inputs:
        del tables.parked[instance]
        tables.freeze(instance, False, None)
