"""What must always hold (section 14 of the architecture), by name, from the database and the topics.

Each check returns what it has seen, because one that saw nothing has shown nothing: `check` demands that every count
named in it is above zero. Nothing here asks the kernel whether it is content with itself; the rules are worked out
again from events, rows and records.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from holdfast.contracts.cloudevents_out import event_type
from holdfast.contracts.topics import COMMANDS, REPORTS
from holdfast.core import events as e
from holdfast.core import inputs as i
from holdfast.core.events import EVENT_TYPES
from holdfast.core.ids import instance_id
from holdfast.core.transitions import FINISHED, TASK_MOVES, WORKFLOW_MOVES
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.support.world import World

Seen = dict[str, int]

WORKFLOW_STATES: dict[type[Any], W] = {
    e.WorkflowCreated: W.CREATED,
    e.WorkflowStarted: W.RUNNING,
    e.WorkflowCompleting: W.COMPLETING,
    e.WorkflowCompleted: W.COMPLETED,
    e.WorkflowFailing: W.FAILING,
    e.WorkflowFailed: W.FAILED,
    e.WorkflowCancelled: W.CANCELLED,
    e.CompensationTriggered: W.COMPENSATING,
    e.CompensationResumed: W.COMPENSATING,
    e.CompensationCompleted: W.COMPENSATED,
    e.CompensationFailed: W.COMPENSATION_FAILED,
}
TASK_STATES: dict[type[Any], T] = {
    e.TaskScheduled: T.QUEUED,
    e.TaskStarted: T.RUNNING,
    e.TaskCompleted: T.COMPLETED,
    e.TaskFailed: T.FAILED,
    e.TaskTimedOut: T.TIMED_OUT,
    e.TaskCancelled: T.CANCELLED,
    e.TaskSkipped: T.SKIPPED,
    e.TaskHandedBack: T.QUEUED,
}
ENDS = (e.TaskCompleted, e.TaskFailed, e.TaskTimedOut, e.TaskCancelled)
VOIDS = (*ENDS, e.TaskHandedBack, e.TaskDispatchLost)
CONCLUSIVE = (i.TaskReportedCompleted, i.TaskReportedFailed, i.TaskHandBack, i.TaskReportedCancelled)


def no_lost_work(world: World) -> Seen:
    accepted = [row for row in world.commands if row["type"].endswith("start.v1") and row["outcome"] == "accepted"]
    for row in accepted:
        state = world.instances[row["instance"]].state
        assert state in FINISHED, f"{row['instance']} was accepted and is {state}"
    assert {row["instance"] for row in accepted} == set(world.instances), "every instance comes from an accepted start"
    return {"accepted starts": len(accepted)}


def one_outcome(world: World) -> Seen:
    """At most one end per attempt and per fence; what a worker said was applied only under the fence of the moment."""
    outcomes = 0
    for key in world.instances:
        current: dict[str, int] = {}
        ended: Counter[tuple[str, int]] = Counter()
        last = 0
        for event in world.events(key):
            if isinstance(event, e.TaskScheduled):
                assert event.fence > last, f"{key}: fence {event.fence} after {last}"
                last = current[event.path] = event.fence
            elif isinstance(event, (e.TaskStarted, *VOIDS)) and event.fence:
                assert current.get(event.path) == event.fence, f"{key}: {event} applied with a void fence"
                if isinstance(event, VOIDS):
                    del current[event.path]
            if isinstance(event, ENDS):
                ended[event.path, event.attempt] += 1
                outcomes += 1
        twice = {attempt: count for attempt, count in ended.items() if count > 1}
        assert not twice, f"{key}: more than one outcome of {twice}"
    return {"outcomes": outcomes}


def gapless_history(world: World) -> Seen:
    for key, view in world.instances.items():
        numbers = [row.recorded.sequence for row in world.rows[key]]
        assert numbers == list(range(1, view.sequence + 1)), f"{key}: {numbers} with sequence {view.sequence}"
    assert world.differences == [], "\n".join(map(str, world.differences))
    assert world.verified == len(world.instances)
    return {"replayed instances": world.verified}


def legal_moves(world: World) -> Seen:
    moves = 0
    for key in world.instances:
        state: W | None = None
        tasks: defaultdict[str, T] = defaultdict(lambda: T.PENDING)
        for event in world.events(key):
            if (target := WORKFLOW_STATES.get(type(event))) is not None:
                legal = target is W.CREATED if state is None else target in WORKFLOW_MOVES[state]
                assert legal, f"{key}: {state} -> {target}"
                state, moves = target, moves + 1
            if (status := TASK_STATES.get(type(event))) is not None:
                before = tasks[event.path]
                assert status in TASK_MOVES[before] or status is before, f"{key}: {event.path} {before} -> {status}"
                tasks[event.path] = status
        assert state == world.instances[key].state, f"{key}: events say {state}"
    return {"moves": moves}


def saga(world: World) -> Seen:
    """In COMPENSATED: what completed or may have, and has a compensation, was undone once, newest first."""
    compensated = 0
    for key, view in world.instances.items():
        events, tasks = world.events(key), world.definitions[key].tasks
        undone = [one.path for one in events if isinstance(one, e.TaskCompleted) and tasks[one.path].compensation]
        if view.state is W.COMPENSATED:
            expected = [tasks[path].compensate for path in to_undo(world, key)]
            assert undone == expected, f"{key}: undone {undone}, should be {expected}"
            compensated += 1
        elif view.state in (W.COMPLETED, W.FAILED):
            assert not undone, f"{key} is {view.state} and has undone {undone}"
    return {"compensated": compensated}


def to_undo(world: World, key: str) -> list[str]:
    ended: dict[str, int] = {}
    undo: set[str] = set()
    held: set[int] = set()
    for number, event in enumerate(world.events(key)):
        if isinstance(event, e.CompensationTriggered):
            break
        if isinstance(event, e.TaskStarted) and event.holder is not None:
            held.add(event.fence)
        if isinstance(event, (*ENDS, e.TaskHandedBack)):
            task = world.definitions[key].tasks[event.path]
            ended[event.path] = number
            handed_back = isinstance(event, e.TaskHandedBack)
            unknown = getattr(event, "outcome", None) is e.Outcome.UNKNOWN or (
                handed_back and event.reason is i.HandBackReason.DRAINING and event.fence in held
            )
            done = isinstance(event, e.TaskCompleted)
            if task.compensate and (done or (unknown and task.compensate_unknown)):
                undo.add(event.path)
    return sorted(undo, key=lambda path: ended[path], reverse=True)


def nothing_out_of_nothing(world: World) -> Seen:
    """Every message exists in the store; one that comes twice is the same, and there was a crash to explain it."""
    stored = {f"{instance_id(key)}/{row.recorded.sequence}": row for key in world.rows for row in world.rows[key]}
    first: dict[Any, bytes | None] = {}
    repeated = 0

    def once(identity: Any, value: bytes | None) -> None:
        nonlocal repeated
        if identity in first:
            assert first[identity] == value, f"{identity} came twice with different content"
            repeated += 1
        first.setdefault(identity, value)

    for record in world.published:
        identity = record.header("ce_id") or ""
        once(identity, record.value)
        if record.header("ce_sequence") is not None:
            row = stored[identity]
            named = EVENT_TYPES[type(row.recorded.event)]
            assert record.header("ce_type") == event_type(*named)
            assert record.value == row.payload.encode(), f"{identity}: the store has other content"
            assert record.key == row.key.encode()
    scheduled = {
        (key, event.path, event.fence): event
        for key in world.rows
        for event in world.events(key)
        if isinstance(event, e.TaskScheduled)
    }
    for record, dispatch in world.dispatches:
        event = scheduled[dispatch.instance, dispatch.path, dispatch.fence]
        assert (event.attempt, event.activity) == (dispatch.attempt, dispatch.activity)
        once(("task", dispatch.instance, dispatch.fence), record.value)
    for _, told in world.cancellations:
        assert (told.instance, told.path, told.fence) in scheduled, f"{told} of a dispatch that never was"
    if not world.faults:
        assert not repeated, f"{repeated} messages came twice, and nothing explains it"
    return {"events published": len(world.published), "dispatches": len(world.dispatches)}


def published_in_order(world: World) -> Seen:
    """First occurrences of an instance's events are 1, 2, 3, ... on one partition, up to the last one there is."""
    seen: dict[str, list[int]] = defaultdict(list)
    partitions: dict[str, set[int]] = defaultdict(set)
    known: set[str] = set()
    for record in world.published:
        identity, sequence = record.header("ce_id") or "", record.header("ce_sequence")
        key = (record.key or b"").decode()
        partitions[key].add(record.partition)
        if sequence is not None and identity not in known:
            known.add(identity)
            seen[key].append(int(sequence))
    for key, view in world.instances.items():
        assert seen[key] == list(range(1, view.sequence + 1)), f"{key}: published {seen[key]} of {view.sequence}"
        assert len(partitions[key]) == 1
    return {"sequences": sum(map(len, seen.values()))}


def no_early_expiry(world: World) -> Seen:
    """While each word of a holder came within a lease of the one before, its lease stays for a lease after the last."""
    words: dict[tuple[str, int, str], list[Any]] = defaultdict(list)
    for record, report in world.reports:
        if isinstance(report, i.TaskReportedStarted | i.TaskHeartbeat):
            words[report.instance, report.fence, report.holder].append(record.at)
    expired = 0
    for key, rows in world.rows.items():
        for row in rows:
            event = row.recorded.event
            if not isinstance(event, e.LeaseLapsed) or event.kind is not i.LapseKind.LEASE:
                continue
            expired += 1
            lease = timedelta(seconds=world.definitions[key].tasks[event.path].lease_s)
            spoken = sorted(words[key, event.fence, event.holder or ""])
            assert spoken, f"{key}: a lease of {event.holder} expired that never began"
            last = spoken[0]
            for at in spoken[1:]:
                if at - last > lease:
                    break
                last = at
            assert row.recorded.occurred_at >= last + lease, f"{key}: {event} although it was heard at {last}"
    return {"leases expired": expired}


def timers_fire_once_never_early(world: World) -> Seen:
    fired = 0
    for key, rows in world.rows.items():
        due = {r.recorded.event.token: r.recorded.event for r in rows if isinstance(r.recorded.event, e.TimerScheduled)}
        gone: Counter[int] = Counter()
        for row in rows:
            event = row.recorded.event
            if isinstance(event, e.TimerFired | e.TimerCancelled):
                gone[event.token] += 1
            if isinstance(event, e.TimerFired):
                assert row.recorded.occurred_at >= due[event.token].due_at, f"{key}: {event} fired early"
                fired += 1
        assert gone == Counter(due.keys()), f"{key}: each timer fires or is cancelled, once"
    return {"timers fired": fired}


def nothing_after_the_end(world: World) -> Seen:
    scheduled = 0
    for key in world.instances:
        state: W | None = None
        for event in world.events(key):
            state = WORKFLOW_STATES.get(type(event), state)
            if isinstance(event, e.TaskScheduled):
                assert state not in {*FINISHED, W.FAILING}, f"{key}: {event} while {state}"
                scheduled += 1
    return {"tasks scheduled": scheduled}


def every_offset_accounted_for(world: World) -> Seen:
    """Decided up to the end; each command has an outcome, each conclusive report an event, a rejection or a place."""
    for topic, (decided, ends) in world.positions.items():
        assert decided == ends, f"{topic}: decided up to {decided}, written up to {ends}"
    on_record = {(row["instance"], row["source"], row["id"]) for row in world.commands}
    for record in world.inbox[COMMANDS]:
        if record.place not in world.dead and record.place not in world.parked:
            assert _command_identity(record) in on_record, f"{record.place} has no outcome"
    causes = {row.recorded.origin.cause for rows in world.rows.values() for row in rows}
    for record, report in world.reports:
        if isinstance(report, CONCLUSIVE) and report.instance in world.instances:
            assert (
                record.place in causes
                or record.place in world.parked
                or record.place in world.dead
                or (report.instance, report.path, report.fence) in world.rejections
            ), f"{record.place}: {type(report).__name__} of fence {report.fence} left no trace"
    return {"commands": len(world.inbox[COMMANDS]), "reports": len(world.inbox[REPORTS])}


def _command_identity(record: Any) -> tuple[str, str, str]:
    if record.header("ce_id") is not None:
        return record.header("ce_subject"), record.header("ce_source"), record.header("ce_id")
    body = json.loads(record.value)
    return body["subject"], body["source"], body["id"]


def nothing_left(world: World) -> Seen:
    assert not any(world.left.values()), world.left
    return {"tables": len(world.left)}


ALWAYS: tuple[Callable[[World], Seen], ...] = (
    no_lost_work,
    one_outcome,
    gapless_history,
    legal_moves,
    nothing_out_of_nothing,
    published_in_order,
    nothing_after_the_end,
    every_offset_accounted_for,
    nothing_left,
)
EVERY = (*ALWAYS, saga, no_early_expiry, timers_fire_once_never_early)


def check(world: World, checks: Iterable[Callable[[World], Seen]] = ALWAYS) -> dict[str, Seen]:
    """Run the checks; each must have seen something."""
    evidence = {one.__name__: one(world) for one in checks}
    for name, seen in evidence.items():
        for what, count in seen.items():
            assert count > 0, f"{name} shows nothing: it saw no {what}"
    return evidence
