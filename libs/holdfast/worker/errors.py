"""What an activity raises to say more than "it went wrong"."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

delay_s_max = 365 * 86_400  # what a report may carry


class NonRetryable(Exception):
    """This attempt failed and another one would too: the task fails for good.

    `code` is a stable word for machines, `details` anything that is JSON; both end up in the workflow's history.
    """

    def __init__(self, message: str, *, code: str | None = None, details: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).__name__
        self.details = details


class RetryLater(Exception):
    """Try again after `delay` (seconds or a timedelta).

    With `count=False` the attempt is handed back unharmed: the same attempt runs again later and no attempt is
    used up ("the shop is closed"). With `count=True` it failed, and the delay replaces that of the retry policy.
    """

    def __init__(self, delay: float | timedelta, message: str = "", *, count: bool = False) -> None:
        delay_s = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= delay_s <= delay_s_max:  # also refuses NaN
            raise ValueError(f"RetryLater needs a delay between 0 and {delay_s_max} seconds (a year), not {delay!r}")
        super().__init__(message or f"asked to be tried again in {delay_s:g} s")
        self.delay_s = delay_s
        self.count = count
