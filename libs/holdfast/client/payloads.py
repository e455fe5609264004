"""What a caller passes as input, as the JSON that travels; everything that would be refused later is refused here."""

from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from holdfast.contracts.limits import check_payload
from holdfast.core.errors import Refused
from holdfast.core.ids import NULL, Payload


def encode(value: Any, what: str = "input") -> Payload:
    """Pydantic models, dataclasses and everything that is JSON, with dates and UUIDs in their usual form.

    Raises Refused: `payload_invalid` (NaN, NUL, a lone surrogate, something that is not JSON), `payload_too_large`.
    """
    if value is None:
        return NULL
    try:
        # NaN is written by its name, so that the check refuses it instead of a `null` taking its place.
        data = to_json(value, inf_nan_mode="constants")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as problem:
        raise Refused("payload_invalid", f"{what} ({type(value).__name__}) is not JSON: {problem}") from None
    check_payload(data, what)
    return Payload(data)
