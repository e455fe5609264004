"""Ticks that were written and never took effect: ticks were processed past them and the timer's row is still there.

That is what remains of a topic that was recreated, or of a tick that a coordinator could not use at the time. Sending
one again is harmless: its waiting token makes the second one stale.
"""

from holdfast.store.protocol import RecoveryStore
from holdfast_recovery import metrics
from holdfast_recovery.sender import TickSender
from holdfast_recovery.timers import send_timers


class UnansweredTicks:
    def __init__(
        self, store: RecoveryStore, sender: TickSender, *, every_s: float = 10.0, page_rows: int = 1000
    ) -> None:
        self._store = store
        self._sender = sender
        self._every_s = every_s
        self._page_rows = page_rows

    async def step(self) -> float:
        unanswered = await self._store.unanswered_timers(limit=self._page_rows)
        if not unanswered:
            return self._every_s
        await send_timers(self._store, self._sender, unanswered)
        metrics.ticks_resent.inc(len(unanswered))
        return 0.0 if len(unanswered) == self._page_rows else self._every_s
