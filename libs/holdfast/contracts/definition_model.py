"""The shape of a definition, as pydantic sees it: fields, types, ranges. What holds between tasks is in
`definition_checks`. `schemas/definition.schema.json` is made from these classes (`python -m
holdfast.contracts.definition_schema`), so every field has a description."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from holdfast.contracts.limits import check_name, check_task_id
from holdfast.contracts.topics import check_queue
from holdfast.core.errors import Refused

_DURATION = (
    r"P(?!$)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,6})?)S)?)?"
)
_match_duration = re.compile(_DURATION, re.ASCII).fullmatch
_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
duration_s_max = 10 * 365 * 86_400


def duration_s(text: str) -> float:
    """Seconds of an ISO-8601 duration; ValueError says what one looks like. Years and months have no fixed length."""
    match = _match_duration(text)
    if match is None:
        raise _no_duration(text)
    seconds = sum(float(match[unit]) * size for unit, size in _SECONDS.items() if match[unit])
    if seconds > duration_s_max:
        raise ValueError("must be at most P3650D (ten years)")
    return seconds


def _no_duration(value: Any) -> ValueError:
    shown = repr(value)[:40]
    return ValueError(f"must be an ISO-8601 duration such as PT30S, PT5M, PT1H30M or P1D, not {shown}")


def _text(value: Any) -> Any:
    """A plain number is no duration: seconds to one reader, milliseconds to the next."""
    if not isinstance(value, str) and value is not None:
        raise _no_duration(value)
    return value


def _duration(text: str) -> str:
    duration_s(text)
    return text


def _positive(text: str) -> str:
    if duration_s(text) <= 0:
        raise ValueError("must be longer than zero")
    return text


def _lease(text: str) -> str:
    if not 1 <= duration_s(text) <= 86_400:
        raise ValueError("must be between PT1S and P1D")
    return text


def _checked(name: str) -> AfterValidator:
    checks: dict[str, Callable[[str, str], str]] = {"task": check_task_id, "queue": check_queue, "name": check_name}

    def check(value: str) -> str:
        try:
            return checks[name](value, "the name")
        except Refused as refused:
            raise ValueError(refused.detail) from None

    return AfterValidator(check)


_schema = WithJsonSchema({"type": "string", "pattern": "^P[0-9DTHMSW.]+$", "examples": ["PT30S", "PT1H", "P1D"]})
Duration = Annotated[str, BeforeValidator(_text), AfterValidator(_duration), _schema]
PositiveDuration = Annotated[str, BeforeValidator(_text), AfterValidator(_positive), _schema]
LeaseDuration = Annotated[str, BeforeValidator(_text), AfterValidator(_lease), _schema]
Name = Annotated[str, _checked("name")]
QueueName = Annotated[str, _checked("queue")]
TaskId = Annotated[str, _checked("task")]
Expression = Annotated[str, Field(description="A CEL expression.", examples=["input.amount > 1000"])]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class RetryModel(_Strict):
    """Delay before attempt n+1 = min(cap, initial x factor^(n-1)), plus 0 to jitter times itself."""

    max_attempts: int = Field(default=3, ge=1, le=10_000, description="How many attempts a task has in all.")
    initial: Duration = Field(default="PT1S", description="The delay after the first attempt.")
    factor: float = Field(default=2.0, ge=1, le=100, description="What each further delay is multiplied by.")
    cap: Duration = Field(default="PT5M", description="No delay is longer, jitter aside.")
    jitter: float = Field(default=0.5, ge=0, le=1, description="Up to this share of the delay is added.")


class TaskModel(_Strict):
    activity: Name | None = Field(None, description="The function a worker runs, for example payment.charge.")
    sleep: Duration | None = Field(None, description="Instead of an activity: wait this long.")
    after: list[str] = Field([], description="Tasks that must have completed or been skipped before.")
    when: Expression | None = Field(None, description="If false, the task is skipped. Must be true or false.")
    input: Expression | None = Field(None, description="The activity's argument; without it, the workflow's input.")
    queue: QueueName | None = Field(None, description="Where it goes; the first part of the activity's name.")
    retry: RetryModel = Field(RetryModel(), description="When a failed attempt is tried again.")
    timeout: PositiveDuration = Field("P1D", description="How long one attempt may run, whatever its heartbeats say.")
    queue_timeout: PositiveDuration | None = Field(None, description="How long it may wait for a worker.")
    lease: LeaseDuration = Field("PT30S", description="How long a worker may be silent before the task is taken away.")
    compensate: str | None = Field(None, description="The task that undoes this one when the workflow fails.")
    compensation: bool = Field(False, description="This task only runs to undo another one.")
    compensate_unknown: bool = Field(True, description="Undo it also when nobody knows whether it had its effect.")
    run_if_skipped: bool = Field(False, description="Run also when everything before it was skipped.")


class DefinitionModel(_Strict):
    """A workflow definition of Holdfast."""

    namespace: Name = Field(description="Who owns the workflow.")
    workflow: Name = Field(description="The workflow's name.")
    version: int = Field(ge=1, le=2**31 - 1, description="A stored version never changes; a change is a new version.")
    tasks: dict[TaskId, TaskModel] = Field(min_length=1, description="Task id -> task.")
    output: Expression | None = Field(None, description="The workflow's result; without it, null.")
    deadline: PositiveDuration | None = Field(None, description="How long the whole may take from its first step.")
    drain_timeout: Duration | None = Field(None, description="How long a failing workflow waits for running tasks.")
    publish: Literal["all", "lifecycle"] = Field("all", description="Which events become CloudEvents.")


NOT_YET = {
    "task": frozenset({"signal", "human", "for_each", "max_parallel", "workflow", "join", "parent_close", "session"}),
    "workflow": frozenset({"retry", "on_failed", "compensate_parallel", "schedule", "schedules"}),
}
"""Fields of the language that this version does not have yet: refused with those words, not as typing mistakes."""
