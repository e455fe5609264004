"""A worker whose activities do what the workflow's input tells them, and keep a book of everything they did.

Run it with `holdfast worker tests.support.shop:worker`. The input of a workflow says per task what shall happen:

    {"do": {"charge": {"flaky": 2}, "ship": {"refuse": true}}}

`flaky: n` fails the first n attempts, `refuse` fails for good, `sleep_s` takes its time, `exit: n` kills the process in
the first n attempts, `output` is what it returns, `nul` returns text that cannot be stored. `gates: [a, b]` makes the
first attempt wait for the file `a.go`, the second for `b.go`. Once the file `a.block` exists it waits *in the event
loop*, so that nothing can reach the worker any more: a frozen process that wakes up and finishes what it was doing
before it hears of anything else.
"""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holdfast import ActivityContext, NonRetryable, Worker, activity

FOLDER = "SHOP_FOLDER"  # where the ledger and the gates are
QUEUES = "SHOP_QUEUES"
ONLY = "SHOP_ACTIVITIES"  # the handlers of this worker; all of them if empty


@dataclass(frozen=True)
class Line:
    """One thing that an activity did: `began`, `blocked` or `done`."""

    what: str
    instance: str
    task: str
    attempt: int
    fence: int
    effect_key: str
    pid: int
    at: float


class Ledger:
    """One line per fact, appended by any number of processes at once: small writes to one file do not mix."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ledger.jsonl"

    def write(self, what: str, ctx: ActivityContext) -> None:
        key, fence = ctx.effect_key, ctx.fence_token
        line = Line(what, ctx.instance, ctx.task, ctx.attempt, fence, key, os.getpid(), time.time())
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, json.dumps(line.__dict__).encode() + b"\n")
        finally:
            os.close(descriptor)

    def lines(self, instance: str | None = None, task: str | None = None, what: str | None = None) -> list[Line]:
        if not self._file.exists():
            return []
        every = [Line(**json.loads(text)) for text in self._file.read_text().splitlines()]
        return [
            line
            for line in every
            if (instance is None or line.instance == instance)
            and (task is None or line.task == task)
            and (what is None or line.what == what)
        ]


class Parcel(BaseModel):
    weight: int
    address: str


def _plan(ctx: ActivityContext, given: Any) -> dict[str, Any]:
    """A compensation gets the input of what it undoes wrapped in its own."""
    content = given or {}
    if "effect_key" in content:
        content = content["input"] or {}
    return dict(content.get("do", {}).get(ctx.task, {}))


def _folder() -> Path:
    return Path(os.environ[FOLDER])


async def _gate(name: str, ctx: ActivityContext, ledger: Ledger) -> None:
    block, go = _folder() / f"{name}.block", _folder() / f"{name}.go"
    while not go.exists():
        if block.exists():
            ledger.write("blocked", ctx)
            while not go.exists():
                time.sleep(0.01)  # noqa: ASYNC251 (the whole point)
            return
        await asyncio.sleep(0.02)


@activity("shop.do")
async def do(ctx: ActivityContext, given: Any) -> Any:
    ledger, plan = Ledger(_folder()), _plan(ctx, given)
    ledger.write("began", ctx)
    if ctx.attempt <= plan.get("exit", 0):
        os._exit(9)
    gates = plan.get("gates", [])
    if ctx.attempt <= len(gates):
        await _gate(gates[ctx.attempt - 1], ctx, ledger)
    if plan.get("sleep_s"):
        await asyncio.sleep(plan["sleep_s"])
    if ctx.attempt <= plan.get("flaky", 0):
        raise ConnectionError(f"the bank did not answer attempt {ctx.attempt}")
    if plan.get("refuse"):
        raise NonRetryable("no carrier takes it", code="no_carrier")
    if plan.get("nul"):
        return {"text": "a\0b"}
    ledger.write("done", ctx)
    return plan.get("output", {"by": ctx.attempt})


@activity("shop.pack")
def pack(ctx: ActivityContext, parcel: Parcel) -> dict[str, Any]:
    """Says what it wants by its type."""
    ledger = Ledger(_folder())
    ledger.write("began", ctx)
    ledger.write("done", ctx)
    return {"weight": parcel.weight}


_EVERY = {"shop.do": do, "shop.pack": pack}
_chosen = os.environ.get(ONLY, "").split() or list(_EVERY)

worker = Worker(
    [_EVERY[name] for name in _chosen],
    concurrency=int(os.environ.get("SHOP_CONCURRENCY", "50")),
    queues=os.environ.get(QUEUES, "shop").split(),
)
