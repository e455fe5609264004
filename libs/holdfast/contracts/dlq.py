"""The dead letter queue: what could not be used, byte for byte, with where it was and why it is here.

The original headers stay; ours are added under `__dlq.errors.` (the names that Kafka Connect's users know), so that
`holdfast dlq replay` can put the message back where it came from.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.contracts.topics import DLQ

_PREFIX = "__dlq.errors."
_text_bytes_max = 2_000


def dlq_message(
    *,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    group: str,
    reason: str,
    message: str,
    service: str,
    time: datetime,
) -> tuple[str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """(topic, key, value, headers) for `holdfast.dlq`. `reason` is a word for machines, `message` is for people."""
    # A message that comes back from a replay and fails again tells about the last time only.
    kept = [(name, content) for name, content in headers if not name.startswith(_PREFIX)]
    told = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": group,
        "reason": reason,
        "message": message,
        "service": service,
        "time": time.isoformat(),
    }
    added = [(_PREFIX + name, text.encode("utf-8", "replace")[:_text_bytes_max]) for name, text in told.items()]
    return DLQ, key, value, [*kept, *added]


def dlq_errors(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, str]:
    """What `dlq_message` told, by name without the prefix; for lists and for replay."""
    return {
        name.removeprefix(_PREFIX): (content or b"").decode("utf-8", "replace")
        for name, content in headers
        if name.startswith(_PREFIX)
    }
