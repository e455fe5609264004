"""JSON in, JSON out: pydantic models, dataclasses and plain JSON, by annotation."""

from __future__ import annotations

import json
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from holdfast.contracts.limits import check_payload
from holdfast.core.errors import Refused
from holdfast.core.ids import NULL, Payload


class InputInvalid(Exception):
    """What the workflow gave does not fit what the activity takes."""

    def __init__(self, message: str, details: object = None) -> None:
        super().__init__(message)
        self.details = details


class OutputInvalid(Exception):
    """What the activity returned cannot be kept."""


class Input:
    """Reads one type. Without an annotation the argument is what the JSON says."""

    def __init__(self, annotation: Any) -> None:
        self._adapter = None if annotation is Any else TypeAdapter(annotation)

    def read(self, payload: bytes) -> Any:
        try:
            if self._adapter is None:
                return orjson.loads(payload)
            return self._adapter.validate_json(payload)
        except ValidationError as problem:
            errors = problem.errors(include_url=False, include_context=False, include_input=False)
            raise InputInvalid(str(problem), errors) from None
        except orjson.JSONDecodeError as problem:
            raise InputInvalid(f"the input is not JSON: {problem}") from None


class Output:
    """Writes one type.

    A result that does not match the annotation is written as what it is: the work is done by now, and to fail it for
    its shape would leave its effects without a compensation.
    """

    def __init__(self, annotation: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(Any if annotation is None else annotation)

    def write(self, value: Any) -> Payload:
        if value is None:
            return NULL
        try:
            data = self._adapter.dump_json(value, warnings=False)
            if b"null" in data or b"NaN" in data or b"Infinity" in data:
                self._refuse_nan(value)
        except Exception as problem:
            raise OutputInvalid(f"the result ({type(value).__name__}) cannot be written as JSON: {problem}") from None
        try:
            check_payload(data, "the result")
        except Refused as problem:
            raise OutputInvalid(problem.detail) from None
        return Payload(data)

    def _refuse_nan(self, value: Any) -> None:
        """pydantic writes NaN as `null` (or by its JavaScript name), so only then is a closer look needed."""
        plain = self._adapter.dump_python(value, warnings=False)
        json.dumps(plain, allow_nan=False, skipkeys=True, default=lambda other: None)
