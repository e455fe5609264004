"""W3C trace context: `traceparent` to a trace id and a span id, and back.

A header that is not valid is treated as absent, as the specification asks: a broken trace never breaks the work.
"""

import re

_HEX = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?").fullmatch


def format_traceparent(trace_id: str | None, span_id: str | None, *, sampled: bool = True) -> str | None:
    """None unless both ids are there."""
    if not trace_id or not span_id:
        return None
    return f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"


def parse_traceparent(header: str | bytes | None) -> tuple[str | None, str | None]:
    """(trace id, span id), or (None, None) for anything that is not a valid traceparent."""
    if not header:
        return None, None
    text = header.decode("ascii", "replace") if isinstance(header, bytes) else header
    # Version 00 has exactly these four parts; a later version may append some.
    if _HEX(text) is None or (text.startswith("00") and len(text) != 55):
        return None, None
    return text[3:35], text[36:52]
