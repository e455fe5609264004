"""One question for everybody who waits: a thousand waiting results cost one query per tick, not a thousand.

A poller exists per kind of question (what became of these commands, what state are these instances in). It asks while
somebody waits and not otherwise. The pause between two questions is short just after somebody came or something
changed, and grows while nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast.client.errors import WaitTimedOut
from holdfast.core.errors import Transient

_PAUSE_MIN_S = 0.005
_PAUSE_MAX_S = 0.25
_PAUSE_GROWTH = 1.3

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(eq=False, slots=True)
class _Waiter(Generic[V]):
    enough: Callable[[V], bool]
    found: asyncio.Future[V]


class Poller(Generic[K, V]):
    """`ask` answers for many keys at once and leaves out what it does not know."""

    def __init__(self, ask: Callable[[list[K]], Awaitable[dict[K, V]]]) -> None:
        self._ask = ask
        self._waiters: dict[K, list[_Waiter[V]]] = {}
        self._pause_s = _PAUSE_MIN_S
        self._loop: asyncio.Task[None] | None = None
        self._trouble: Transient | None = None
        self.questions = 0

    async def wait(self, key: K, enough: Callable[[V], bool], timeout_s: float | None, what: str) -> V:
        """Until the answer for `key` is enough. Postgres being away for a while is waited out."""
        waiter: _Waiter[V] = _Waiter(enough, asyncio.get_running_loop().create_future())
        self._waiters.setdefault(key, []).append(waiter)
        self._pause_s = _PAUSE_MIN_S
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.found
        except TimeoutError:
            because = f"; the last question failed: {self._trouble}" if self._trouble else ""
            raise WaitTimedOut(f"{what} within {timeout_s:g} s{because}") from self._trouble
        finally:
            self._forget(key, waiter)

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop
        self._fail(Transient("the client was closed while waiting"))

    def _forget(self, key: K, waiter: _Waiter[V]) -> None:
        waiters = self._waiters.get(key, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._waiters.pop(key, None)

    async def _run(self) -> None:
        while self._waiters:
            try:
                self.questions += 1
                answers = await self._ask(list(self._waiters))
                self._trouble = None
            except Transient as problem:
                self._trouble = problem
                answers = {}
            except Exception as problem:
                self._fail(problem)
                return
            moved = [self._tell(key, answer) for key, answer in answers.items()]
            self._pause_s = _PAUSE_MIN_S if any(moved) else min(self._pause_s * _PAUSE_GROWTH, _PAUSE_MAX_S)
            await asyncio.sleep(self._pause_s)

    def _tell(self, key: K, answer: V) -> bool:
        """Whether somebody got what he waited for."""
        told = False
        for waiter in list(self._waiters.get(key, ())):
            if not waiter.found.done() and waiter.enough(answer):
                waiter.found.set_result(answer)
                self._forget(key, waiter)
                told = True
        return told

    def _fail(self, problem: Exception) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.found.done():
                    waiter.found.set_exception(problem)
        self._waiters.clear()
