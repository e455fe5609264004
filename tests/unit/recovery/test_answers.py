"""When Kafka has answered steadily enough for a lease to expire."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast_recovery.answers import Answers


def answered(*times: float) -> Answers:
    answers = Answers()
    for at in times:
        answers.answered(at)
    return answers


def test_nothing_is_steady_before_the_first_answer() -> None:
    assert not Answers().steady(30, 1000)


def test_a_recovery_that_has_just_started_has_to_see_one_whole_lease() -> None:
    answers = answered(*range(100, 130))
    assert not answers.steady(30, 129)
    answers.answered(130)
    assert answers.steady(30, 130)


def test_a_gap_longer_than_a_heartbeat_begins_the_lease_anew() -> None:
    before, after = range(100), range(112, 150)
    answers = answered(*before, *after)
    assert answers.steady(36, 149)  # Its heartbeat is 12 s: there was no gap.
    assert answers.steady(30, 149)
    assert not answered(*before, *range(112, 141)).steady(30, 140)


def test_silence_since_the_last_answer_is_a_gap_too() -> None:
    answers = answered(*range(100))
    assert answers.steady(30, 105)
    assert not answers.steady(30, 110)


@given(
    st.lists(st.floats(0.01, 40), min_size=1, max_size=40),
    st.floats(0.5, 60),
    st.floats(0, 20),
)
def test_it_says_what_a_full_history_would_say(pauses: list[float], lease_s: float, silence: float) -> None:
    times = [sum(pauses[: index + 1]) for index in range(len(pauses))]
    at = times[-1] + silence
    heartbeat_s = lease_s / 3
    gaps = [(end, end - start) for start, end in zip([float("-inf"), *times], times, strict=False)]
    expected = silence_ok = at - times[-1] <= heartbeat_s
    if silence_ok:
        expected = all(at - end >= lease_s for end, gap in gaps if gap > heartbeat_s)
    assert answered(*times).steady(lease_s, at) == expected
