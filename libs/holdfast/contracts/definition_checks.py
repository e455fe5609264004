"""What must hold between the parts of a definition: references, cycles, compensations, expressions.

The checks work on a sketch, made of whatever in the raw document has the right type, so that one wrong type somewhere
does not hide the other mistakes: an author gets all problems at once, each with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from holdfast.contracts.definition_model import NOT_YET
from holdfast.contracts.expressions import CelExpression, ExpressionInvalid, compile_expression


class Problem(NamedTuple):
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(slots=True)
class Sketch:
    """One task, as far as it can be understood."""

    id: str
    fields: Mapping[str, Any]
    after: list[str]
    compensate: str | None
    compensation: bool


def check_definition(raw: Mapping[str, Any]) -> list[Problem]:
    tasks = _sketch(raw.get("tasks"))
    problems = [
        *_kinds(tasks),
        *_references(tasks),
        *_cycles(tasks),
        *_compensations(tasks),
    ]
    return [*problems, *_expressions(raw, tasks)]


def _sketch(raw: Any) -> dict[str, Sketch]:
    tasks: dict[str, Sketch] = {}
    for name, fields in (raw if isinstance(raw, dict) else {}).items():
        if isinstance(name, str) and isinstance(fields, dict):
            after, compensate = fields.get("after"), fields.get("compensate")
            tasks[name] = Sketch(
                name,
                fields,
                [before for before in after if isinstance(before, str)] if isinstance(after, list) else [],
                compensate if isinstance(compensate, str) else None,
                fields.get("compensation") is True,
            )
    return tasks


_SLEEP_TAKES = frozenset({"sleep", "after", "when", "run_if_skipped"})
_COMPENSATION_TAKES = frozenset(
    {"activity", "queue", "retry", "timeout", "queue_timeout", "lease", "compensation", "compensate"}
)
_KNOWN = _SLEEP_TAKES | _COMPENSATION_TAKES | {"input", "compensate_unknown"}


def _kinds(tasks: Mapping[str, Sketch]) -> Iterator[Problem]:
    """Every task is one kind of thing and has the fields of that kind only."""
    for task in tasks.values():
        path = f"tasks.{task.id}"
        given = _KNOWN.intersection(name for name, value in task.fields.items() if value is not None)
        if {"activity", "sleep"} <= given:
            yield Problem(path, "has both `activity` and `sleep`: a task is one of them")
        elif "sleep" in given:
            for name in sorted(given - _SLEEP_TAKES - {"compensation"}):
                yield Problem(f"{path}.{name}", "a sleep does not take this field")
            if task.compensation:
                yield Problem(f"{path}.compensation", "a sleep cannot be a compensation")
        elif "activity" not in given and not NOT_YET["task"].intersection(task.fields):
            yield Problem(path, "needs `activity` or `sleep`")


def _references(tasks: Mapping[str, Sketch]) -> Iterator[Problem]:
    for task in tasks.values():
        seen: set[str] = set()
        for position, before in enumerate(task.after):
            path = f"tasks.{task.id}.after[{position}]"
            if before not in tasks:
                yield Problem(path, f"there is no task `{before}`{suggestion(before, tasks)}")
            elif tasks[before].compensation:
                yield Problem(path, f"`{before}` is a compensation: nothing can come after it")
            if before in seen:
                yield Problem(path, f"`{before}` is named twice")
            seen.add(before)


def suggestion(word: str, known: Mapping[str, Any] | frozenset[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f", did you mean `{close[0]}`?" if close else ""


def _cycles(tasks: Mapping[str, Sketch]) -> Iterator[Problem]:
    """Each cycle once, by name. A found one is cut open at one place, so that the next can be found."""
    graph = {task.id: {before for before in task.after if before in tasks} for task in tasks.values()}
    while True:
        try:
            TopologicalSorter(graph).prepare()
            return
        except CycleError as error:
            # graphlib gives each node's predecessor before it, the first one repeated at the end.
            cycle: list[str] = error.args[1]
            yield Problem(f"tasks.{cycle[1]}.after", f"tasks wait for each other in a circle: {' -> '.join(cycle)}")
            graph[cycle[1]].discard(cycle[0])


def _compensations(tasks: Mapping[str, Sketch]) -> Iterator[Problem]:
    undone_by: dict[str, str] = {}
    for task in tasks.values():
        path, name = f"tasks.{task.id}.compensate", task.compensate
        if task.compensation:
            yield from _compensation_itself(task)
        if name is None or task.compensation:
            continue
        if name not in tasks:
            yield Problem(path, f"there is no task `{name}`{suggestion(name, tasks)}")
        elif not tasks[name].compensation:
            yield Problem(path, f"`{name}` is not marked `compensation: true`")
        elif name in undone_by:
            yield Problem(
                path, f"`{name}` already undoes `{undone_by[name]}`: each task needs a compensation of its own"
            )
        else:
            undone_by[name] = task.id
    named = {task.compensate for task in tasks.values() if not task.compensation}
    for task in tasks.values():
        if task.compensation and task.id not in named:
            yield Problem(f"tasks.{task.id}", "is marked `compensation: true`, but no task names it in `compensate`")
    if tasks and all(task.compensation for task in tasks.values()):
        yield Problem("tasks", "all tasks are compensations: there is nothing to run")


def _compensation_itself(task: Sketch) -> Iterator[Problem]:
    for name, value in task.fields.items():
        path = f"tasks.{task.id}.{name}"
        if name == "compensate" and value is not None:
            yield Problem(path, "a compensation cannot be compensated")
        elif name == "input" and value is not None:
            yield Problem(path, "a compensation always gets {input, output, outcome, effect_key} of what it undoes")
        elif name in _KNOWN - _COMPENSATION_TAKES - {"sleep"} and value not in (None, []):
            yield Problem(path, "a compensation runs when the workflow fails and does not take this field")


def _expressions(raw: Mapping[str, Any], tasks: Mapping[str, Sketch]) -> Iterator[Problem]:
    before = _ancestors(tasks)
    for task in tasks.values():
        for name in ("when", "input"):
            source, path = task.fields.get(name), f"tasks.{task.id}.{name}"
            if isinstance(source, str) and not task.compensation:
                expression = yield from _compiled(source, path)
                if expression is not None:
                    yield from _sees(expression, path, tasks, before[task.id])
                    if name == "when" and not expression.may_be_bool:
                        yield Problem(path, "must be true or false")
    output = raw.get("output")
    if isinstance(output, str):
        expression = yield from _compiled(output, "output")
        if expression is not None:
            yield from _sees(expression, "output", tasks, frozenset(tasks))


def _compiled(source: str, path: str) -> Any:
    try:
        return compile_expression(source)
    except ExpressionInvalid as error:
        yield Problem(path, str(error))
        return None


def _sees(
    expression: CelExpression, path: str, tasks: Mapping[str, Sketch], before: frozenset[str]
) -> Iterator[Problem]:
    for name in expression.references.tasks:
        if name not in tasks:
            yield Problem(path, f"refers to task `{name}`, which does not exist{suggestion(name, tasks)}")
        elif tasks[name].compensation:
            yield Problem(path, f"refers to task `{name}`, which is a compensation and has no output to use")
        elif name not in before:
            yield Problem(path, f"refers to task `{name}`, which need not have ended by then: add it to `after`")


def _ancestors(tasks: Mapping[str, Sketch]) -> dict[str, frozenset[str]]:
    """Every task that is certain to have ended before; also right (if of no use) where there are cycles."""
    found: dict[str, frozenset[str]] = {}
    for task in tasks:
        seen: set[str] = set()
        waiting = list(tasks[task].after)
        while waiting:
            name = waiting.pop()
            if name in tasks and name not in seen:
                seen.add(name)
                waiting.extend(tasks[name].after)
        found[task] = frozenset(seen)
    return found
