"""The state of an instance as bytes: a shortcut past its events, never their replacement.

The definition is not in it (it is stored once per version) and neither are lease renewals (they are in the lease row,
the one thing that events do not tell). The layout is positional, in the order of the fields below: any change to
them is a new `STATE_SHAPE`, and a snapshot of another shape is thrown away and rebuilt.
"""

from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec

from holdfast.core.definition import Definition
from holdfast.core.errors import Corrupt
from holdfast.core.ids import InstanceId, InstanceKey, Payload, TaskPath
from holdfast.core.inputs import Error
from holdfast.core.state import State, TaskState, Timer
from holdfast.core.transitions import TaskStatus, WorkflowState


class _Task(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """As TaskState, without renewals and expires_at, which heartbeats move without an event."""

    status: TaskStatus
    remaining: int
    alive: int
    attempt: int
    attempts_before: int
    fence: int
    retrying: bool
    unknown: bool
    stopping: bool
    ended_at: int
    input: bytes | None
    output: bytes | None
    error: tuple[str, str, bytes | None] | None
    holder: str | None
    handed_back_since: datetime | None
    handed_back: int
    rejected: tuple[int, ...]


class _State(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    key: str
    id: bytes
    state: WorkflowState | None
    execution: int
    sequence: int
    fence: int
    input: bytes
    output: bytes | None
    error: tuple[str, str, bytes | None] | None
    cause: str
    by_request: bool
    unfinished: int
    open: int
    plan: tuple[str, ...]
    undone: int
    tasks: dict[str, _Task]
    timers: dict[str, tuple[int, datetime]]


_ErrorTuple: TypeAlias = tuple[str, str, bytes | None]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_State).decode


def encode_state(state: State) -> bytes:
    tasks = {str(path): _pack_task(task) for path, task in state.tasks.items()}
    return _encode(
        _State(
            state.key,
            state.id.bytes,
            state.state,
            state.execution,
            state.sequence,
            state.fence,
            state.input,
            state.output,
            _pack_error(state.error),
            state.cause,
            state.by_request,
            state.unfinished,
            state.open,
            state.plan,
            state.undone,
            tasks,
            {key: (timer.token, timer.due_at) for key, timer in state.timers.items()},
        )
    )


def decode_state(body: bytes, definition: Definition) -> State:
    """Raises Corrupt where the bytes are not a state of the current shape. Renewals start at 0 and no expiry."""
    try:
        found = _decode(body)
        identity = InstanceId(UUID(bytes=found.id))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"snapshot does not decode: {error}"[:500]) from error
    return State(
        key=InstanceKey(found.key),
        id=identity,
        definition=definition,
        state=found.state,
        execution=found.execution,
        sequence=found.sequence,
        fence=found.fence,
        input=Payload(found.input),
        output=None if found.output is None else Payload(found.output),
        error=_unpack_error(found.error),
        cause=found.cause,
        by_request=found.by_request,
        unfinished=found.unfinished,
        open=found.open,
        plan=tuple(map(TaskPath, found.plan)),
        undone=found.undone,
        tasks={TaskPath(path): _unpack_task(task) for path, task in found.tasks.items()},
        timers={key: Timer(token, due_at) for key, (token, due_at) in found.timers.items()},
    )


def _pack_error(error: Error | None) -> _ErrorTuple | None:
    return None if error is None else (error.code, error.message, error.details)


def _unpack_error(found: _ErrorTuple | None) -> Error | None:
    if found is None:
        return None
    code, message, details = found
    return Error(code, message, None if details is None else Payload(details))


def _pack_task(task: TaskState) -> _Task:
    return _Task(
        task.status,
        task.remaining,
        task.alive,
        task.attempt,
        task.attempts_before,
        task.fence,
        task.retrying,
        task.unknown,
        task.stopping,
        task.ended_at,
        task.input,
        task.output,
        _pack_error(task.error),
        task.holder,
        task.handed_back_since,
        task.handed_back,
        task.rejected,
    )


def _unpack_task(found: _Task) -> TaskState:
    return TaskState(
        status=found.status,
        remaining=found.remaining,
        alive=found.alive,
        attempt=found.attempt,
        attempts_before=found.attempts_before,
        fence=found.fence,
        retrying=found.retrying,
        unknown=found.unknown,
        stopping=found.stopping,
        ended_at=found.ended_at,
        input=None if found.input is None else Payload(found.input),
        output=None if found.output is None else Payload(found.output),
        error=_unpack_error(found.error),
        holder=found.holder,
        handed_back_since=found.handed_back_since,
        handed_back=found.handed_back,
        rejected=found.rejected,
    )
