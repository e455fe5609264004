"""Pauses between tries of the shell (Postgres or Kafka away): growing, capped, and not in step with other processes."""

import random


class Backoff:
    """The first pause is short, because most outages are over at once; with jitter, so that not all come back together."""

    def __init__(self, first_s: float = 0.1, factor: float = 2.0, cap_s: float = 5.0) -> None:
        self._first_s = first_s
        self._factor = factor
        self._cap_s = cap_s
        self._tries = 0

    def next_s(self) -> float:
        pause = min(self._cap_s, self._first_s * self._factor**self._tries)
        self._tries = min(self._tries + 1, 32)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._tries = 0
