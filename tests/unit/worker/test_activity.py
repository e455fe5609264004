"""What can be an activity, and what is said about what cannot."""

import functools
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import ActivityContext, Worker, activity
from holdfast.worker.activity import Takes


@dataclass
class Thing:
    name: str


def both(ctx: ActivityContext, thing: Thing) -> None: ...
def only_context(ctx: ActivityContext) -> None: ...
def only_context_by_name(ctx) -> None: ...  # type: ignore[no-untyped-def]
def only_input(thing: Thing) -> None: ...
def input_called_ctx(ctx: Thing) -> None: ...
def nothing() -> None: ...
def untyped(ctx, thing) -> None: ...  # type: ignore[no-untyped-def]
def with_default(ctx: ActivityContext, thing: Thing, *, retries: int = 3) -> None: ...
def quoted(ctx: "ActivityContext", thing: "Thing") -> None: ...


@pytest.mark.parametrize(
    ("fn", "takes"),
    [
        (both, Takes.BOTH),
        (only_context, Takes.CONTEXT),
        (only_context_by_name, Takes.CONTEXT),
        (only_input, Takes.INPUT),
        (input_called_ctx, Takes.INPUT),
        (nothing, Takes.NOTHING),
        (untyped, Takes.BOTH),
        (with_default, Takes.BOTH),
        (quoted, Takes.BOTH),
    ],
)
def test_the_parameters_say_what_it_takes(fn: Any, takes: Takes) -> None:
    assert activity("a.b")(fn).takes is takes


def three(ctx: ActivityContext, a: int, b: int) -> None: ...
def wrong_way_round(thing: Thing, ctx: ActivityContext) -> None: ...
def demands_keyword(ctx: ActivityContext, *, key: str) -> None: ...
def two_inputs(a: int, b: int) -> None: ...
def generator(a: int) -> Any:
    yield a


async def async_generator(a: int) -> Any:
    yield a


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (three, "(ctx, a, b)"),
        (wrong_way_round, "(thing, ctx)"),
        (demands_keyword, "'key'"),
        (two_inputs, "(a, b)"),
        (generator, "generator"),
        (async_generator, "generator"),
        (3, "function"),
    ],
)
def test_a_function_that_cannot_be_an_activity_is_refused_when_it_is_decorated(fn: Any, says: str) -> None:
    with pytest.raises(TypeError) as refused:
        activity("a.b")(fn)
    assert says in str(refused.value)
    assert "a.b" in str(refused.value)


@pytest.mark.parametrize("name", ["", ".", "a..b", "a b", "a/b", ".a", "a.", "ä.b", "a\0", "x" * 256])
def test_a_strange_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name for an activity"):
        activity(name)


def test_forgetting_the_name_is_explained() -> None:
    with pytest.raises(TypeError, match="needs a name"):
        activity(both)  # type: ignore[arg-type]


def test_the_queue_is_the_first_part_of_the_name() -> None:
    assert activity("payment.charge")(nothing).queue == "payment"
    assert activity("ping")(nothing).queue == "default"


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("fn", "run_in", "says"),
    [
        (coroutine, "thread", "is async"),
        (coroutine, "process", "is async"),
        (nothing, "moon", "run_in is"),
        (lambda: None, "process", "top of a module"),
    ],
)
def test_where_it_cannot_run_is_said_at_once(fn: Any, run_in: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        activity("a.b", run_in=run_in)(fn)


def test_methods_partials_and_objects_can_be_activities() -> None:
    class Shop:
        async def charge(self, ctx: ActivityContext, thing: Thing) -> None: ...
        async def __call__(self, thing: Thing) -> None: ...

    method: Any = activity("a.method")(Shop().charge)
    part: Any = activity("a.partial")(functools.partial(both, ActivityContext))  # type: ignore[arg-type]
    callable_object: Any = activity("a.object")(Shop())
    Worker([method, part, callable_object])
    assert (method.takes, method.is_async) == (Takes.BOTH, True)
    assert (part.takes, part.is_async) == (Takes.INPUT, False)
    assert (callable_object.takes, callable_object.is_async) == (Takes.INPUT, True)


def test_calling_an_activity_calls_the_function() -> None:
    @activity("a.b")
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert double.__name__ == "double"


def unresolvable(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_an_annotation_that_cannot_be_resolved_is_refused_when_the_worker_is_made() -> None:
    broken: Any = activity("a.b")(unresolvable)
    with pytest.raises(TypeError, match=r"'a\.b'.*Nowhere"):
        Worker([broken])


def test_a_worker_refuses_what_makes_no_sense() -> None:
    one: Any = activity("a.b")(nothing)
    for arguments, says in [
        (([],), "at least one activity"),
        (([one, one],), "two activities"),
        (([nothing],), "no activity"),
    ]:
        with pytest.raises((TypeError, ValueError), match=says):
            Worker(*arguments)
    with pytest.raises(ValueError, match="concurrency"):
        Worker([one], concurrency=0)
    with pytest.raises(TypeError, match="list of names"):
        Worker([one], queues="a")
    assert Worker([one, activity("c.d")(nothing)]).queues == ("a", "c")  # type: ignore[list-item]
    assert Worker([one], queues=["x"]).queues == ("x",)
