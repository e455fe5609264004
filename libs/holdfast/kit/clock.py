"""The database's clock, read without asking it: the only clock that decides anything."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta


class DatabaseClock:
    """`now` is the time the last transaction returned plus the monotonic time since. It never goes back."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._observed: datetime | None = None
        self._at = 0.0

    def observe(self, moment: datetime) -> None:
        """A moment that the database's clock has reached. An older one than we believe teaches nothing."""
        if self._observed is None or moment > self.now():
            self._observed, self._at = moment, self._monotonic()

    def now(self) -> datetime:
        if self._observed is None:
            raise RuntimeError("the database's clock was never read")
        return self._observed + timedelta(seconds=self._monotonic() - self._at)
