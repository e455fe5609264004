import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.definition_model import duration_s
from holdfast.contracts.definitions import DefinitionInvalid, compile_definition, parse_definition
from holdfast.core.definition import Publish, RetryPolicy, TaskKind
from holdfast.core.ids import TaskPath

_ORDER = """
namespace: orders
workflow: order-fulfillment
version: 1
deadline: PT1H
tasks:
  reserve:  {activity: inventory.reserve, compensate: release}
  charge:   {activity: payment.charge, after: [reserve], compensate: refund,
             retry: {max_attempts: 5, initial: PT1S, factor: 3, cap: PT5M, jitter: 0.25},
             timeout: PT30S, queue_timeout: PT1H, lease: PT20S}
  cool_off: {sleep: PT10M, after: [charge], when: "input.amount > 1000"}
  ship:     {activity: shipping.create, after: [cool_off], run_if_skipped: true,
             input: "{'order': input, 'payment': tasks.charge.output}"}
  notify:   {activity: mail, after: [ship]}
  release:  {activity: inventory.release, compensation: true}
  refund:   {activity: payment.refund, compensation: true, queue: slow-lane}
output: "{'tracking': tasks.ship.output.tracking}"
"""


def _problems(source: Any) -> dict[str, str]:
    with pytest.raises(DefinitionInvalid) as invalid:
        parse_definition(source)
    return {problem.path: problem.message for problem in invalid.value.problems}


def _with(**tasks: Any) -> dict[str, Any]:
    return {"namespace": "orders", "workflow": "w", "version": 1, "tasks": {"a": {"activity": "x.y"}} | tasks}


def test_the_order_saga_becomes_what_the_kernel_runs() -> None:
    body, definition = parse_definition(_ORDER)
    assert (definition.namespace, definition.name, definition.version) == ("orders", "order-fulfillment", 1)
    assert definition.deadline_s == 3_600
    assert definition.publish is Publish.ALL
    charge = definition.tasks[TaskPath("charge")]
    assert charge.retry == RetryPolicy(5, 1.0, 3.0, 300.0, 0.25)
    assert (charge.timeout_s, charge.queue_timeout_s, charge.lease_s) == (30, 3_600, 20)
    assert (charge.queue, charge.after, charge.compensate) == ("payment", ("reserve",), "refund")
    assert definition.tasks[TaskPath("cool_off")].kind is TaskKind.SLEEP
    assert definition.tasks[TaskPath("cool_off")].sleep_s == 600
    assert definition.tasks[TaskPath("notify")].queue == "default"
    assert definition.tasks[TaskPath("refund")].queue == "slow-lane"
    assert definition.roots == ("reserve",)
    assert definition.undoes == {"release": "reserve", "refund": "charge"}
    assert compile_definition(json.loads(json.dumps(body))) == definition


def test_defaults_are_those_of_the_architecture() -> None:
    _, definition = parse_definition(_with())
    task = definition.tasks[TaskPath("a")]
    assert task.retry == RetryPolicy(3, 1.0, 2.0, 300.0, 0.5)
    assert (task.timeout_s, task.queue_timeout_s, task.lease_s) == (86_400, None, 30)
    assert (definition.deadline_s, definition.drain_timeout_s) == (None, None)


def test_json_text_and_plain_data_are_taken_as_well() -> None:
    assert (
        parse_definition(json.dumps(_with()))
        == parse_definition(_with())
        == parse_definition(json.dumps(_with()).encode())
    )


def test_five_mistakes_are_reported_at_once_each_with_its_path() -> None:
    problems = _problems("""
namespace: orders
workflow: order-fulfillment
version: 1
tasks:
  reserve: {activity: inventory.reserve, compensate: releas}
  charge:  {activity: payment.charge, after: [reserv], retry: {max_attempts: 0}}
  ship:    {activity: shipping.create, after: [charge], when: "input.amount >", timout: PT1S}
  release: {activity: inventory.release, compensation: true}
""")
    assert problems["tasks.charge.retry.max_attempts"] == "must be at least 1"
    assert problems["tasks.charge.after[0]"] == "there is no task `reserv`, did you mean `reserve`?"
    assert problems["tasks.reserve.compensate"] == "there is no task `releas`, did you mean `release`?"
    assert problems["tasks.ship.timout"] == "is not a known field, did you mean `timeout`?"
    assert problems["tasks.ship.when"].startswith("does not compile: Syntax error")
    assert problems["tasks.release"] == "is marked `compensation: true`, but no task names it in `compensate`"
    assert len(problems) == 6


_A = {"activity": "x.y"}


@pytest.mark.parametrize(
    ("tasks", "path", "says"),
    [
        # types and ranges
        ({"b": {"activity": 1}}, "tasks.b.activity", "must be text"),
        ({"b": {"activity": "a b"}}, "tasks.b.activity", "letters, digits"),
        ({"b": 7}, "tasks.b", "must be a mapping"),
        ({"b": {**_A, "after": "a"}}, "tasks.b.after", "must be a list"),
        ({"b": {**_A, "after": [1]}}, "tasks.b.after[0]", "must be text"),
        ({"b": {**_A, "timeout": 30}}, "tasks.b.timeout", "must be an ISO-8601 duration such as PT30S"),
        ({"b": {**_A, "timeout": "30s"}}, "tasks.b.timeout", "must be an ISO-8601 duration such as PT30S"),
        ({"b": {**_A, "timeout": "PT0S"}}, "tasks.b.timeout", "must be longer than zero"),
        ({"b": {**_A, "timeout": "P1Y"}}, "tasks.b.timeout", "must be an ISO-8601 duration"),
        ({"b": {**_A, "timeout": "P9999W"}}, "tasks.b.timeout", "at most P3650D"),
        ({"b": {**_A, "lease": "PT0.5S"}}, "tasks.b.lease", "between PT1S and P1D"),
        ({"b": {**_A, "queue": "a/b"}}, "tasks.b.queue", "letters, digits"),
        ({"b": {**_A, "compensation": "yes"}}, "tasks.b.compensation", "must be true or false"),
        ({"b": {**_A, "retry": {"factor": 0.5}}}, "tasks.b.retry.factor", "must be at least 1"),
        ({"b": {**_A, "retry": {"jitter": 2}}}, "tasks.b.retry.jitter", "must be at most 1"),
        ({"b": {**_A, "retry": {"max_attempts": 1.5}}}, "tasks.b.retry.max_attempts", "must be a whole number"),
        ({"b": {**_A, "retry": {"factor": float("inf")}}}, "tasks.b.retry.factor", "must be a finite number"),
        ({"b-c": _A}, "tasks.b-c", "no digit first"),
        ({"x" * 256: _A}, "tasks." + "x" * 256, "at most 255"),
        # kinds
        ({"b": {}}, "tasks.b", "needs `activity` or `sleep`"),
        ({"b": {**_A, "sleep": "PT1S"}}, "tasks.b", "has both"),
        ({"b": {"sleep": "PT1S", "retry": {}}}, "tasks.b.retry", "a sleep does not take this field"),
        ({"b": {"sleep": "PT1S", "input": "1"}}, "tasks.b.input", "a sleep does not take this field"),
        ({"b": {"signal": "approved"}}, "tasks.b.signal", "is not available in this version yet"),
        ({"b": {"human": {"roles": ["x"]}}}, "tasks.b.human", "is not available in this version yet"),
        ({"b": {**_A, "for_each": "input"}}, "tasks.b.for_each", "is not available in this version yet"),
        ({"b": {"workflow": "billing/invoice"}}, "tasks.b.workflow", "is not available in this version yet"),
        ({"b": {**_A, "join": "any"}}, "tasks.b.join", "is not available in this version yet"),
        # references
        ({"b": {**_A, "after": ["c"]}}, "tasks.b.after[0]", "there is no task `c`"),
        ({"b": {**_A, "after": ["a", "a"]}}, "tasks.b.after[1]", "named twice"),
        ({"b": {**_A, "after": ["b"]}}, "tasks.b.after", "in a circle: b -> b"),
        ({"b": {**_A, "after": ["c"]}, "c": {**_A, "after": ["b"]}}, "tasks.c.after", "in a circle: b -> c -> b"),
        # expressions
        ({"b": {**_A, "when": "1 + 1"}}, "tasks.b.when", "must be true or false"),
        ({"b": {**_A, "input": "foo(1)"}}, "tasks.b.input", "undeclared reference to 'foo'"),
        ({"b": {**_A, "input": "tasks.a.output"}}, "tasks.b.input", "need not have ended by then: add it to `after`"),
        ({"b": {**_A, "input": "tasks.b.output"}}, "tasks.b.input", "need not have ended"),
        ({"b": {**_A, "input": "tasks.aa.output"}}, "tasks.b.input", "does not exist, did you mean `a`?"),
        ({"b": {**_A, "input": "tasks"}}, "tasks.b.input", "tasks.<id>.output or tasks.<id>.state"),
    ],
)
def test_each_mistake_has_its_path_and_says_what_is_wrong(tasks: dict[str, Any], path: str, says: str) -> None:
    problems = _problems(_with(**tasks))
    assert path in problems, problems
    assert says in problems[path]
    assert len(problems) == 1


_UNDO = {"activity": "x.undo", "compensation": True}


@pytest.mark.parametrize(
    ("tasks", "path", "says"),
    [
        ({"b": {**_A, "compensate": "u"}}, "tasks.b.compensate", "there is no task `u`"),
        ({"b": {**_A, "compensate": "a"}}, "tasks.b.compensate", "`a` is not marked `compensation: true`"),
        ({"u": _UNDO}, "tasks.u", "no task names it in `compensate`"),
        (
            {"b": {**_A, "compensate": "u"}, "c": {**_A, "compensate": "u"}, "u": _UNDO},
            "tasks.c.compensate",
            "`u` already undoes `b`",
        ),
        ({"b": {**_A, "compensate": "u"}, "u": {**_UNDO, "after": ["a"]}}, "tasks.u.after", "does not take this field"),
        ({"b": {**_A, "compensate": "u"}, "u": {**_UNDO, "when": "true"}}, "tasks.u.when", "does not take this field"),
        ({"b": {**_A, "compensate": "u"}, "u": {**_UNDO, "input": "1"}}, "tasks.u.input", "always gets {input, output"),
        (
            {"b": {**_A, "compensate": "u"}, "u": {**_UNDO, "compensate": "b"}},
            "tasks.u.compensate",
            "a compensation cannot be compensated",
        ),
        (
            {"b": {**_A, "compensate": "u"}, "u": _UNDO, "c": {**_A, "after": ["u"]}},
            "tasks.c.after[0]",
            "`u` is a compensation: nothing can come after it",
        ),
        (
            {"b": {**_A, "compensate": "u"}, "u": {"sleep": "PT1S", "compensation": True}},
            "tasks.u.compensation",
            "a sleep cannot be a compensation",
        ),
        (
            {"b": {**_A, "compensate": "u"}, "u": _UNDO, "c": {**_A, "input": "tasks.u.output"}},
            "tasks.c.input",
            "is a compensation and has no output",
        ),
    ],
)
def test_a_compensation_belongs_to_one_task_and_runs_only_to_undo_it(
    tasks: dict[str, Any], path: str, says: str
) -> None:
    problems = _problems(_with(**tasks))
    assert path in problems, problems
    assert says in problems[path]
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("changed", "path", "says"),
    [
        ({"namespace": None}, "namespace", "must be text"),
        ({"namespace": "a/b"}, "namespace", "letters, digits"),
        ({"version": 0}, "version", "must be at least 1"),
        ({"version": "1"}, "version", "must be a whole number"),
        ({"version": True}, "version", "must be a whole number"),
        ({"publish": "none"}, "publish", "must be 'all' or 'lifecycle'"),
        ({"deadlin": "PT1H"}, "deadlin", "did you mean `deadline`?"),
        ({"retry": {}}, "retry", "is not available in this version yet"),
        ({"schedules": []}, "schedules", "is not available in this version yet"),
        ({"output": "tasks.b.output"}, "output", "does not exist"),
        ({"output": "1 +"}, "output", "does not compile"),
        ({"tasks": {}}, "tasks", "must not be empty"),
        ({"tasks": [1]}, "tasks", "must be a mapping"),
        ({"tasks": {f"t{n}": _A for n in range(501)}}, "tasks", "has 501 tasks, at most 500"),
        ({"tasks": {"a": {**_A, "input": '"' + "x" * 300_000 + '"'}}}, "", "at most 262144"),
    ],
)
def test_mistakes_of_the_whole(changed: dict[str, Any], path: str, says: str) -> None:
    problems = _problems(_with() | changed)
    assert path in problems, problems
    assert says in problems[path]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be a mapping"),
        ("[]", "must be a mapping"),
        ("a: b: c", "neither YAML nor JSON"),
        ("{", "neither YAML nor JSON"),
        (b"\xff", "not UTF-8"),
        ("!!python/object/apply:os.system [ls]", "neither YAML nor JSON"),
        ('{"tasks": {}, "tasks": {}}', "the key 'tasks' twice"),
        ("tasks:\n  a: {activity: x}\n  a: {activity: y}", "the key 'a' twice (line 3)"),
        ("a: &a [*a]", "nested too deeply"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [" + "*a," * 100 + "]\nc: &c [" + "*b," * 100 + "]",
            "more than 50000 parts",
        ),
        ("[" * 5_000, "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a":' * 40_000 + "1" + "}" * 40_000, "nested too deeply"),
        ("a: " + "x" * 300_000, "longer than 256 KiB"),
    ],
)
def test_text_that_is_no_definition_says_why(text: str | bytes, says: str) -> None:
    [message] = _problems(text).values()
    assert says in message


def test_yaml_anchors_are_fine() -> None:
    text = """
namespace: orders
workflow: w
version: 1
tasks:
  a: {activity: x.y, retry: &often {max_attempts: 9}}
  b: {activity: x.z, retry: *often}
"""
    _, definition = parse_definition(text)
    assert definition.tasks[TaskPath("b")].retry.attempts_max == 9


def test_two_cycles_are_both_reported() -> None:
    tasks = {name: {**_A, "after": [after]} for name, after in (("p", "q"), ("q", "p"), ("r", "s"), ("s", "r"))}
    problems = _problems(_with(**tasks))
    assert len(problems) == 2
    assert all("in a circle" in message for message in problems.values())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT30S", 30), ("PT0.5S", 0.5), ("PT1H30M", 5_400), ("P1DT1S", 86_401), ("P2W", 1_209_600), ("PT0S", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1S", "P1M", "PT1D", "-PT1S", "PT1S ", "pt1s", "PT1.5H", "PT٣S"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="must be an ISO-8601 duration"):
        duration_s(text)


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_fields = st.sampled_from(
    ["activity", "sleep", "after", "when", "input", "retry", "timeout", "lease", "compensate", "compensation", "queue"]
)
_words = st.sampled_from(["a", "b", "x.y", "PT1S", "tasks.a.output", "input.x", "true", True, ["a"], ["b"], {}])
_tasks = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d-e"]), st.dictionaries(_fields, _words | _junk, max_size=4) | _junk, max_size=4
)


@given(_tasks, st.dictionaries(st.sampled_from(["version", "output", "deadline", "publish", "x"]), _words | _junk))
def test_any_document_is_a_definition_or_a_list_of_problems(tasks: Any, changed: dict[str, Any]) -> None:
    body = {"namespace": "orders", "workflow": "w", "version": 1, "tasks": tasks} | changed
    try:
        parse_definition(body)
    except DefinitionInvalid as invalid:
        problems = invalid.problems
    else:
        problems = []
    assert all(problem.message for problem in problems)


@given(st.text(max_size=80) | st.binary(max_size=80))
def test_any_text_is_a_definition_or_a_list_of_problems(text: str | bytes) -> None:
    with pytest.raises(DefinitionInvalid):
        parse_definition(text)


def test_the_error_survives_pickling() -> None:
    with pytest.raises(DefinitionInvalid) as invalid:
        parse_definition({})
    assert pickle.loads(pickle.dumps(invalid.value)).problems == invalid.value.problems
