"""What a worker counts: plain numbers on the hot path, made into metrics by `holdfast.worker.metrics` when asked."""

from __future__ import annotations

from collections import defaultdict

from holdfast.worker.attempt import Attempt, Stop
from holdfast.worker.outcome import Completed, Failed, HandedBack, Outcome


class Stats:
    __slots__ = (
        "attempts",
        "delivered_again",
        "malformed",
        "malformed_cancellations",
        "no_handler",
        "seconds",
        "stops",
    )

    def __init__(self) -> None:
        self.attempts: defaultdict[tuple[str, str], int] = defaultdict(int)  # by activity and outcome
        self.seconds: defaultdict[str, float] = defaultdict(float)  # by activity
        self.stops: defaultdict[str, int] = defaultdict(int)  # by why
        self.delivered_again = 0
        self.malformed = 0
        self.malformed_cancellations = 0
        self.no_handler = 0

    def ended(self, attempt: Attempt, outcome: Outcome | None, now: float) -> None:
        name = attempt.dispatch.activity
        self.attempts[name, _OUTCOMES.get(outcome.__class__, "not_run")] += 1
        if attempt.begun_at >= 0:
            self.seconds[name] += now - attempt.begun_at

    def stopped(self, stop: Stop) -> None:
        self.stops[stop.value] += 1


_OUTCOMES = {Completed: "completed", Failed: "failed", HandedBack: "handed_back"}
