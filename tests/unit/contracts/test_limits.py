import json

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts import limits
from holdfast.core.errors import Refused
from tests.unit.contracts import shapes


@pytest.mark.parametrize(
    "payload",
    [
        b"null",
        b' {"a" : 1} ',
        b'"\\ud83d\\ude00"',
        '"é😀"'.encode(),
        b'"\\\\u0000"',  # A backslash and the letters u0000, not NUL.
        b"1e308",
        b"1E-300",
        b'"1e99999 in a text, device00012345"',
        b"[" * 300 + b"]" * 300,
        b"1" * 100,
    ],
)
def test_json_that_can_be_stored_is_let_through(payload: bytes) -> None:
    assert limits.check_payload(payload, "input") is False


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "not JSON"),
        (b"NaN", "not JSON"),
        (b"[Infinity]", "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b"1 2", "not JSON"),
        (b'"\xff"', "not JSON in UTF-8"),
        (b'"\xed\xa0\x80"', "not JSON in UTF-8"),
        (b'"\\ud800"', "not JSON"),
        (b'{"\\udc00":1}', "not JSON"),
        (b'"\x00"', "not JSON"),
        (b'"\\u0000"', "NUL"),
        (b'{"a\\u0000b":1}', "NUL"),
        (b'"\\\\\\u0000"', "NUL"),
        (b"[1e999999]", "out of range: 1e999999"),
        (b"[0E-20000]", "out of range"),
        (b"1.0e+1000", "out of range"),
        (b"0." + b"1" * 20_000, "out of range"),
        (b"1" * 5_000, "out of range"),
        (b"[" * 700 + b"]" * 700, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 700 + b"1" + b"}" * 700, "nested too deeply"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_reason(payload: bytes, says: str) -> None:
    with pytest.raises(Refused, match=says) as refused:
        limits.check_payload(payload, "input")
    assert refused.value.reason == "payload_invalid"
    assert len(str(refused.value)) < 400


def test_size_warns_at_256_kib_and_refuses_past_1_mib() -> None:
    def of_size(size: int) -> bytes:
        return b'"' + b"x" * (size - 2) + b'"'

    assert limits.check_payload(of_size(256 * 1024), "input") is False
    assert limits.check_payload(of_size(256 * 1024 + 1), "input") is True
    assert limits.check_payload(of_size(1024 * 1024), "input") is True
    with pytest.raises(Refused, match="input has 1048577 bytes, at most 1048576 are allowed") as refused:
        limits.check_payload(of_size(1024 * 1024 + 1), "input")
    assert refused.value.reason == "payload_too_large"


@given(shapes.payloads)
def test_what_orjson_writes_without_nul_passes(payload: bytes) -> None:
    assert limits.check_payload(payload, "input") is False


@given(st.binary(max_size=100) | st.text(max_size=50).map(lambda text: json.dumps(text).encode()))
@example(b'"\\u0000\\ud800"')
def test_whatever_passes_can_be_read_back(payload: bytes) -> None:
    if not shapes.complaint(lambda: limits.check_payload(payload, "input")):
        value = orjson.loads(payload)
        assert "\\u0000" not in json.dumps(value).replace("\\\\", "")


@pytest.mark.parametrize("name", ["orders", "order-fulfillment", "a.b_c-1", "9lives", "x" * 255])
def test_a_name_has_plain_characters(name: str) -> None:
    assert limits.check_name(name, "workflow") == name


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "-a", ".a", "a\0", "\ud800", "x" * 256])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="workflow") as refused:
        limits.check_name(name, "workflow")
    assert refused.value.reason == "name_invalid"


def test_a_run_id_may_have_slashes_and_any_script() -> None:
    assert limits.check_instance_key("orders/fulfil/2026/Bestellung ä") == ("orders", "fulfil", "2026/Bestellung ä")


@pytest.mark.parametrize("key", ["", "a", "a/b", "a/b/", "/b/c", "a//c", "a/b/\0", "a/b/" + "é" * 128])
def test_a_key_without_its_three_parts_is_refused(key: str) -> None:
    with pytest.raises(Refused) as refused:
        limits.check_instance_key(key)
    assert refused.value.reason == "instance_key_invalid"
