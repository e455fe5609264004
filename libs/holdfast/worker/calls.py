"""Calling the user's function and turning whatever happens into an outcome: on the loop, in threads, in children."""

from __future__ import annotations

from typing import Any

from holdfast.worker.activity import Activity
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


async def call_async(activity: Activity[..., Any], context: ActivityContext, payload: bytes) -> Outcome:
    try:
        arguments = activity.arguments(context, payload)
    except InputInvalid as problem:
        return refusal("input_invalid", str(problem), problem.details)
    except BaseException as problem:
        return failure(problem)
    try:
        result = await activity.fn(*arguments)
    except BaseException as problem:  # Also CancelledError: whoever finishes the attempt knows if we asked for it.
        return failure(problem)
    return completed(activity, result)


def completed(activity: Activity[..., Any], result: Any) -> Outcome:
    try:
        return Completed(activity.output.write(result))
    except OutputInvalid as problem:
        return refusal("output_invalid", str(problem))
