"""What the random tests draw: definitions of up to eight tasks with everything a task can say, and scripts of moves."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from holdfast.core.definition import Definition, RetryPolicy
from tests.unit.core.harness import FAILS, NO, YES, activity, sleep, undo, workflow

POLICIES = [RetryPolicy(attempts_max=n, initial_s=1.0, factor=2.0, cap_s=10.0, jitter=0.5) for n in (1, 2, 3)]

# Mostly nothing special, so that most runs get far.
CONDITIONS = [*[None] * 20, YES, YES, NO, NO, NO, FAILS]
INPUTS = [*[None] * 20, YES, YES, YES, FAILS]
UNDO_INPUTS = [*[None] * 10, FAILS]


@st.composite
def definitions(draw: st.DrawFn, *, expressions_fail: bool = True) -> Definition:
    count = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8]))
    tasks: dict[str, Any] = {}
    for n in range(count):
        after = [f"t{before}" for before in range(n) if draw(_one_in(3))]
        tasks[f"t{n}"] = _task(draw, n, after, expressions_fail)
        if tasks[f"t{n}"].get("compensate"):
            choices = UNDO_INPUTS if expressions_fail else [None]
            tasks[f"u{n}"] = undo(retry=draw(st.sampled_from(POLICIES)), input=draw(st.sampled_from(choices)))
    output = FAILS if expressions_fail and draw(_one_in(8)) else None
    deadline_s = draw(st.sampled_from([None, None, None, 20.0]))
    return workflow(output=output, deadline_s=deadline_s, drain_timeout_s=draw(st.sampled_from([None, 5.0])), **tasks)


def scripts(width: int, *, length_max: int = 60) -> st.SearchStrategy[list[tuple[int, ...]]]:
    """Rows of numbers. By seed and length: Hypothesis's own lists are too short and too even to get into trouble."""

    def script(seed: int, length: int) -> list[tuple[int, ...]]:
        random = Random(seed)
        return [tuple(random.randrange(256) for _ in range(width)) for _ in range(length)]

    return st.builds(script, st.integers(0, 2**32), st.integers(0, length_max))


def _task(draw: st.DrawFn, n: int, after: list[str], expressions_fail: bool) -> dict[str, Any]:
    def pick(choices: list[Any]) -> Any:
        return draw(st.sampled_from(choices if expressions_fail else [x for x in choices if x is not FAILS]))

    when, run_if_skipped = pick(CONDITIONS), draw(_one_in(4))
    if draw(_one_in(5)):
        return sleep(5.0, *after, when=when, run_if_skipped=run_if_skipped)
    return activity(
        *after,
        when=when,
        run_if_skipped=run_if_skipped,
        input=pick(INPUTS),
        retry=draw(st.sampled_from(POLICIES)),
        queue_timeout_s=draw(st.sampled_from([None, None, 15.0])),
        compensate=f"u{n}" if draw(st.booleans()) else None,
        compensate_unknown=not draw(_one_in(4)),
    )


def _one_in(n: int) -> st.SearchStrategy[bool]:
    return st.integers(1, n).map(lambda drawn: drawn == n)
