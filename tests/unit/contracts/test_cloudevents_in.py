import pickle
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.cloudevents_in import CANCEL, RESUME, START, RefusedCommand, decode_command
from holdfast.contracts.commands import cancel_data, encode_command, resume_data, start_data
from holdfast.core.errors import Corrupt, Refused
from holdfast.core.ids import InstanceKey, Payload
from holdfast.core.inputs import ActorType, CancelWorkflow, Origin, ResumeWorkflow, StartWorkflow
from tests.unit.contracts import shapes

_KEY = InstanceKey("orders/order-fulfillment/order-123")
_KCAT = (
    b'{"specversion":"1.0","id":"c-1","source":"/shop","type":"io.holdfast.command.start.v1",\n'
    b'       "subject":"orders/order-fulfillment/order-123","data":{"input":{"amount":99}}}'
)
_ORIGIN = Origin(ActorType.CLIENT, "/shop", "/shop#c-1")


def test_what_kcat_sends_is_a_start() -> None:
    envelope = decode_command([], b"any key", _KCAT)
    assert envelope.command == StartWorkflow(_KEY, _ORIGIN, Payload(b'{"amount":99}'))
    assert (envelope.source, envelope.id, envelope.type) == ("/shop", "c-1", START)
    assert envelope.instance == _KEY


def test_the_same_command_has_the_same_digest_in_either_mode() -> None:
    data = start_data(Payload(b'{ "amount" : 99 }'))
    binary = encode_command(_KEY, START, data, source="/shop", id="c-1")
    structured = encode_command(_KEY, START, data, source="/shop", id="c-1", structured=True)
    digests = {decode_command(m.headers, m.key, m.value).digest for m in (binary, structured)}
    digests.add(decode_command([], None, _KCAT).digest)
    assert len(digests) == 1


def test_another_content_has_another_digest() -> None:
    one = encode_command(_KEY, START, start_data(Payload(b"1")), source="/shop", id="c-1")
    two = encode_command(_KEY, START, start_data(Payload(b"2")), source="/shop", id="c-1")
    assert decode_command(*_parts(one)).digest != decode_command(*_parts(two)).digest


def _parts(message: Any) -> tuple[Any, Any, Any]:
    return message.headers, message.key, message.value


@given(
    shapes.keys,
    shapes.payloads,
    st.none() | st.integers(1, 2**31 - 1),
    st.none() | shapes.moments,
    st.booleans(),
)
def test_a_start_of_the_client_arrives_as_it_was(
    key: InstanceKey, payload: Payload, version: int | None, run_at: datetime | None, structured: bool
) -> None:
    data = start_data(payload, version=version, run_at=run_at)
    message = encode_command(key, START, data, source="/shop", id="c-1", structured=structured)
    assert message.key == key.encode()
    assert decode_command(*_parts(message)).command == StartWorkflow(key, _ORIGIN, payload, version, run_at)


@pytest.mark.parametrize("structured", [False, True])
def test_cancel_and_resume_arrive_as_they_were(structured: bool) -> None:
    data = cancel_data(reason="changed my mind", compensate=True)
    message = encode_command(_KEY, CANCEL, data, source="/shop", id="c-1", structured=structured)
    assert decode_command(*_parts(message)).command == CancelWorkflow(_KEY, _ORIGIN, "changed my mind", True, False)
    message = encode_command(_KEY, RESUME, resume_data(reason="x"), source="/shop", id="c-1", structured=structured)
    assert decode_command(*_parts(message)).command == ResumeWorkflow(_KEY, _ORIGIN, "x")


@pytest.mark.parametrize("structured", [False, True])
def test_the_cloudevents_package_reads_what_the_client_writes(structured: bool) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    message = encode_command(
        _KEY,
        START,
        start_data(Payload(b'{"a":1}')),
        source="/shop",
        id="c-1",
        time=moment,
        traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
        structured=structured,
    )
    read = from_kafka_event(KafkaMessage(dict(message.headers), message.key, message.value))
    assert (read.get_id(), read.get_source(), read.get_type(), read.get_subject()) == ("c-1", "/shop", START, _KEY)
    assert read.get_time() == moment
    assert read.get_data() == {"input": {"a": 1}}
    assert read.get_extension("traceparent").startswith("00-aaaa")


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_what_the_cloudevents_package_writes_is_a_command(write: Any) -> None:
    attributes = {"type": START, "source": "/shop", "id": "c-1", "subject": _KEY, "specversion": "1.0"}
    attributes |= {"datacontenttype": "application/json", "comexampleother": "x"}
    event = CloudEvent(attributes, {"input": {"amount": 99}, "version": 2})
    message = write(event)
    envelope = decode_command(list(message.headers.items()), None, message.value)
    assert isinstance(envelope.command, StartWorkflow)
    assert orjson.loads(envelope.command.input) == {"amount": 99}
    assert envelope.command.version == 2


def test_the_hop_of_the_plain_header_counts_before_the_extension() -> None:
    message = encode_command(_KEY, RESUME, b"", source="/shop", id="c-1", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")
    headers = [*message.headers[:-1], ("traceparent", f"00-{'c' * 32}-{'d' * 16}-01".encode())]
    origin = decode_command(headers, message.key, message.value).command.origin
    assert (origin.trace_id, origin.span_id) == ("c" * 32, "d" * 16)


def _binary(**changed: Any) -> tuple[list[tuple[str, bytes | None]], bytes, bytes | None]:
    attributes = {"specversion": "1.0", "id": "c-1", "source": "/shop", "type": START, "subject": _KEY} | changed
    value = attributes.pop("value", b"{}")
    content_type = attributes.pop("content_type", "application/json")
    headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items() if text is not None]
    return [*headers, ("content-type", content_type.encode())], _KEY.encode(), value


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (([], b"k", None), "neither `ce_` headers nor a CloudEvent"),
        (([], b"k", b"\xff\xfe"), "neither"),
        (([], b"k", b"hello"), "neither"),
        (([], b"k", b'{"hello":1}'), "missing required field `specversion`"),
        (([], b"k", b"[" * 100_000), "neither"),
        (([("content-type", b"application/cloudevents-batch+json")], b"k", b"[]"), "is not supported"),
        (([("content-type", b"application/cloudevents+avro")], b"k", b""), "is not supported"),
        (([("ce_type", b"\xff")], b"k", b""), "a header is not UTF-8"),
        (_binary(specversion="0.3"), "specversion '0.3'"),
        (_binary(id=None), "id is empty"),
        (_binary(source="\0"), "source contains a control character"),
        (_binary(type=None), "type is empty"),
        (_binary(subject=None), "the subject must be namespace/workflow/run_id"),
        (_binary(subject="order-123"), "the subject must be namespace/workflow/run_id"),
        (_binary(subject="a b/c/d"), "letters, digits"),
        (_binary(id="x" * 256), "id has 256 bytes"),
    ],
)
def test_what_cannot_be_answered_is_corrupt(message: Any, says: str) -> None:
    with pytest.raises(Corrupt, match=says):
        decode_command(*message)


@pytest.mark.parametrize(
    ("message", "reason", "says"),
    [
        (
            _binary(type="io.holdfast.command.signal.v1"),
            "unknown_command_type",
            "known are io.holdfast.command.start.v1",
        ),
        (_binary(type="com.example.other"), "unknown_command_type", "com.example.other"),
        (_binary(content_type="application/avro"), "data_unsupported", "use application/json"),
        (_binary(value=b"{"), "payload_invalid", "not JSON"),
        (_binary(value=b"[]"), "data_invalid", "Expected `object`, got `array`"),
        (_binary(value=b'{"inputs":1}'), "data_invalid", "unknown field `inputs`"),
        (_binary(value=b'{"version":"1"}'), "data_invalid", "Expected `int | null`, got `str`"),
        (_binary(value=b'{"version":0}'), "data_invalid", ">= 1"),
        (_binary(value=b'{"run_at":"tomorrow"}'), "data_invalid", "RFC3339"),
        (_binary(value=b'{"run_at":"2026-01-01T00:00:00"}'), "data_invalid", "timezone"),
        (_binary(value=b'{"run_at":"0001-01-01T00:00:00+14:00"}'), "data_invalid", "out of range"),
        (_binary(value=b'{"input":"\\u0000"}'), "payload_invalid", "NUL"),
        (_binary(value=b'{"input":"' + b"x" * 1_048_576 + b'"}'), "payload_too_large", "input has 1048578 bytes"),
        (_binary(type=CANCEL, value=b'{"compensate":1}'), "data_invalid", "Expected `bool`"),
        (_binary(type=CANCEL, value=b'{"reason":"' + b"x" * 1_001 + b'"}'), "data_invalid", "length <= 1000"),
        (_binary(type=RESUME, value=b'{"force":true}'), "data_invalid", "unknown field `force`"),
    ],
)
def test_what_is_wrong_but_can_be_answered_is_refused_with_its_sender(message: Any, reason: str, says: str) -> None:
    with pytest.raises(RefusedCommand) as refused:
        decode_command(*message)
    assert refused.value.reason == reason
    assert says in refused.value.detail
    header = refused.value.header
    assert (header.instance, header.source, header.id) == (_KEY, "/shop", "c-1")
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.reason, again.header) == (reason, header)


def test_a_command_without_data_has_its_defaults() -> None:
    envelope = decode_command(*_binary(type=CANCEL, value=None))
    assert envelope.command == CancelWorkflow(_KEY, _ORIGIN)


_header_names = st.sampled_from(["ce_specversion", "ce_id", "ce_type", "ce_source", "ce_subject", "content-type", "x"])
_contents = st.sampled_from([b"1.0", START.encode(), _KEY.encode(), b"application/cloudevents+json", None, b"\xff"])


@given(st.lists(st.tuples(_header_names, _contents | st.binary(max_size=9))), st.none() | st.binary(max_size=60))
def test_anything_is_a_command_or_corrupt_or_refused(headers: list[tuple[str, bytes | None]], value: bytes) -> None:
    assert len(shapes.complaint(lambda: decode_command(headers, None, value))) <= 600


@given(st.integers(0, len(_KCAT) - 1), st.integers(0, 255))
def test_a_damaged_command_is_a_command_or_corrupt_or_refused(position: int, byte: int) -> None:
    value = _KCAT[:position] + bytes([byte]) + _KCAT[position + 1 :]
    assert len(shapes.complaint(lambda: decode_command([], None, value))) <= 600


def test_the_client_is_told_before_anything_is_sent() -> None:
    with pytest.raises(Refused, match="not namespace/workflow/run_id"):
        encode_command(InstanceKey("order-1"), START, b"{}", source="/shop", id="c-1")
    with pytest.raises(Refused, match="NUL"):
        start_data(Payload(b'"\\u0000"'))
    with pytest.raises(Refused, match="time zone"):
        start_data(Payload(b"1"), run_at=datetime(2026, 1, 1))
