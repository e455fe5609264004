"""Inputs to changes: `decide`, `evolve`, `project`, for every input of a batch, each instance on its own.

An instance that cannot be decided takes nothing else down: everything it did in this batch is thrown away and its
inputs are parked, in order, in the same commit that advances the offsets.
"""

from datetime import datetime

from holdfast.contracts.cloudevents_in import CommandHeader
from holdfast.contracts.snapshot_codec import decode_state, encode_state
from holdfast.core import inputs as i
from holdfast.core.decide import decide
from holdfast.core.definition import Definition
from holdfast.core.errors import Corrupt
from holdfast.core.evolve import fold
from holdfast.core.outcomes import CommandOutcome, NotAccepted
from holdfast.core.project import changes_for, project, record
from holdfast.core.reports import renew, why_rejected
from holdfast.core.state import STATE_SHAPE, State
from holdfast.store.rows import CommandKey, CommandRow, LoadedInstance, Rejection, SnapshotRow
from holdfast_coordinator.batch import Batch, Work
from holdfast_coordinator.cache import Entry
from holdfast_coordinator.intake import Inbound
from holdfast_coordinator.outgoing import outcome_message


def rebuild(loaded: LoadedInstance, definition: Definition) -> Entry:
    """The last snapshot plus the events after it; the lease renewals come from their rows."""
    state = State.empty(loaded.key, definition, loaded.instance_id)
    size = 0
    if loaded.snapshot is not None:
        state = decode_state(loaded.snapshot, definition)
        size = len(loaded.snapshot)
    fold(state, (recorded.event for recorded in loaded.events))
    if state.sequence != loaded.sequence:
        raise Corrupt(f"{loaded.key}: {state.sequence} events where the instance says {loaded.sequence}")
    for path, (fence, renewals, expires_at) in loaded.renewals.items():
        task = state.tasks.get(path)
        if task is not None and task.fence == fence:
            task.renewals, task.expires_at = renewals, expires_at
    return Entry(state, loaded.snapshot_sequence, size)


def decide_input(work: Work, inbound: Inbound, batch: Batch, known: CommandRow | None) -> None:
    if inbound.header is not None:
        _decide_command(work, inbound, inbound.header, batch, known)
    else:
        assert inbound.input is not None
        _apply(work, inbound.input, batch.now)


def _decide_command(
    work: Work, inbound: Inbound, header: CommandHeader, batch: Batch, known: CommandRow | None
) -> None:
    outcome, reason, detail = _outcome_of(work, inbound, header, batch, known)
    key = CommandKey(inbound.instance_id, header.source, header.id)
    said = f"{reason}: {detail}" if detail else reason
    row = CommandRow(key, inbound.instance, header.type, header.digest, outcome, said, batch.now)
    work.commands.append(row)
    work.outcomes.append(outcome_message(row, reason, detail, inbound.delivery, header.traceparent))
    batch.commands.setdefault(key, row)


def _outcome_of(
    work: Work, inbound: Inbound, header: CommandHeader, batch: Batch, known: CommandRow | None
) -> tuple[str, str, str]:
    """(outcome, reason, detail)."""
    if known is not None:
        if known.digest == header.digest:
            return CommandOutcome.DUPLICATE, "same_id", f"on record as {known.outcome}"
        return CommandOutcome.REFUSED, "id_reused", ""
    if inbound.refused is not None:
        return CommandOutcome.REFUSED, inbound.refused.reason, inbound.refused.detail
    assert inbound.input is not None
    try:
        _apply(work, inbound.input, batch.now)
    except NotAccepted as answer:
        return answer.outcome, answer.reason, answer.detail
    return CommandOutcome.ACCEPTED, "", ""


def _apply(work: Work, message: i.Input, now: datetime) -> None:
    entry = work.entry
    state = None if entry is None else entry.state
    events = decide(state, message, now)
    if state is None:
        return
    if events:
        if work.changes is None:
            work.changes = changes_for(state, now)
        recorded = record(state, events, now, message.origin)
        fold(state, events)
        project(state, recorded, work.changes)
        return
    if type(message) is i.TaskHeartbeat:
        renewal = renew(state, message, now)
        if renewal is not None:
            work.renewals[message.path] = renewal
    elif isinstance(message, i.Report) and state.state is not None and why_rejected(state, message) is not None:
        # The first of this (task, fence) is an event; the rest are counted.
        work.rejections.append(Rejection(state.id, message.path, message.fence, 1))


def snapshot_of(entry: Entry) -> SnapshotRow:
    body = encode_state(entry.state)
    entry.snapshot_sequence = entry.state.sequence
    entry.snapshot_bytes = len(body)
    return SnapshotRow(entry.state.id, entry.state.sequence, STATE_SHAPE, body)
