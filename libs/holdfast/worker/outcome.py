"""How one run of an activity ended, as plain values: they also travel from child processes to the worker."""

from __future__ import annotations

import traceback
from typing import NamedTuple, TypeAlias

import orjson
from pydantic_core import to_json

from holdfast.core.ids import Payload
from holdfast.core.inputs import Error
from holdfast.worker.errors import NonRetryable, RetryLater

# An error is for people and dashboards and is copied into events and rows: big enough to help, never a burden.
message_chars_max = 2_000
details_bytes_max = 8_192
traceback_frames_max = 12


class Completed(NamedTuple):
    output: Payload


class Failed(NamedTuple):
    error: Error
    retryable: bool = True
    retry_in_s: float | None = None


class HandedBack(NamedTuple):
    delay_s: float


Outcome: TypeAlias = Completed | Failed | HandedBack


def clean(text: str, chars_max: int = message_chars_max) -> str:
    """Text that Postgres and Avro take: no NUL, no lone surrogates, bounded."""
    if len(text) > chars_max:
        text = text[: chars_max - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def refusal(code: str, message: str, details: object = None) -> Failed:
    """A failure that another attempt would only repeat."""
    return Failed(Error(code, clean(message), _details(details)), retryable=False)


def failure(problem: BaseException) -> Outcome:
    """What an exception from the user's code means.

    SystemExit and KeyboardInterrupt count like any other exception: an activity that calls `sys.exit()` has failed
    and the worker, which has other attempts to look after, goes on. (A signal to the worker does not come this way.)
    """
    if isinstance(problem, NonRetryable):
        return Failed(Error(clean(problem.code, 255), clean(problem.message), _details(problem.details)), False)
    if isinstance(problem, RetryLater):
        if not problem.count:
            return HandedBack(problem.delay_s)
        return Failed(_error(problem), True, problem.delay_s)
    return Failed(_error(problem))


def _error(problem: BaseException) -> Error:
    return Error(clean(type(problem).__name__, 255), clean(_text(problem)), _traceback(problem))


def _text(problem: BaseException) -> str:
    try:
        return str(problem) or repr(problem)
    except Exception:  # A broken __str__ of the user's exception must not hide the exception.
        return object.__repr__(problem)


def _traceback(problem: BaseException) -> Payload:
    frames = traceback.extract_tb(problem.__traceback__)[-traceback_frames_max:]
    lines = [clean(f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line}", 300) for frame in frames]
    summary: dict[str, object] = {"type": clean(f"{type(problem).__module__}.{type(problem).__qualname__}", 255)}
    cause = problem.__cause__ or problem.__context__
    if cause is not None:
        summary["cause"] = clean(f"{type(cause).__name__}: {_text(cause)}", 500)
    summary["traceback"] = lines
    data = orjson.dumps(summary)
    while len(data) > details_bytes_max and lines:
        del lines[0]  # The innermost frames say most.
        data = orjson.dumps(summary)
    return Payload(data)


def _details(details: object) -> Payload | None:
    if details is None:
        return None
    try:
        data = to_json(details, inf_nan_mode="strings", fallback=repr)
    except Exception as problem:
        data = orjson.dumps({"unserialisable": clean(_text(problem), 500)})
    if len(data) > details_bytes_max:
        data = orjson.dumps({"truncated": clean(data.decode("utf-8", "replace"), details_bytes_max // 4)})
    return Payload(data.replace(b"\\u0000", b"\\ufffd"))
