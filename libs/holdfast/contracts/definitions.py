"""From what an author wrote to what the kernel runs; or to all the reasons why not, each with its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from holdfast.contracts.definition_checks import Problem, check_definition, suggestion
from holdfast.contracts.definition_model import (
    NOT_YET,
    DefinitionModel,
    RetryModel,
    TaskModel,
    duration_s,
)
from holdfast.contracts.definition_text import TextInvalid, check_data, read_text
from holdfast.contracts.expressions import compile_expression
from holdfast.contracts.limits import definition_bytes_max, definition_tasks_max
from holdfast.core.definition import Definition, Publish, RetryPolicy, TaskDefinition, TaskKind
from holdfast.core.errors import Refused
from holdfast.core.ids import TaskPath

__all__ = ["DefinitionInvalid", "Problem", "compile_definition", "default_queue", "parse_definition"]


class DefinitionInvalid(Refused):
    """Everything that is wrong with a definition."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("definition_invalid", "\n".join(map(str, problems)))
        self.problems = list(problems)

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


def parse_definition(source: str | bytes | Mapping[str, Any]) -> tuple[dict[str, Any], Definition]:
    """YAML or JSON text, or its content: what to store (plain JSON, as it was written) and what to run."""
    try:
        body = check_data(dict(source)) if isinstance(source, Mapping) else read_text(source)
    except TextInvalid as error:
        raise DefinitionInvalid([Problem("", f"the definition {error}")]) from None
    definition = compile_definition(body)
    return orjson.loads(orjson.dumps(body)), definition


def compile_definition(body: Mapping[str, Any]) -> Definition:
    """Of a body as `parse_definition` returned it; raises DefinitionInvalid where it is not one."""
    model, problems = _validate(body)
    problems.extend(check_definition(body))
    problems.extend(_sizes(body))
    if problems or model is None:
        raise DefinitionInvalid(_once(problems))
    return _build(model)


def default_queue(activity: str) -> str:
    """The first part of the activity's name; `default` without a dot."""
    return activity.split(".", 1)[0] if "." in activity else "default"


def _once(problems: Sequence[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))


def _sizes(body: Mapping[str, Any]) -> Iterator[Problem]:
    tasks = body.get("tasks")
    if isinstance(tasks, dict) and len(tasks) > definition_tasks_max:
        yield Problem("tasks", f"has {len(tasks)} tasks, at most {definition_tasks_max} are allowed")
    try:
        size = len(orjson.dumps(body))
    except TypeError as error:  # Wrong types are reported with their path; what is left is text that is not Unicode.
        yield Problem("", f"the definition cannot be written as JSON: {error}")
    else:
        if size > definition_bytes_max:
            yield Problem("", f"the definition has {size} bytes, at most {definition_bytes_max} are allowed")


# --- pydantic's findings, in our words


def _validate(body: Mapping[str, Any]) -> tuple[DefinitionModel | None, list[Problem]]:
    try:
        return DefinitionModel.model_validate(body), []
    except ValidationError as error:
        return None, [_problem(found) for found in error.errors(include_url=False)]


_WORDS = {
    "missing": "is missing",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "literal_error": "must be {expected}",
    "too_short": "must not be empty",
    "invalid_key": "must be text: this key is not",
    "value_error": "{error}",
}


def _problem(found: Any) -> Problem:
    location, kind = [part for part in found["loc"] if part != "[key]"], found["type"]
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) and path else f".{part}"
    if kind == "extra_forbidden":
        return Problem(path[1:], _unknown_field(location))
    words = _WORDS.get(kind)
    if words is None:
        return Problem(path[1:], found["msg"])
    return Problem(path[1:], words.format_map(found.get("ctx", {})))


def _unknown_field(location: list[Any]) -> str:
    name = str(location[-1])
    place, model = _model_at(location)
    if name in NOT_YET.get(place, ()):
        return "is not available in this version yet"
    return f"is not a known field{suggestion(name, model.model_fields)}"


def _model_at(location: list[Any]) -> tuple[str, type[BaseModel]]:
    if len(location) == 1:
        return "workflow", DefinitionModel
    return ("task", TaskModel) if len(location) == 3 else ("retry", RetryModel)


# --- the kernel's definition


def _build(model: DefinitionModel) -> Definition:
    return Definition(
        namespace=model.namespace,
        name=model.workflow,
        version=model.version,
        tasks={TaskPath(name): _task(name, task) for name, task in model.tasks.items()},
        output=None if model.output is None else compile_expression(model.output),
        deadline_s=None if model.deadline is None else duration_s(model.deadline),
        drain_timeout_s=None if model.drain_timeout is None else duration_s(model.drain_timeout),
        publish=Publish(model.publish),
    )


def _task(name: str, task: TaskModel) -> TaskDefinition:
    common: dict[str, Any] = {
        "id": TaskPath(name),
        "after": tuple(map(TaskPath, task.after)),
        "when": None if task.when is None else compile_expression(task.when),
        "run_if_skipped": task.run_if_skipped,
    }
    if task.sleep is not None:
        return TaskDefinition(kind=TaskKind.SLEEP, sleep_s=duration_s(task.sleep), **common)
    activity = task.activity or ""
    return TaskDefinition(
        activity=activity,
        queue=task.queue or default_queue(activity),
        input=None if task.input is None else compile_expression(task.input),
        retry=RetryPolicy(
            task.retry.max_attempts,
            duration_s(task.retry.initial),
            float(task.retry.factor),
            duration_s(task.retry.cap),
            float(task.retry.jitter),
        ),
        timeout_s=duration_s(task.timeout),
        queue_timeout_s=None if task.queue_timeout is None else duration_s(task.queue_timeout),
        lease_s=duration_s(task.lease),
        compensate=None if task.compensate is None else TaskPath(task.compensate),
        compensation=task.compensation,
        compensate_unknown=task.compensate_unknown,
        **common,
    )
