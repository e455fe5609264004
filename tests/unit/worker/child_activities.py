"""Activities for child processes: they import this module."""

import os
import signal
import sys
import time
from typing import Any

from pydantic import BaseModel

from holdfast.worker import ActivityContext, NonRetryable, RetryLater, activity


class Numbers(BaseModel):
    values: list[int]


@activity("test.sum", run_in="process")
def add(ctx: ActivityContext, numbers: Numbers) -> dict[str, Any]:
    return {"sum": sum(numbers.values), "pid": os.getpid(), "key": ctx.idempotency_key}


@activity("test.pid", run_in="process")
def pid() -> int:
    return os.getpid()


@activity("test.die", run_in="process")
def die(how: str) -> None:
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sys.exit":
        sys.exit(3)


@activity("test.poll", run_in="process")
def poll(ctx: ActivityContext) -> str:
    ctx.heartbeat({"pid": os.getpid()})
    while ctx.heartbeat():
        time.sleep(0.005)
    return f"stopped because {ctx.cancelled}"


@activity("test.until_file", run_in="process")
def until_file(ctx: ActivityContext, path: str) -> int:
    ctx.heartbeat({"pid": os.getpid()})
    while not os.path.exists(path):
        time.sleep(0.005)
    return os.getpid()


@activity("test.raise", run_in="process")
def fail(which: str) -> None:
    if which == "non_retryable":
        raise NonRetryable("never", code="never_again", details={"why": 1})
    if which == "later":
        raise RetryLater(5)
    raise ValueError("plain")


@activity("test.told", run_in="process")
def told(ctx: ActivityContext) -> list[Any]:
    return [ctx.cancelled, ctx.heartbeat()]
