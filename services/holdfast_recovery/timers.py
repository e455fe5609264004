"""Timers and deadlines: a tick when the database's clock says that one is due, never before.

No sweep: sleeps until the earliest is due, or is told of an earlier one. A timer is claimed for a while, so that of
several recoveries one sends it; if that one dies, the claim runs out. Whether it arrived is `ticks`' business.
"""

from holdfast.core.inputs import TimerDue
from holdfast.store.protocol import RecoveryStore
from holdfast.store.rows import DueTimer
from holdfast_recovery import metrics
from holdfast_recovery.sender import TickSender

_SLEEP_S_MIN = 0.001


class Timers:
    def __init__(
        self,
        store: RecoveryStore,
        sender: TickSender,
        *,
        claim_s: float = 10.0,
        page_rows: int = 2000,
        poll_s: float = 1.0,
    ) -> None:
        """`poll_s` is how late an earlier timer may be noticed where nobody can tell us (no LISTEN)."""
        self._store = store
        self._sender = sender
        self._claim_s = claim_s
        self._page_rows = page_rows
        self._poll_s = poll_s

    async def step(self) -> float:
        due = await self._store.claim_due_timers(claim_s=self._claim_s, limit=self._page_rows)
        if due:
            await send_timers(self._store, self._sender, due)
            metrics.timers_sent.inc(len(due))
            if len(due) == self._page_rows:
                return 0.0
        await self._store.wait_for_timers(await self._until_next())
        return 0.0

    async def _until_next(self) -> float:
        earliest = await self._store.next_due()
        if earliest is None:
            return self._poll_s
        left_s = (earliest - await self._store.now()).total_seconds()
        return min(self._poll_s, max(left_s, _SLEEP_S_MIN))


async def send_timers(store: RecoveryStore, sender: TickSender, due: list[DueTimer]) -> None:
    ticks = [TimerDue(timer.instance, sender.origin, timer.key, timer.token, timer.due_at) for timer in due]
    offsets = await sender.send(ticks)
    await store.mark_timers_sent(list(zip(due, offsets, strict=True)))
