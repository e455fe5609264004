"""What an expression refers to, found in its text: which parts of the input and of which tasks' outputs.

Two uses: a definition is refused when an expression names a task that it cannot see, and at run time only the parts
that are named are handed to CEL (handing over a document of 1,000 items costs 0.4 ms, one field of it 3 us). The
compiled expression does not tell, so its tokens are read here; anything unusual counts as "all of it".
"""

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

Wanted: TypeAlias = dict[str, Any] | None
"""Nested names of the parts that are needed; None: all of it."""


class Token(NamedTuple):
    kind: str
    text: str


_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*)
    |(?P<raw>[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'))
    |(?P<string>[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>[0-9][0-9A-Za-z.]*)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
).finditer

_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})


@dataclass(slots=True)
class TaskUse:
    state: bool = False
    used: bool = False  # the output, or a part of it
    output: Wanted = field(default_factory=dict)


@dataclass(slots=True)
class References:
    input_used: bool = False
    input: Wanted = field(default_factory=dict)
    tasks: dict[str, TaskUse] = field(default_factory=dict)
    macros: int = 0  # how many comprehensions there are
    problems: list[str] = field(default_factory=list)


def find_references(source: str) -> References:
    tokens = [Token(match.lastgroup or "", match.group()) for match in _TOKEN(source) if match.lastgroup != "skip"]
    found = References()
    for position, token in enumerate(tokens):
        if token.kind != "name":
            continue
        if _is_member(tokens, position):
            found.macros += token.text in _MACROS and _text(tokens, position + 1) == "("
        elif token.text == "input":
            found.input_used = True
            found.input = _want(found.input, _chain(tokens, position + 1))
        elif token.text == "tasks":
            _add_task(found, _chain(tokens, position + 1))
    return found


def _text(tokens: list[Token], position: int) -> str:
    return tokens[position].text if 0 <= position < len(tokens) else ""


def _is_member(tokens: list[Token], position: int) -> bool:
    """`a.name`, not the name of a variable; but a dot with nothing before it (`.input`) means the variable."""
    if _text(tokens, position - 1) == "?" and _text(tokens, position - 2) == ".":
        return True
    if _text(tokens, position - 1) != "." or position < 2:
        return False
    before = tokens[position - 2]
    return before.kind in ("name", "string", "raw", "number") or before.text in (")", "]", "}")


def _chain(tokens: list[Token], position: int) -> tuple[str, ...]:
    """The names that follow: `.a.b`, `['a']`; up to a call, a computed index or the end."""
    names: list[str] = []
    while True:
        text = _text(tokens, position)
        if text == "." and position + 1 < len(tokens) and tokens[position + 1].kind == "name":
            if _text(tokens, position + 2) == "(":
                break
            names.append(tokens[position + 1].text)
            position += 2
        elif text == "[" and _text(tokens, position + 2) == "]" and _plain_string(tokens[position + 1]):
            names.append(tokens[position + 1].text[1:-1])
            position += 3
        else:
            break
    return tuple(names)


def _plain_string(token: Token) -> bool:
    inside = token.text[1:-1]
    return token.kind == "string" and token.text[0] in "'\"" and not any(mark in inside for mark in "\\'\"")


def _want(wanted: Wanted, names: tuple[str, ...]) -> Wanted:
    """`wanted` with the part at `names` as well."""
    if wanted is None or not names:
        return None
    first, *rest = names
    return wanted | {first: _want(wanted.get(first, {}), tuple(rest))}


def _add_task(found: References, names: tuple[str, ...]) -> None:
    if len(names) < 2 or names[1] not in ("output", "state"):
        shown = ".".join(("tasks", *names[:2]))
        found.problems.append(f"refers to `{shown}`: a task is used as tasks.<id>.output or tasks.<id>.state")
        return
    use = found.tasks.setdefault(names[0], TaskUse())
    if names[1] == "state":
        use.state = True
    else:
        use.used = True
        use.output = _want(use.output, names[2:])


def pick(value: Any, wanted: Wanted) -> Any:
    """The parts of a JSON value that are wanted; a part that is not there stays away."""
    if wanted is None or not isinstance(value, dict):
        return value
    return {name: pick(value[name], inner) for name, inner in wanted.items() if name in value}
