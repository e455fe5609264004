"""The only clock: the database's, carried on between two readings by the monotonic time of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class DatabaseClock:
    """`now()` never goes backwards: where the database's clock was set back, it stands still until that caught up."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._read: datetime | None = None
        self._read_at = 0.0
        self._floor = datetime.min.replace(tzinfo=UTC)

    @property
    def known(self) -> bool:
        """False until the database was heard for the first time."""
        return self._read is not None

    def observe(self, db_time: datetime) -> None:
        """The database says it is `db_time` now."""
        if db_time.tzinfo is None:
            raise ValueError("a time without a zone is no time")
        self._read, self._read_at = db_time, self._monotonic()

    def at_least(self, moment: datetime) -> None:
        """Somebody else saw the database's clock past this moment, e.g. who sent a tick when it was due."""
        self._floor = max(self._floor, moment)

    def now(self) -> datetime:
        if self._read is None:
            raise RuntimeError("the database has not been asked for the time yet")
        now = self._read + timedelta(seconds=self._monotonic() - self._read_at)
        self._floor = max(self._floor, now)
        return self._floor
