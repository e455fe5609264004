"""Offsets that Kafka really told. The binding answers a question that timed out with -1001 instead of an error.

Taken for an end, such a number would be one that every coordinator has reached: leases would expire because the
broker is away, which is the very thing that must never happen.
"""

from collections.abc import Iterable

from holdfast.core.errors import Transient
from holdfast.log.protocol import Admin, TopicPartition


async def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return _told(await admin.end_offsets(partitions))


async def start_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return _told(await admin.start_offsets(partitions))


def _told(answer: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    if any(offset < 0 for offset in answer.values()):
        raise Transient("list offsets: kafka has not answered in time")
    return answer
