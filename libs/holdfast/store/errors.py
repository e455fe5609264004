"""What a store can say besides yes."""

from holdfast.core.errors import Corrupt, Fenced, HoldfastError, Transient
from holdfast.core.ids import InstanceId

__all__ = ["Conflict", "Corrupt", "Fenced", "Transient", "UnknownOutcome", "Unstorable"]


class Conflict(HoldfastError):
    """An instance's sequence was not the expected one: drop the cached states, load and decide again."""

    def __init__(self, message: str, instances: frozenset[InstanceId] = frozenset()) -> None:
        super().__init__(message)
        self.instances = instances


class Unstorable(HoldfastError):
    """The data itself is refused (not its order, not the load): park it. Bisect where `instances` does not name it."""

    def __init__(self, message: str, instances: frozenset[InstanceId] = frozenset()) -> None:
        super().__init__(message)
        self.instances = instances


class UnknownOutcome(Transient):
    """The connection broke while a commit was under way: read the partition's row to learn what happened."""
