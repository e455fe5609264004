from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.avro import CANCELLATION, REPORT, TASK, TICK, Codec
from holdfast.contracts.messages import (
    decode_cancellation,
    decode_report,
    decode_task,
    decode_tick,
    encode_cancellation,
    encode_report,
    encode_task,
    encode_tick,
)
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.errors import Corrupt
from holdfast.core.ids import InstanceKey, Payload, TaskPath
from holdfast.core.inputs import (
    ActorType,
    DispatchLost,
    Error,
    LeaseExpired,
    Origin,
    Report,
    TaskHandBack,
    TaskHeartbeat,
    TaskReportedCancelled,
    TaskReportedCompleted,
    TaskReportedFailed,
    TaskReportedStarted,
    Tick,
    TimerDue,
)
from tests.unit.contracts import shapes

_KEY = InstanceKey("orders/fulfil/1")
_ORIGIN = Origin(ActorType.WORKER, "h-1", "t/0/1")


def _reports(kind: Any) -> st.SearchStrategy[Any]:
    return shapes.texts.flatmap(
        lambda holder: shapes.instances(
            kind, holder=st.just(holder), origin=shapes.origins(ActorType.WORKER, st.just(holder))
        )
    )


_any_report = st.one_of(
    *(
        _reports(kind)
        for kind in (
            TaskReportedStarted,
            TaskHeartbeat,
            TaskReportedCompleted,
            TaskReportedFailed,
            TaskReportedCancelled,
            TaskHandBack,
        )
    )
)
_recovery = st.builds(lambda who: Origin(ActorType.RECOVERY, who, "t/0/1"), shapes.texts)
_any_tick = st.one_of(*(shapes.instances(kind, origin=_recovery) for kind in (LeaseExpired, DispatchLost, TimerDue)))
_traced = shapes.instances(Dispatch, trace_id=st.just("a" * 32), span_id=st.just("b" * 16))


@given(_any_report)
def test_every_report_comes_back_as_it_was(report: Report) -> None:
    assert decode_report(encode_report(report), "t/0/1") == report


@given(_any_tick)
def test_every_tick_comes_back_as_it_was(tick: Tick) -> None:
    assert decode_tick(encode_tick(tick), "t/0/1") == tick


@given(_traced | shapes.instances(Dispatch, trace_id=st.none(), span_id=st.none()))
def test_every_task_comes_back_as_it_was(dispatch: Dispatch) -> None:
    assert decode_task(encode_task(dispatch)) == dispatch


@given(shapes.instances(Cancellation))
def test_every_cancellation_comes_back_as_it_was(cancellation: Cancellation) -> None:
    assert decode_cancellation(encode_cancellation(cancellation)) == cancellation


_READERS = {
    TASK: decode_task,
    CANCELLATION: decode_cancellation,
    REPORT: lambda value: decode_report(value, "t/0/1"),
    TICK: lambda value: decode_tick(value, "t/0/1"),
}
_codecs = st.sampled_from([TASK, CANCELLATION, REPORT, TICK])


@given(_codecs, st.binary(max_size=200), st.booleans())
def test_any_bytes_are_corrupt_or_a_record_and_nothing_else(codec: Codec, value: bytes, framed: bool) -> None:
    whole = b"\xc3\x01" + codec.fingerprint + value if framed else value
    assert len(shapes.complaint(lambda: _READERS[codec](whole))) <= 300


@given(_any_report, st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_report_is_corrupt_or_another_report(report: Report, position: int, byte: int) -> None:
    value = bytearray(encode_report(report))
    value[position % len(value)] = byte
    assert len(shapes.complaint(lambda: decode_report(bytes(value), "t/0/1"))) <= 300


@given(_any_report, st.integers(1, 1_000))
def test_a_report_that_was_cut_off_is_corrupt(report: Report, cut: int) -> None:
    value = encode_report(report)
    assert shapes.complaint(lambda: decode_report(value[: -(cut % len(value)) or -1], "t/0/1"))


def test_the_frame_is_avro_single_object_encoding() -> None:
    value = encode_cancellation(Cancellation(_KEY, 1, TaskPath("a"), 2, None, "why"))
    assert value[:2] == b"\xc3\x01"
    assert value[2:10] == CANCELLATION.fingerprint
    # What a worker in another language does: plain Avro with the schema file.
    read = fastavro.schemaless_reader(BytesIO(value[10:]), CANCELLATION.schema, None)  # type: ignore[arg-type]
    assert read["instance"] == _KEY  # type: ignore[index,call-overload]


def test_an_older_schema_is_resolved_to_the_current_one() -> None:
    old = {"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}
    new = old | {"fields": [*old["fields"], {"name": "more", "type": "int", "default": 7}]}  # type: ignore[misc]
    written = Codec("note", {1: old}).encode({"text": "hello"})
    assert Codec("note", {1: old, 2: new}).decode(written) == {"text": "hello", "more": 7}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "do not begin with C3 01"),
        (b'{"kind":"completed"}', "do not begin with C3 01"),
        (b"\xc3\x01" + b"12345678", "no schema has the fingerprint 3132333435363738"),
        (b"\xc3\x01" + REPORT.fingerprint, "10 bytes are not the Avro record they say"),
        (b"\xc3\x01" + REPORT.fingerprint + b"\x04\xff\xff", "are not the Avro record they say"),
    ],
)
def test_what_is_wrong_with_the_bytes_is_said(value: bytes, says: str) -> None:
    with pytest.raises(Corrupt, match=says):
        decode_report(value, "t/0/1")


def test_bytes_after_the_record_are_not_ignored() -> None:
    value = encode_report(TaskReportedCompleted(_KEY, _ORIGIN, TaskPath("a"), 1, 2, "h-1", Payload(b"1")))
    with pytest.raises(Corrupt, match="3 bytes follow"):
        decode_report(value + b"abc", "t/0/1")


def _record(**changed: Any) -> bytes:
    record = {"kind": "completed", "instance": _KEY, "execution": 1, "path": "a", "fence": 2, "holder": "h"}
    return REPORT.encode({**record, "payload": b"1"} | changed)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"kind": "eaten"}, "unknown kind 'eaten'"),
        ({"payload": None}, "without a payload"),
        ({"payload": b"NaN"}, "not JSON"),
        ({"payload": b'"\\u0000"'}, "NUL"),
        ({"payload": b'"' + b"x" * 1_048_577 + b'"'}, "at most 1048576"),
        ({"holder": ""}, "holder is empty"),
        ({"path": "a\0b"}, "control character"),
        ({"path": "x" * 2_000}, "2000 bytes"),
        ({"instance": "orders"}, "not namespace/workflow/run_id"),
        ({"instance": "a/b/c\0"}, "instance contains a control character"),
        ({"instance": "a/b/" + "x" * 1_000}, "1004 bytes"),
        ({"kind": "handed_back"}, "not a valid HandBackReason"),
        ({"kind": "failed", "detail": {"code": "x", "message": "a\0b"}}, "contains NUL"),
        ({"kind": "failed", "detail": {"code": "x", "delay_s": float("nan")}}, "a delay of nan"),
        ({"kind": "started", "detail": {"address": "a\nb"}}, "address contains a control character"),
    ],
)
def test_a_report_that_could_not_be_stored_is_corrupt(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(Corrupt, match=says):
        decode_report(_record(**changed), "t/0/1")


def test_an_error_message_that_cannot_be_stored_is_made_storable_by_the_worker() -> None:
    error = Error("bad\0code", "NUL \0, surrogate \ud800, " + "long " * 10_000)
    report = decode_report(encode_report(TaskReportedFailed(_KEY, _ORIGIN, TaskPath("a"), 1, 2, "h-1", error)), "t/0/1")
    assert isinstance(report, TaskReportedFailed)
    assert report.error.code == "bad\ufffdcode"
    assert report.error.message.startswith("NUL \ufffd, surrogate ?, long")
    assert len(report.error.message) == 10_000


def test_a_trace_that_is_not_valid_is_left_out_and_the_report_counts() -> None:
    report = decode_report(_record(traceparent="nonsense"), "t/0/1")
    assert report.origin.trace_id is None


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"kind": "eaten"}, "unknown kind 'eaten'"),
        ({"instance": "orders"}, "not namespace/workflow/run_id"),
        ({"timer": None}, "timer is empty"),
        ({"kind": "dispatch_lost"}, "path is empty"),
        ({"kind": "lease_expired", "path": "a", "lapse": "boredom"}, "not a valid LapseKind"),
        ({"sender": "a\0"}, "sender contains a control character"),
    ],
)
def test_a_tick_that_makes_no_sense_is_corrupt(changed: dict[str, Any], says: str) -> None:
    record = {"kind": "timer_due", "instance": _KEY, "sender": "recovery-1", "timer": "deadline", "token": 1}
    with pytest.raises(Corrupt, match=says):
        decode_tick(TICK.encode(record | changed), "t/0/1")
