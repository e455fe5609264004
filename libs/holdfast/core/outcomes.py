"""What a command's sender is told. Accepted is the absence of the exceptions below."""

from enum import StrEnum

from holdfast.core.errors import HoldfastError


class CommandOutcome(StrEnum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    REFUSED = "refused"


class NotAccepted(HoldfastError):
    """A command that changes nothing. `reason` is a stable word for machines, `detail` a sentence for people."""

    outcome = CommandOutcome.REFUSED

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class CommandRefused(NotAccepted):
    """The request is wrong for this instance in this state."""


class CommandIgnored(NotAccepted):
    """Nothing to do any more: the instance is finished."""

    outcome = CommandOutcome.IGNORED


class CommandDuplicate(NotAccepted):
    """The instance exists already: the sender gets the same one."""

    outcome = CommandOutcome.DUPLICATE
