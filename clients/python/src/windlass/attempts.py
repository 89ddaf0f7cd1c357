"""Attempts: the claimed jobs that this worker runs or whose outcome it still has to commit."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Any, Callable, Dict, List, Optional, Tuple

from .context import Context
from .errors import Cancelled, TimedOut
from .protocol import ClaimedJob
from .session import Session
from .task import Task


class Attempt:
    """One attempt at a claimed job. One outcome of it is committed, whoever decides it first."""

    def __init__(self, job: ClaimedJob, task: "Task[Any, Any]", session: Session, now: Optional[datetime]) -> None:
        self.job = job
        self.task = task
        self.session = session
        self.started_at = datetime.now(timezone.utc)
        self.context = Context(
            job.id,
            job.kind,
            version=job.version,
            key=job.key,
            attempt=job.attempts + 1,
            fence=job.epoch,
            due_at=job.due_at,
            deadline_at=job.deadline_at,
        )
        #: How many seconds it may run.
        self.limit = task.timeout if job.timeout is None else job.timeout
        started = time.monotonic()
        #: When it has run too long; then, when it is given up. By the monotonic clock.
        self.limit_at = None if self.limit is None else started + self.limit
        self.give_up_at: Optional[float] = None
        #: When its job fails for its deadline, which the server sees to.
        self.deadline: Optional[float] = None
        if job.deadline_at is not None:
            # The server's clock judges, and this machine's may be wrong.
            now = self.started_at if now is None else now
            self.deadline = started + (job.deadline_at - now).total_seconds()
        #: The function has returned.
        self.ended = threading.Event()
        self._decided = False
        self._lock = threading.Lock()

    def decide(self) -> bool:
        """Returns whether the caller decides the outcome: the first one does."""
        with self._lock:
            first, self._decided = not self._decided, True
            return first

    def next_check(self) -> Optional[float]:
        """When its time is to be checked, by the monotonic clock."""
        limit = self.limit_at if self.give_up_at is None else self.give_up_at
        times = [at for at in (limit, self.deadline) if at is not None]
        return min(times, default=None)


class Attempts:
    """All attempts of the worker. Its methods may be called from any thread."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the times of attempts are to be checked again, or when an attempt is finished."""
        self._changed = changed
        self._lock = threading.Lock()
        self._attempts: Dict[Tuple[str, int], Attempt] = {}

    def add(self, attempt: Attempt) -> None:
        """The attempt starts."""
        with self._lock:
            self._attempts[attempt.job.id, attempt.job.epoch] = attempt
        if attempt.next_check() is not None:
            self._changed()

    def finish(self, attempt: Attempt) -> None:
        """Nothing is to be committed for the attempt any more."""
        with self._lock:
            known = self._attempts.pop((attempt.job.id, attempt.job.epoch), None)
            is_last = not self._attempts
        if known is not None:
            attempt.session.finish(attempt.job.claim)
        if is_last:
            self._changed()

    def all(self) -> List[Attempt]:
        """Those that are not finished."""
        with self._lock:
            return list(self._attempts.values())

    def get(self, job: str, epoch: int) -> Optional[Attempt]:
        """The attempt at a job under this epoch."""
        with self._lock:
            return self._attempts.get((job, epoch))

    def drop(self, which: Callable[[Attempt], bool], why: str) -> int:
        """Drops attempts whose claims are over: they are asked to end, and nothing is committed. Returns how many."""
        dropped = 0
        for attempt in self.all():
            if which(attempt):
                attempt.context.request_end(Cancelled(why))
                attempt.decide()
                self.finish(attempt)
                dropped += 1
        return dropped

    def reports(self) -> List[Dict[str, Any]]:
        """What attempts have reported of their progress, by job."""
        reports = [(attempt.job, attempt.context.last_report()) for attempt in self.all()]
        return [
            {"job": job.id, "epoch": job.epoch, **report}
            for job, report in sorted(reports, key=lambda each: each[0].id)
            if report is not None
        ]

    def check_times(self, grace: float, timed_out: Callable[[Attempt], None]) -> Optional[float]:
        """Asks attempts to end that have run too long. Those that have not ended `grace` seconds later are given to `timed_out`.
        Returns when to check again, by the monotonic clock."""
        now = time.monotonic()
        for attempt in self.all():
            if attempt.deadline is not None and now >= attempt.deadline:
                # The server fails the job by its own timer.
                attempt.context.request_end(TimedOut("the deadline of the job has passed"))
                if attempt.decide():
                    self.finish(attempt)
            elif attempt.give_up_at is not None:
                if now >= attempt.give_up_at:
                    attempt.give_up_at = float("inf")
                    timed_out(attempt)
            elif attempt.limit_at is not None and now >= attempt.limit_at:
                attempt.give_up_at = now + grace
                attempt.context.request_end(TimedOut(f"the attempt ran longer than {attempt.limit:g} s"))
        checks = [attempt.next_check() for attempt in self.all()]
        return min((at for at in checks if at is not None), default=None)
