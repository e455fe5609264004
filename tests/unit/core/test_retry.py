"""Backoff: capped, exponential, with jitter that is a function of its inputs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.definition import RetryPolicy
from holdfast.core.retry import delay_s, fraction

PLAIN = RetryPolicy(attempts_max=10, initial_s=1.0, factor=2.0, cap_s=300.0, jitter=0.0)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (11, 300)])
def test_the_delay_doubles_up_to_the_cap(attempt: int, seconds: float) -> None:
    assert delay_s(PLAIN, attempt, "seed") == seconds


def test_the_default_is_one_second_doubled_capped_at_five_minutes_with_half_jitter() -> None:
    policy = RetryPolicy()
    assert (policy.attempts_max, policy.initial_s, policy.factor, policy.cap_s, policy.jitter) == (3, 1, 2, 300, 0.5)


@pytest.mark.parametrize("attempt", [1_024, 1_025, 1_100, 10_000, 10**9])
def test_a_huge_attempt_number_waits_for_the_cap_and_does_not_overflow(attempt: int) -> None:
    assert delay_s(PLAIN, attempt, "seed") == 300


@pytest.mark.parametrize("attempt", [1, 2, 1_100])
def test_an_initial_delay_of_zero_stays_zero(attempt: int) -> None:
    assert delay_s(RetryPolicy(initial_s=0.0), attempt, "seed") == 0


def test_a_factor_of_one_is_a_constant_delay() -> None:
    policy = RetryPolicy(initial_s=7.0, factor=1.0, jitter=0.0)
    assert {delay_s(policy, attempt, "seed") for attempt in (1, 2, 50, 10**9)} == {7.0}


@given(
    attempt=st.integers(1, 10**6),
    initial_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap_s=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    seed=st.text(max_size=40),
)
def test_the_delay_lies_between_the_capped_one_and_that_plus_its_jitter(
    attempt: int, initial_s: float, factor: float, cap_s: float, jitter: float, seed: str
) -> None:
    policy = RetryPolicy(3, initial_s, factor, cap_s, jitter)
    bare = delay_s(RetryPolicy(3, initial_s, factor, cap_s, 0.0), attempt, seed)
    delay = delay_s(policy, attempt, seed)
    assert math.isfinite(delay)
    assert bare <= cap_s
    assert bare <= delay <= bare * (1 + jitter)
    assert delay == delay_s(policy, attempt, seed)


def test_the_jitter_differs_between_tasks_and_between_attempts() -> None:
    policy = RetryPolicy(initial_s=1.0, factor=1.0, jitter=1.0)
    assert len({delay_s(policy, 1, f"instance:1:task-{n}") for n in range(100)}) > 95
    assert len({delay_s(policy, n, "instance:1:task") for n in range(1, 101)}) > 95


def test_fractions_are_spread_over_the_whole_range() -> None:
    fractions = [fraction(f"instance-{n}:1:charge:1") for n in range(1_000)]
    assert all(0 <= value < 1 for value in fractions)
    tenths = [sum(int(value * 10) == tenth for value in fractions) for tenth in range(10)]
    assert all(60 <= count <= 140 for count in tenths)
