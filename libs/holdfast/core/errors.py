"""What can go wrong, as one small tree whose branches say what to do next.

Whoever catches decides by class and never by text: `Refused` is not retried, `Transient` is, `Fenced` means stop
and let go, `Corrupt` means keep the bytes and put them aside. Everything else that is raised is a bug.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of everything that Holdfast raises on purpose."""


class Refused(HoldfastError):
    """The caller is wrong, and will be wrong again: never retried.

    `reason` is a stable word for machines (`unknown_workflow`), `detail` a sentence for people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str]]:
        # Exceptions are pickled by their args, which here hold the joined text; activities run in child processes.
        return type(self), (self.reason, self.detail)


class Transient(HoldfastError):
    """Somebody else is away (Postgres, Kafka, the network): the same again later may work."""


class Fenced(HoldfastError):
    """Somebody else owns this now: stop, drop what was cached, write nothing more."""


class Corrupt(HoldfastError):
    """Bytes that cannot be what they should be: quarantine them, never skip them."""
