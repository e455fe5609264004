import time
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.expressions import ExpressionInvalid, PathExpression, compile_expression
from holdfast.contracts.references import find_references, pick
from holdfast.core.definition import ExpressionFailed
from holdfast.core.ids import NULL, Payload, TaskPath
from holdfast.core.transitions import TaskStatus
from tests.unit.contracts import shapes


@dataclass
class _Scope:
    input: Payload = NULL
    outputs: dict[str, Payload] = field(default_factory=dict)
    states: dict[str, TaskStatus] = field(default_factory=dict)

    def output(self, path: TaskPath) -> Payload | None:
        return self.outputs.get(path)

    def status(self, path: TaskPath) -> TaskStatus:
        return self.states.get(path, TaskStatus.PENDING)


_ORDER = Payload(
    b'{"amount": 1500.5, "n": 3, "lines": [{"sku": "a"}, {"sku": "b"}], "who": {"name": "Ann"}, "none": null}'
)
_SCOPE = _Scope(_ORDER, {"charge": Payload(b'{"id":"c-1"}')}, {"charge": TaskStatus.COMPLETED})


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("input.amount > 1000", True),
        ("input.n + 1", 4),
        ("input.n == 3.0", True),
        ("{'order': input.who, 'payment': tasks.charge.output}", {"order": {"name": "Ann"}, "payment": {"id": "c-1"}}),
        ("input.lines.map(line, line.sku)", ["a", "b"]),
        ("input.lines.exists(line, line.sku == 'b')", True),
        ("has(input.coupon) ? input.coupon : 'none'", "none"),
        ("has(input.who.name)", True),
        ("tasks.charge.state == 'COMPLETED'", True),
        ("tasks['charge'].output['id']", "c-1"),
        ("tasks.skipped.output == null", True),
        (".input.n", 3),
        ("input['n']", 3),
        ("'input.who' + input.who.name", "input.whoAnn"),
        ("r'input\\d' + \"tasks.x.output\"", "input\\dtasks.x.output"),
        ("[1].map(input, input)", [1]),
        ("size(input.lines)", 2),
        ("size(input)", 5),
        ("[null, 1.5, 'a', {'b': [true]}]", [None, 1.5, "a", {"b": [True]}]),
        ("input.none", None),
        ("input.n // tasks.charge.output", 3),
    ],
)
def test_what_an_expression_gives(source: str, result: object) -> None:
    assert orjson.loads(compile_expression(source).evaluate(_SCOPE)) == result


@pytest.mark.parametrize("source", ["input", "input.who", " input.who.name ", "tasks.charge.output.id", "input.lines"])
def test_a_plain_path_gives_what_cel_gives(source: str) -> None:
    path = compile_expression(source)
    assert isinstance(path, PathExpression)
    slow = compile_expression(f"({source})")
    assert not isinstance(slow, PathExpression)
    assert orjson.loads(path.evaluate(_SCOPE)) == orjson.loads(slow.evaluate(_SCOPE))


def test_a_plain_path_leaves_the_bytes_as_they_are() -> None:
    scope = _Scope(Payload(b'{"big": 123456789012345678901234567890, "e": 1.50}'))
    assert compile_expression("input.big").evaluate(scope) == b"123456789012345678901234567890"
    assert compile_expression("input.e").evaluate(scope) == b"1.50"
    assert compile_expression("input").evaluate(scope) == scope.input


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("input.coupon", "no field 'coupon'"),
        ("input.amount.x", "Expected `object`, got `float`"),
        ("input.coupon == 1", "coupon"),
        ("input.n + 'a'", "No matching overloads|overload"),
        ("9223372036854775807 + input.n", "overflow"),
        ("input.n / 0", "divide by zero"),
        ("input.n % 0", "modulus by zero"),
        ("-(-9223372036854775807 - 1)", "overflow"),
        ("int(1e300)", "range"),
        ("input.lines[5]", "index=5"),
        ("1.0 / 0.0", "NaN or Infinity"),
        ("{'a': [null, 0.0 / 0.0]}", "NaN or Infinity"),
        ("b'abc'", "not JSON"),
        ("{1: 2}", "not JSON"),
        ("timestamp('2026-01-01T00:00:00Z')", "not JSON"),
        ("type(1)", "not JSON"),
        ("{'a': 1, 'a': 2}", "duplicate key"),
        ("'a'.matches('(')", "regular expression"),
        ("input.lines.map(a, input.lines.map(b, input.lines.map(c, 'x' + 1 )))", "overload"),
    ],
)
def test_a_failure_at_run_time_is_an_expression_failed_and_nothing_else(source: str, says: str) -> None:
    try:
        expression = compile_expression(source)
    except ExpressionInvalid as invalid:  # Some are found when compiling, which is earlier and as good.
        message = str(invalid)
    else:
        with pytest.raises(ExpressionFailed) as failed:
            expression.evaluate(_SCOPE)
        message = str(failed.value)
    assert any(part in message for part in says.split("|")), message
    assert len(message) <= 500


def test_numbers_beyond_64_bits_fail_instead_of_losing_digits() -> None:
    scope = _Scope(Payload(b'{"big": 123456789012345678901234567890}'))
    with pytest.raises(ExpressionFailed, match="out of range"):
        compile_expression("{'big': input.big}").evaluate(scope)


def test_a_condition_must_be_true_or_false() -> None:
    assert compile_expression("input.amount > 1000").holds(_SCOPE) is True
    assert compile_expression("input.amount < 1000").holds(_SCOPE) is False
    with pytest.raises(ExpressionFailed, match="must be true or false, is int"):
        compile_expression("input.n").holds(_SCOPE)
    with pytest.raises(ExpressionFailed, match="must be true or false, is NoneType"):
        compile_expression("input.none").holds(_SCOPE)
    assert not compile_expression("1 + 1").may_be_bool
    assert compile_expression("input.flag").may_be_bool


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "does not compile"),
        ("input.n +", "line 1, column 10"),
        ("foo(1)", "undeclared reference to 'foo'"),
        ("output.x", "undeclared reference to 'output.x'"),
        ("1 + 'a'", "no matching overload"),
        ("has(input)", "has"),
        ("99999999999999999999", "int literal"),
        ("'a\ud800'", "does not compile"),
        ("'a\0'", "NUL"),
        ("tasks", "tasks.<id>.output or tasks.<id>.state"),
        ("tasks.charge", "tasks.<id>.output"),
        ("tasks.charge.error", "tasks.<id>.output"),
        ("size(tasks)", "tasks.<id>.output"),
        ("tasks[input.n].output", "tasks.<id>.output"),
        ("[1].map(x, tasks)", "tasks.<id>.output"),
        ("'x' == '" + "a" * 5_000 + "'", "at most 4096"),
        ("[1]" + ".map(a, a)" * 9, "at most 8"),
    ],
)
def test_a_source_that_makes_no_sense_is_invalid(source: str, says: str) -> None:
    with pytest.raises(ExpressionInvalid, match=says):
        compile_expression(source)


_TEN = "[1,2,3,4,5,6,7,8,9,10]"


@pytest.mark.parametrize(
    "source",
    [
        "(" * 2_000 + "1" + ")" * 2_000,
        "[" * 2_000 + "1" + "]" * 2_000,
        "1" + "+1" * 2_000,
        "-" * 4_000 + "1",
        "!" * 4_000 + "true",
        "true ? 1 : " * 300 + "1",
        "input" + ".a" * 2_000,
        "input" + "[0]" * 1_300,
        f"{_TEN}.map(a, " * 8 + "1" + ")" * 8,
        f"{_TEN}.all(a, " * 8 + "true" + ")" * 8,
        "'" + "a" * 60 + "!'.matches('(a+)+$')",
        "'a'.matches('(a{1000}){1000}')",
        "duration('999999999999999999h') == duration('1s')",
        "timestamp('9999-12-31T23:59:59Z') + duration('10000000h') == timestamp('2020-01-01T00:00:00Z')",
    ],
)
def test_a_hostile_expression_ends_soon_and_quietly(source: str) -> None:
    begun = time.monotonic()
    try:
        compile_expression(source).evaluate(_SCOPE)
    except (ExpressionInvalid, ExpressionFailed) as error:
        message = str(error)
    else:
        message = ""
    assert len(message) <= 500
    assert time.monotonic() - begun < 2


@given(st.text(alphabet="inputasks.chrge[]()'\"+-*/%<>=!&|?:,{}0123456789 \\rb\n", max_size=40))
def test_any_text_is_invalid_or_an_expression_that_gives_json_or_fails(source: str) -> None:
    try:
        expression = compile_expression(source)
    except ExpressionInvalid:
        return
    try:
        orjson.loads(expression.evaluate(_SCOPE))
        expression.holds(_SCOPE)
    except ExpressionFailed:
        pass


@given(shapes.payloads)
def test_any_payload_goes_through_cel_unharmed_or_fails(payload: Payload) -> None:
    scope = _Scope(orjson_object(payload))
    assert orjson.loads(compile_expression("{'v': input.v}").evaluate(scope)) == orjson.loads(scope.input)


def orjson_object(payload: Payload) -> Payload:
    return Payload(b'{"v":' + payload + b"}")


def test_only_what_is_named_is_handed_over() -> None:
    found = find_references("input.a.b + input.a.c.size() + tasks.x.output.id + tasks.y.state + tasks['z'].output")
    assert found.input == {"a": {"b": None, "c": None}}
    assert found.tasks["x"].output == {"id": None}
    assert (found.tasks["y"].state, found.tasks["y"].used) == (True, False)
    assert found.tasks["z"].output is None
    assert find_references("input.a + input").input is None
    assert find_references("input.a.b + input.a").input == {"a": None}
    assert find_references("input[x].a").input is None
    assert find_references("x.input.a").input_used is False
    assert pick({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None}, "e": None}) == {"a": {"b": 1}}
