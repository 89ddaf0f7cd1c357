"""Delays between calls that failed."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `base` to `cap` seconds. Half of each is random, so that many clients do not return together."""

    def __init__(self, base: float = 0.05, cap: float = 3.0) -> None:
        self._base, self._cap, self._next = base, cap, base

    def delay(self, at_least: float = 0.0) -> float:
        """The next delay."""
        delay = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._cap)
        return max(delay, at_least)

    def reset(self) -> None:
        """The call succeeded."""
        self._next = self._base
