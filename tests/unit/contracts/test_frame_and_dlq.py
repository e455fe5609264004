from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.dlq import dlq_errors, dlq_message
from holdfast.contracts.frame import FramedMessage, decode_frame, encode_frame
from holdfast.core.errors import Corrupt
from tests.unit.contracts import shapes

_headers = st.lists(st.tuples(shapes.texts, st.none() | st.binary(max_size=20)), max_size=5)
_messages = st.lists(
    st.tuples(shapes.texts, st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=50), _headers),
    max_size=10,
)


@given(_messages)
def test_a_frame_comes_back_as_it_was(messages: list[FramedMessage]) -> None:
    assert decode_frame(encode_frame(messages)) == messages


@given(st.binary(max_size=60), st.booleans())
def test_bytes_that_are_no_frame_are_corrupt_or_a_frame(body: bytes, versioned: bool) -> None:
    assert len(shapes.complaint(lambda: decode_frame(b"\x01" + body if versioned else body))) <= 300


def test_a_frame_of_another_version_says_so() -> None:
    with pytest.raises(Corrupt, match="outbox frame of version 9; version 1 is known"):
        decode_frame(b"\x09abc")
    with pytest.raises(Corrupt, match="outbox frame is empty"):
        decode_frame(b"")


def test_a_dead_letter_keeps_the_original_and_tells_why() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    headers: list[tuple[str, bytes | None]] = [("mine", b"1"), ("__dlq.errors.reason", b"an earlier time")]
    topic, key, value, told = dlq_message(
        topic="holdfast.commands",
        partition=3,
        offset=42,
        key=b"k",
        value=b"\xff",
        headers=headers,
        group="holdfast.coordinator",
        reason="corrupt",
        message="not a CloudEvent " + "é" * 3_000,
        service="coordinator-1",
        time=moment,
    )
    assert (topic, key, value) == ("holdfast.dlq", b"k", b"\xff")
    assert told[0] == ("mine", b"1")
    errors = dlq_errors(told)
    assert errors["topic"] == "holdfast.commands"
    assert (errors["partition"], errors["offset"]) == ("3", "42")
    assert errors["reason"] == "corrupt"
    assert errors["time"] == "2026-01-02T00:00:00+00:00"
    assert all(len(content or b"") <= 2_000 for _, content in told)
