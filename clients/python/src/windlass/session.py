"""A session: one registration of a worker, with its claims.

When the server declares the worker dead, its session is over: all its claims are void, and the worker registers again under a new id.
"""

from __future__ import annotations

import threading
from typing import Dict, Iterable, List, Set

from .protocol import Registration


class Session:
    """One registration. All its methods may be called from any thread."""

    def __init__(self, registration: Registration) -> None:
        self.worker = registration.worker
        self.payload_limit = registration.payload_limit
        self._lock = threading.Lock()
        self._last = 0
        #: Claims that the server has not answered yet.
        self._unanswered: Set[int] = set()
        #: Claims with jobs that are not finished, and how many.
        self._open: Dict[int, int] = {}
        #: Claims that the last renewal has found with the server, although nothing of them is here.
        self._unknown: Set[int] = set()
        #: Claims that ran alone and do not any more, until the server has confirmed it.
        self._solo_ended: Set[int] = set()
        self._over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether the worker was declared dead."""
        return self._over.is_set()

    def end(self) -> bool:
        """The worker was declared dead. Returns whether that is new."""
        with self._lock:
            is_new = not self._over.is_set()
            self._over.set()
            return is_new

    def next_number(self) -> int:
        """A number for a new claim."""
        with self._lock:
            self._last += 1
            self._unanswered.add(self._last)
            return self._last

    def answered(self, number: int, jobs: int) -> None:
        """The server has answered a claim, with so many jobs."""
        with self._lock:
            self._unanswered.discard(number)
            if jobs:
                self._open[number] = jobs

    def finish(self, number: int) -> None:
        """A job of this claim is committed, fenced or released."""
        with self._lock:
            left = self._open.get(number, 0) - 1
            if left > 0:
                self._open[number] = left
            else:
                self._open.pop(number, None)

    def settled(self) -> int:
        """The highest number up to which all claims are answered and finished: the server may forget them."""
        with self._lock:
            return min([*self._unanswered, *self._open], default=self._last + 1) - 1

    def orphans(self, recorded: Iterable[int], settled: int) -> List[int]:
        """The claims that the server has and this worker does not, although they were settled in two renewals: a request that was given up
        has claimed after all, and nobody runs what it got. `settled` is what the renewal said."""
        with self._lock:
            unknown = {number for number in recorded if number <= settled}
            orphans, self._unknown = sorted(unknown & self._unknown), unknown
            return orphans

    def end_solo(self, number: int) -> None:
        """The job of this claim does not run alone any more. The next renewal says so."""
        with self._lock:
            self._solo_ended.add(number)

    def solo_ended(self) -> List[int]:
        """Claims that do not run alone any more, which the server may not know."""
        with self._lock:
            return sorted(self._solo_ended)

    def confirm_solo_ended(self, numbers: Iterable[int]) -> None:
        """The server knows it now."""
        with self._lock:
            self._solo_ended.difference_update(numbers)

    def open_claims(self) -> List[int]:
        """Claims with jobs here. Read before a renewal, and given to `lost_claims` after it."""
        with self._lock:
            return list(self._open)

    def lost_claims(self, open_before: Iterable[int], recorded: Iterable[int]) -> Set[int]:
        """The claims that were open before a renewal and that the server does not have: it was restored from a backup."""
        known = set(recorded)
        with self._lock:
            return {number for number in open_before if number not in known and number in self._open}
