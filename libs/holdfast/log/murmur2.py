"""Where a key goes: the hash of Kafka's own default partitioner, so that everyone computes the same home.

The coordinator asks for every message (is this key's home the partition it came on?), and a handful of instances
make most of the messages at any time, so answers are remembered.
"""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit murmur2 of Kafka's `Utils.murmur2`."""
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for (k,) in iter_unpack("<I", data[:whole]):
        k = (k * _MULTIPLIER) & _MASK
        k ^= k >> 24
        h = ((h * _MULTIPLIER) & _MASK) ^ ((k * _MULTIPLIER) & _MASK)
    if whole != length:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _MULTIPLIER) & _MASK
    h ^= h >> 13
    h = (h * _MULTIPLIER) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_for(key: bytes, partitions: int) -> int:
    """The partition that Java's default partitioner and librdkafka's `murmur2_random` give this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
