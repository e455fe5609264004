"""`@activity`: a function of the user's, its name, where it runs, and how JSON becomes its argument.

What can be wrong with the function is said when it is decorated. Only its annotations wait until a worker is made
(or the activity is first used), because they may name classes that are defined further down in the module.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast.worker.context import ActivityContext
from holdfast.worker.payloads import Input, Output

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_name_bytes_max = 255


class RunIn(StrEnum):
    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


class Takes(StrEnum):
    """Which arguments the function wants."""

    NOTHING = "nothing"
    CONTEXT = "context"
    INPUT = "input"
    BOTH = "both"


class Activity(Generic[P, R]):
    """What `@activity` makes of a function. Calling it calls the function, so that it can be tested as it is."""

    def __init__(self, name: str, fn: Callable[P, R], run_in: RunIn, is_async: bool) -> None:
        self.name = name
        self.fn = fn
        self.run_in = run_in
        self.is_async = is_async
        self.takes, self._input_parameter = _shape(fn, f"activity {name!r}")
        self._input: Input | None = None
        self._output: Output | None = None
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<activity {self.name}>"

    @property
    def queue(self) -> str:
        """The first part of the name, or `default` where the name has no dot."""
        return queue_of(self.name)

    def prepare(self) -> None:
        """Resolve the annotations and build what reads the input and writes the output, once."""
        if self._output is not None:
            return
        hints = _hints(self.fn, self.name)
        wanted = hints.get(self._input_parameter, Any) if self._input_parameter else Any
        try:
            self._input = Input(wanted)
            self._output = Output(hints.get("return", Any))
        except Exception as problem:
            raise TypeError(f"activity {self.name!r}: cannot turn JSON into its types: {problem}") from problem

    @property
    def input(self) -> Input:
        self.prepare()
        assert self._input is not None
        return self._input

    @property
    def output(self) -> Output:
        self.prepare()
        assert self._output is not None
        return self._output

    def arguments(self, context: ActivityContext, payload: bytes) -> tuple[Any, ...]:
        """Raises InputInvalid where the payload does not fit."""
        match self.takes:
            case Takes.BOTH:
                return (context, self.input.read(payload))
            case Takes.INPUT:
                return (self.input.read(payload),)
            case Takes.CONTEXT:
                return (context,)
            case Takes.NOTHING:
                return ()


def activity(
    name: str, *, run_in: typing.Literal["loop", "thread", "process"] | None = None
) -> Callable[[Callable[P, R]], Activity[P, R]]:
    """Make a function an activity: `@activity("payment.charge")`.

    It may take the context, the input, both (context first) or nothing. Async functions run on the event loop, others
    in threads; `run_in="process"` is for functions that keep the CPU busy, which would stop everything else in the
    worker, and `run_in="loop"` for sync ones that are done at once. Lease, retries and time-out come from the
    workflow's definition.
    """
    if not isinstance(name, str):
        raise TypeError('an activity needs a name: @activity("payment.charge")')
    if not _NAME.fullmatch(name) or len(name.encode()) > _name_bytes_max:
        raise ValueError(
            f"{name!r} is no name for an activity: use letters, digits, _ and -, with dots between parts, "
            f"like 'payment.charge' (at most {_name_bytes_max} bytes)"
        )

    def decorate(fn: Callable[P, R]) -> Activity[P, R]:
        if isinstance(fn, Activity):
            raise TypeError(f"activity {name!r}: this function is an activity already ({fn.name!r})")
        if not callable(fn):
            raise TypeError(f"activity {name!r} must be a function, not {type(fn).__name__}")
        is_async = _is_async(fn, name)
        return Activity(name, fn, _where(name, fn, run_in, is_async), is_async)

    return decorate


def queue_of(activity_name: str) -> str:
    area, dot, _ = activity_name.partition(".")
    return area if dot else "default"


def find_activity(module: object, qualname: str, name: str) -> Activity[..., Any]:
    """The activity that a child process is asked to run, found again by where it was written."""
    found = functools.reduce(getattr, qualname.split("."), module)
    if not isinstance(found, Activity) or found.name != name:
        raise TypeError(f"{qualname} of {module!r} is not the activity {name!r}")
    return found


def _is_async(fn: Callable[..., Any], name: str) -> bool:
    bare = fn
    while isinstance(bare, functools.partial):
        bare = bare.func
    # A callable object is async if its __call__ is. Looked up on the type, as Python itself does.
    candidates = (bare, type(bare).__call__)
    if any(inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each) for each in candidates):
        raise TypeError(f"activity {name!r} is a generator: an activity returns one result")
    return any(inspect.iscoroutinefunction(each) for each in candidates)


def _where(name: str, fn: Callable[..., Any], run_in: str | None, is_async: bool) -> RunIn:
    if run_in is None:
        return RunIn.LOOP if is_async else RunIn.THREAD
    try:
        where = RunIn(run_in)
    except ValueError:
        raise ValueError(f"activity {name!r}: run_in is 'loop', 'thread' or 'process', not {run_in!r}") from None
    if is_async and where is not RunIn.LOOP:
        raise TypeError(f"activity {name!r} is async and runs on the loop; make it a plain function for a {where}")
    if where is RunIn.PROCESS:
        qualname = getattr(fn, "__qualname__", "<object>")
        if "<" in qualname or inspect.ismethod(fn):
            raise TypeError(
                f"activity {name!r}: a child process imports its function, so it must be written at the top "
                f"of a module, not be {qualname}"
            )
    return where


def _shape(fn: Callable[..., Any], label: str) -> tuple[Takes, str | None]:
    """Which arguments it takes, and the name of the one that gets the input."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as problem:
        raise TypeError(f"{label}: its parameters cannot be found out: {problem}") from None
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    demanded = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if demanded:
        raise TypeError(f"{label} demands the keyword {demanded[0]!r}, which no workflow can give")
    while len(named) > 1 and named[-1].default is not inspect.Parameter.empty and not _may_be_input(named):
        named.pop()  # Further parameters with defaults are the function's own business.
    contexts = [index for index, p in enumerate(named) if _is_context(p, first=index == 0)]
    if len(named) > 2 or (len(named) == 2 and contexts != [0]):
        raise TypeError(f"{label} takes {_list(named)}; it may take (ctx, input), (ctx), (input) or nothing")
    if not named:
        return Takes.NOTHING, None
    if len(named) == 2:
        return Takes.BOTH, named[1].name
    return (Takes.CONTEXT, None) if contexts else (Takes.INPUT, named[0].name)


def _may_be_input(named: Sequence[inspect.Parameter]) -> bool:
    return len(named) == 2 and _is_context(named[0], first=True)


def _is_context(parameter: inspect.Parameter, first: bool) -> bool:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return first and parameter.name in ("ctx", "context", "_ctx", "_")
    if isinstance(annotation, str):  # from __future__ import annotations
        return annotation.strip("'\"").rpartition(".")[2] == ActivityContext.__name__
    return annotation is ActivityContext


def _list(parameters: Sequence[inspect.Parameter]) -> str:
    return "(" + ", ".join(p.name for p in parameters) + ")"


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    bare: Any = fn
    while isinstance(bare, functools.partial):
        bare = bare.func
    if not inspect.isroutine(bare):
        bare = type(bare).__call__
    try:
        return typing.get_type_hints(bare, include_extras=True)
    except Exception as problem:
        raise TypeError(f"activity {name!r}: an annotation cannot be resolved: {problem}") from problem
