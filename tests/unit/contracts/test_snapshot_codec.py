from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.definitions import compile_definition
from holdfast.contracts.snapshot_codec import decode_state, encode_state
from holdfast.core.definition import Definition
from holdfast.core.errors import Corrupt
from holdfast.core.ids import instance_id
from holdfast.core.state import State, TaskState, Timer
from tests.unit.contracts import shapes


def _definition() -> Definition:
    body = {"namespace": "orders", "workflow": "fulfil", "version": 1, "tasks": {"a": {"activity": "x.y"}}}
    return compile_definition(body)


_DEFINITION = _definition()
_tasks = shapes.instances(TaskState, renewals=st.just(0), expires_at=st.none())
_states = shapes.keys.flatmap(
    lambda key: shapes.instances(
        State,
        key=st.just(key),
        id=st.just(instance_id(key)),
        definition=st.just(_DEFINITION),
        tasks=st.dictionaries(shapes.texts, _tasks, max_size=3),
        timers=st.dictionaries(shapes.texts, shapes.instances(Timer), max_size=3),
    )
)


@given(_states)
def test_a_state_comes_back_exactly_as_it_was(state: State) -> None:
    assert decode_state(encode_state(state), _DEFINITION) == state


def test_lease_renewals_are_not_in_a_snapshot() -> None:
    state = State.empty(shapes.InstanceKey("orders/fulfil/1"), _DEFINITION)
    state.tasks[shapes.TaskPath("a")] = TaskState(renewals=7, expires_at=datetime(2026, 1, 1, tzinfo=UTC))
    task = decode_state(encode_state(state), _DEFINITION).tasks[shapes.TaskPath("a")]
    assert (task.renewals, task.expires_at) == (0, None)


@given(st.binary(max_size=100))
def test_bytes_that_are_no_snapshot_are_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt, match="snapshot does not decode"):
        decode_state(body, _DEFINITION)
