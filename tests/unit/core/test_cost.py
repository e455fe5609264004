"""A step of a workflow with 500 tasks looks at as many of them as a step of one with five."""

from collections.abc import Callable

import pytest

from holdfast.core import events as e
from holdfast.core.draft import Draft
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.harness import Play, activity, workflow

SMALL, LARGE = 5, 500


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many tasks the newest decision has looked at: a draft copies exactly those."""
    drafts: list[Draft] = []

    class Watched(Draft):
        __slots__ = ()

        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            drafts.append(self)

    monkeypatch.setattr("holdfast.core.decide.Draft", Watched)
    return lambda: len(drafts[-1].state.tasks)


def chain(count: int) -> Play:
    """t0 -> t1 -> ..., each with a compensation."""
    tasks = {f"t{n}": activity(*([f"t{n - 1}"] if n else []), compensate=f"u{n}") for n in range(count)}
    play = Play(workflow(deadline_s=60, **tasks), checks=False)
    play.start()
    return play


def fan(count: int) -> Play:
    """All at once, and a join."""
    tasks = {f"t{n}": activity(compensate=f"u{n}") for n in range(count)}
    play = Play(workflow(**tasks, join=activity(*tasks)), checks=False)
    play.start()
    return play


def steps_of_a_chain(play: Play, touched: Callable[[], int]) -> list[int]:
    counts = []
    for step in (
        lambda: play.started("t0"),
        lambda: play.heartbeat("t0"),
        lambda: play.started("t0", by="w2"),
        lambda: play.lease_expired("t0"),
        lambda: play.fire("retry:t0"),
        lambda: play.dispatch_lost("t0"),
        lambda: play.handed_back("t0", "no_handler"),
        lambda: play.fire("retry:t0"),
        lambda: play.failed("t0"),
        lambda: play.fire("retry:t0"),
        lambda: play.completed("t0"),
        lambda: play.completed("t1"),
        lambda: play.completed("t1"),
        lambda: play.fire("deadline", token=1),
    ):
        step()
        counts.append(touched())
    return counts


def test_no_step_of_a_long_chain_looks_at_more_tasks_than_one_of_a_short_chain(touched: Callable[[], int]) -> None:
    small = steps_of_a_chain(chain(SMALL), touched)
    large = steps_of_a_chain(chain(LARGE), touched)
    assert small == large
    assert max(large) <= 3


def test_no_result_of_a_wide_fan_looks_at_more_tasks_than_one_of_a_narrow_fan(touched: Callable[[], int]) -> None:
    counts = []
    for play in (fan(SMALL), fan(LARGE)):
        of_this = set()
        for n in range(SMALL - 1):
            play.completed(f"t{n}")
            of_this.add(touched())
        counts.append(of_this)
    assert counts == [{2}, {2}], "the task and the join"


def test_only_the_beginning_and_the_end_of_a_drain_look_at_everything(touched: Callable[[], int]) -> None:
    play = fan(LARGE)
    for n in range(LARGE - 3):
        play.completed(f"t{n}")
    play.failed_for_good(f"t{LARGE - 1}")
    assert play.status is W.FAILING
    play.completed(f"t{LARGE - 2}")
    assert touched() <= 2
    play.completed(f"t{LARGE - 3}")
    assert play.status is W.COMPENSATING
    for path in play.state.plan[:20]:
        play.completed(f"u{path[1:]}")
        assert touched() <= 3, "the compensation, what it undoes next, and the compensation of that"


def test_the_whole_chain_completes(touched: Callable[[], int]) -> None:
    play = chain(LARGE)
    most = 0
    for n in range(LARGE):
        play.completed(f"t{n}")
        most = max(most, touched())
    assert play.status is W.COMPLETED
    assert most <= 2
    assert len(play.of(e.TaskCompleted)) == LARGE
