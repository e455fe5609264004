"""Calling the user's function and turning whatever happens into an outcome: on the loop, in threads, in children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.worker.activity import Activity
from holdfast.worker.attempt import Attempt
from holdfast.worker.context import ActivityContext
from holdfast.worker.outcome import Completed, Outcome, failure, refusal
from holdfast.worker.payloads import InputInvalid, OutputInvalid


def call(activity: Activity[..., Any], context: ActivityContext, payload: bytes) -> Outcome:
    try:
        arguments = activity.arguments(context, payload)
    except InputInvalid as problem:
        return refusal("input_invalid", str(problem), problem.details)
    except BaseException as problem:  # A validator of the user's may raise anything.
        return failure(problem)
    try:
        result = activity.fn(*arguments)
    except BaseException as problem:  # See `failure`: also SystemExit must not end the worker.
        return failure(problem)
    return completed(activity, result)


async def run_async(
    attempt: Attempt, activity: Activity[..., Any], finish: Callable[[Attempt, Outcome | None], None]
) -> None:
    """The same for a coroutine. One function and not three, because every coroutine in the chain costs its part."""
    # A task that is cancelled before its first step never gets here, so the engine leaves those to this check.
    if attempt.stop is not None:
        finish(attempt, None)
        return
    attempt.entered = True
    try:
        arguments = activity.arguments(attempt.context(), attempt.dispatch.input)
    except InputInvalid as problem:
        finish(attempt, refusal("input_invalid", str(problem), problem.details))
        return
    except BaseException as problem:
        finish(attempt, failure(problem))
        return
    try:
        result = await activity.fn(*arguments)
    except BaseException as problem:  # Also CancelledError: whoever finishes the attempt knows if we asked for it.
        finish(attempt, failure(problem))
        return
    finish(attempt, completed(activity, result))


def completed(activity: Activity[..., Any], result: Any) -> Outcome:
    try:
        return Completed(activity.output.write(result))
    except OutputInvalid as problem:
        return refusal("output_invalid", str(problem))
