"""Backoff with jitter that is a function of its inputs, so that a replay or a second coordinator gets the same."""

from zlib import crc32

from holdfast.core.definition import RetryPolicy


def delay_s(policy: RetryPolicy, attempt: int, seed: str) -> float:
    """The delay before attempt n+1, after attempt n: capped exponential, plus 0 to `jitter` times itself."""
    try:
        raw = policy.initial_s * policy.factor ** (attempt - 1)
    except OverflowError:
        raw = policy.cap_s if policy.initial_s else 0.0
    capped = min(policy.cap_s, raw)
    return capped * (1.0 + policy.jitter * fraction(f"{seed}:{attempt}"))


def fraction(seed: str) -> float:
    """Spread evenly over [0, 1): neighbours in name are not neighbours in time."""
    return crc32(seed.encode()) / 2**32
