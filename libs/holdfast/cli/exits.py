"""What the exit code of a command says, so that scripts need not read its text."""

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    NOT_COMPLETED = 1  # the workflow did not complete, or a check found problems
    USAGE = 2
    REFUSED = 3  # Holdfast said no, and will say no again
    UNREACHABLE = 4  # Kafka or Postgres cannot be reached
    LOCAL = 5  # something on this machine did not start
    TIMED_OUT = 6  # what was waited for may still happen
    INTERRUPTED = 130
