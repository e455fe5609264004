"""The house rules that ruff and import-linter cannot hold."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60

SOURCES = sorted(path for top in ("libs", "services") for path in (ROOT / top).rglob("*.py"))
EVERYTHING = sorted(
    path
    for top in ("libs", "services", "tests", "examples", "deploy", "schemas")
    for kind in ("*.py", "*.sql", "*.yml", "*.yaml", "*.sh")
    for path in (ROOT / top).rglob(kind)
)
CORE = sorted((ROOT / "libs" / "holdfast" / "core").rglob("*.py"))

# What would make a decision depend on when, where or how often it is made.
IMPURE_MODULES = {"logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time"}
IMPURE_NAMES = {"now", "utcnow", "today", "uuid1", "uuid4", "getenv", "environ", "urandom", "open", "print", "input"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MODULE_LINES_MAX, f"{lines} lines: split it by what it knows"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long


@pytest.mark.parametrize("path", EVERYTHING, ids=name)
def test_a_todo_names_its_issue(path: Path) -> None:
    # Spelled in two halves, so that this line is none.
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!\(#\d+\))")
    lost = [number for number, line in enumerate(path.read_text().splitlines(), 1) if marks.search(line)]
    assert not lost, f"lines {lost}: write the mark with its issue number, like (#12), or do it"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_imports_only_the_standard_library_and_itself(path: Path) -> None:
    foreign = [
        module
        for module in imported(path)
        if not module.startswith("holdfast.core") and module.split(".")[0] not in sys.stdlib_module_names
    ]
    assert not foreign


@pytest.mark.parametrize("path", CORE, ids=name)
def test_the_core_reads_no_clock_no_randomness_and_no_environment(path: Path) -> None:
    impure = [module for module in imported(path) if module.split(".")[0] in IMPURE_MODULES]
    for node in ast.walk(tree(path)):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in IMPURE_NAMES:
            impure.append(f"{called.attr} in line {called.lineno}")
        if isinstance(called, ast.Name) and called.id in IMPURE_NAMES:
            impure.append(f"{called.id} in line {called.lineno}")
    assert not impure, "time, ids and settings arrive as data"
