import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.tracing import format_traceparent, parse_traceparent

_TRACE, _SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_traceparent_comes_back_as_it_was() -> None:
    header = format_traceparent(_TRACE, _SPAN)
    assert header == f"00-{_TRACE}-{_SPAN}-01"
    assert parse_traceparent(header) == parse_traceparent(header.encode()) == (_TRACE, _SPAN)
    assert format_traceparent(_TRACE, _SPAN, sampled=False) == f"00-{_TRACE}-{_SPAN}-00"


def test_a_later_version_may_have_more_parts() -> None:
    assert parse_traceparent(f"01-{_TRACE}-{_SPAN}-01-more") == (_TRACE, _SPAN)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        b"\xff" * 55,
        f"00-{'0' * 32}-{_SPAN}-01",
        f"00-{_TRACE}-{'0' * 16}-01",
        f"ff-{_TRACE}-{_SPAN}-01",
        f"00-{_TRACE.upper()}-{_SPAN}-01",
        f"00-{_TRACE}-{_SPAN}-01-more",
    ],
)
def test_what_is_not_valid_is_absent(header: str | bytes | None) -> None:
    assert parse_traceparent(header) == (None, None)


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_nothing_is_ever_raised(header: str | bytes) -> None:
    parse_traceparent(header)


def test_half_a_trace_is_none() -> None:
    assert format_traceparent(_TRACE, None) is None
    assert format_traceparent(None, _SPAN) is None
