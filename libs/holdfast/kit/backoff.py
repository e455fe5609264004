"""How long to wait before the shell tries again what is only away: capped, exponential, with jitter.

Not for workflows: their delays are decided in the core, where chance is a function of the inputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """`next_s()` after each failure, `reset()` after a success.

    The delay is between half and all of initial x factor^n, so that many clients of one server that came back do not
    come back in step. `chance` gives numbers from 0 to 1; a simulation gives its own.
    """

    initial_s: float = 0.05
    factor: float = 2.0
    cap_s: float = 5.0
    chance: Callable[[], float] = random.random
    failures: int = field(default=0, init=False)

    def next_s(self) -> float:
        # Past the cap the power is not computed any more: after days of failures it would overflow.
        delay = self.initial_s
        for _ in range(self.failures):
            delay *= self.factor
            if delay >= self.cap_s:
                break
        self.failures += 1
        return min(delay, self.cap_s) * (0.5 + 0.5 * self.chance())

    def reset(self) -> None:
        self.failures = 0
