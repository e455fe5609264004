"""How many partitions a relay should hold: what coordinators do not publish themselves, divided among the relays.

Fairness is about load only. A relay claims its share at once; what stays free for a whole lease belongs to somebody
who is dead, frozen or slower than us, and is claimed whatever the share says.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.store.postgres_relays import Shares

_ALL = 1_000_000


class SharesOf(Protocol):
    async def shares(self) -> Shares: ...


@dataclass(frozen=True, slots=True)
class Fair:
    most: int
    free: int
    share: int

    def may_claim(self, held: int) -> bool:
        return self.free > 0 and held < self.most

    def give_away(self, held: int) -> int:
        """Only while nothing is free: else the newcomer has enough to take without us."""
        return max(0, held - self.share) if self.free == 0 else 0


class Share:
    def __init__(self, shares: SharesOf, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._shares = shares
        self._patience_s = patience_s
        self._clock = clock
        self._free_since: float | None = None

    async def look(self) -> Fair:
        shares = await self._shares.shares()
        now = self._clock()
        if not shares.free:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = now
        left_lying = self._free_since is not None and now - self._free_since >= self._patience_s
        return Fair(_ALL if left_lying else shares.fair, shares.free, shares.fair)
