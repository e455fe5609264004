"""Old events are read forever: each change of an event's shape has a function here that lifts the version before it.

An upcaster takes the JSON object of one version and returns that of the next; chains are followed up to the current
version in `EVENT_TYPES`. Payloads inside the object are ordinary JSON values here: this path is slow on purpose, and
only taken for events older than the code.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from holdfast.core.errors import Corrupt

Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""(event type, version as stored) -> what makes it the next version."""


def upcast(
    type_name: str,
    version: int,
    current: int,
    body: dict[str, Any],
    upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
) -> dict[str, Any]:
    """Lift `body` from the version that was stored to the current one."""
    if version > current:
        raise Corrupt(
            f"event {type_name} has schema version {version}, this code knows up to {current}: a newer service wrote it"
        )
    for step in range(version, current):
        lift = upcasters.get((type_name, step))
        if lift is None:
            raise Corrupt(f"event {type_name} has schema version {version} and nothing lifts version {step}")
        try:
            body = lift(body)
        except Exception as error:  # An upcaster that trips over its input means that the input is not what it says.
            raise Corrupt(f"event {type_name} version {step} could not be lifted: {error!r}") from error
    return body
