"""How steadily Kafka has answered for one partition: what tells a dead worker from a broker that was away.

While Kafka is away no heartbeat can arrive, and after it is back workers need a whole lease to be heard of again. So
a lease may expire only if, for one whole lease up to now, no gap between answers was longer than a heartbeat (a third
of the lease). Leases differ in length, so gaps are kept: a gap that is followed by a longer one is of no interest, as
every lease that the first one protects is protected longer by the second. That leaves a short list.

Times are monotonic seconds of this process, which also run while it is frozen: a frozen recovery sees a gap.
"""

import math

HEARTBEATS_PER_LEASE = 3


class Answers:
    def __init__(self) -> None:
        self._last: float | None = None
        self._gaps: list[tuple[float, float]] = []  # (ended at, how long), shorter and shorter

    def answered(self, at: float) -> None:
        # Before the first answer nothing is known: that is a gap of any length.
        gap = math.inf if self._last is None else at - self._last
        while self._gaps and self._gaps[-1][1] <= gap:
            self._gaps.pop()
        self._gaps.append((at, gap))
        self._last = at

    def steady(self, lease_s: float, at: float) -> bool:
        """Kafka has answered for one whole lease, without a gap longer than a heartbeat."""
        heartbeat_s = lease_s / HEARTBEATS_PER_LEASE
        if self._last is None or at - self._last > heartbeat_s:
            return False
        return all(at - ended >= lease_s for ended, gap in self._gaps if gap > heartbeat_s)
