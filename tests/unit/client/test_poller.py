"""Many who wait, one question."""

import asyncio

import pytest

from holdfast.client.errors import WaitTimedOut
from holdfast.client.poller import Poller
from holdfast.core.errors import Refused, Transient


class Answers:
    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.asked: list[int] = []
        self.trouble: Exception | None = None

    async def ask(self, keys: list[str]) -> dict[str, int]:
        self.asked.append(len(keys))
        if self.trouble is not None:
            raise self.trouble
        return {key: self.known[key] for key in keys if key in self.known}


async def test_a_thousand_waiters_cost_one_question_per_tick() -> None:
    answers = Answers()
    poller = Poller(answers.ask)
    keys = [f"run-{n}" for n in range(1000)]
    waiting = [asyncio.create_task(poller.wait(key, lambda value: value > 0, 5, "nothing")) for key in keys]
    await asyncio.sleep(0.05)
    questions = poller.questions
    answers.known = dict.fromkeys(keys, 1)
    assert await asyncio.gather(*waiting) == [1] * 1000
    assert max(answers.asked) == 1000
    assert questions <= 10
    assert poller.questions <= questions + 2


async def test_an_answer_that_is_not_enough_is_waited_on() -> None:
    answers = Answers()
    answers.known = {"run": 1}
    poller = Poller(answers.ask)
    waiting = asyncio.create_task(poller.wait("run", lambda value: value >= 3, 5, "nothing"))
    await asyncio.sleep(0.03)
    assert not waiting.done()
    answers.known["run"] = 3
    assert await waiting == 3


async def test_two_who_wait_for_the_same_each_get_what_they_want() -> None:
    answers = Answers()
    answers.known = {"run": 1}
    poller = Poller(answers.ask)
    later = asyncio.create_task(poller.wait("run", lambda value: value >= 2, 5, "nothing"))
    assert await poller.wait("run", lambda value: True, 5, "nothing") == 1
    assert not later.done()
    answers.known["run"] = 2
    assert await later == 2


async def test_nobody_is_asked_while_nobody_waits() -> None:
    answers = Answers()
    poller = Poller(answers.ask)
    with pytest.raises(WaitTimedOut, match=r"run has not finished within 0\.05 s"):
        await poller.wait("run", lambda value: True, 0.05, "run has not finished")
    await asyncio.sleep(0.3)
    before = len(answers.asked)
    await asyncio.sleep(0.3)
    assert len(answers.asked) == before


async def test_an_absence_of_postgres_is_waited_out() -> None:
    answers = Answers()
    answers.trouble = Transient("postgres is away")
    poller = Poller(answers.ask)
    waiting = asyncio.create_task(poller.wait("run", lambda value: True, 5, "nothing"))
    await asyncio.sleep(0.03)
    answers.trouble, answers.known = None, {"run": 7}
    assert await waiting == 7


async def test_a_timeout_names_the_trouble() -> None:
    answers = Answers()
    answers.trouble = Transient("postgres is away")
    with pytest.raises(WaitTimedOut, match="postgres is away"):
        await Poller(answers.ask).wait("run", lambda value: True, 0.05, "nothing")


async def test_what_will_never_work_reaches_everyone_who_waits() -> None:
    answers = Answers()
    answers.trouble = Refused("database_role", "wrong role")
    poller = Poller(answers.ask)
    waiting = [asyncio.create_task(poller.wait(key, lambda value: True, 5, "nothing")) for key in "ab"]
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, Refused)


async def test_closing_ends_the_waiting() -> None:
    poller = Poller(Answers().ask)
    waiting = asyncio.create_task(poller.wait("run", lambda value: True, 5, "nothing"))
    await asyncio.sleep(0.01)
    await poller.close()
    with pytest.raises(Transient, match="closed"):
        await waiting
