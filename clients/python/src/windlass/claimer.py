"""The claimer: claims as many jobs as there are free slots, by long poll.

Jobs whose worker died are suspects: one of them may have killed it. They are claimed one by one, and each runs alone for a while, so that one
that kills its worker is found and the others are spared. Both the wait to be alone and the time alone are bounded.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Dict, List, Tuple

from .attempts import Attempt, Attempts
from .errors import BadRequest, WorkerDead
from .loops import Closed, log, repeat
from .protocol import ClaimBatch, ClaimedJob, WorkerCalls
from .renewer import Renewer
from .session import Session
from .slots import Slots
from .task import Task

#: How many seconds to wait after the server has refused a claim as such.
_AFTER_REFUSAL = 5.0
#: How many seconds to wait before suspects are claimed again if none could be: another worker has them, or they wait for a rate limit.
_AFTER_NO_SUSPECT = 0.5
#: How many seconds a suspect of one death waits to be alone at most, and is alone at most. Both double with each further death.
_SOLO_BASE = 1.0
_MAX_DOUBLINGS = 15
#: After a vain wait to be alone, suspects do not wait for this many times as long.
_RESPITE = 10


class Claimer:
    """The loop. It ends when the worker drains."""

    def __init__(
        self,
        calls: WorkerCalls,
        queue: str,
        tasks: Dict[Tuple[str, int], "Task[Any, Any]"],
        poll: float,
        slots: Slots,
        attempts: Attempts,
        renewer: Renewer,
        closed: threading.Event,
    ) -> None:
        self._calls = calls
        self._queue = queue
        self._tasks = tasks
        self._kinds = sorted(tasks)
        self._poll = poll
        self._slots = slots
        self._attempts = attempts
        self._renewer = renewer
        self._closed = closed
        #: Until when suspects do not wait to be alone, by the monotonic clock.
        self._no_wait_until = 0.0

    def run(self) -> None:
        """Claims until the worker drains."""
        while True:
            free = self._slots.wait_free()
            if self._closed.is_set() or not free:
                return
            session = self._renewer.session(self._closed)
            try:
                batch = self._claim(session, free)
                self._start(session, batch)
                if batch.suspects:
                    self._run_suspect(session)
            except WorkerDead:
                self._renewer.session_over(session)
            except BadRequest as error:
                log.error("claims are refused: %s", error)
                self._closed.wait(_AFTER_REFUSAL)

    def _claim(self, session: Session, limit: int, solo: bool = False) -> ClaimBatch:
        number = session.next_number()
        wait = 0.0 if solo else self._poll

        def claim() -> ClaimBatch:
            if session.is_over:
                raise WorkerDead(409, "worker_dead", "the worker was declared dead")
            settled = session.settled()
            return self._calls.claim(session.worker, number, self._queue, self._kinds, limit, wait, settled, solo)

        # The lease may have run out while the server was away: a renewal comes before the next claim.
        jobs: List[ClaimedJob] = []
        try:
            batch = repeat("a claim", claim, self._calls.connection.target, self._closed, failed=self._renewer.renew_now)
            jobs = batch.jobs
        finally:
            session.answered(number, len(jobs))
        return batch

    def _start(self, session: Session, batch: ClaimBatch) -> List[Attempt]:
        """Starts what was claimed."""
        if self._closed.is_set():
            # The worker drains. Retiring releases them.
            return []
        started: List[Attempt] = []
        unknown: List[ClaimedJob] = []
        for job in batch.jobs:
            task = self._tasks.get((job.kind, job.version))
            if task is None:
                unknown.append(job)
                continue
            attempt = Attempt(job, task, session, batch.now)
            self._attempts.add(attempt)
            self._slots.run(attempt)
            started.append(attempt)
        if unknown:
            log.error("the server gave jobs that this worker does not serve, e.g. %s v%d", unknown[0].kind, unknown[0].version)
            self._release(session, unknown)
        return started

    def _release(self, session: Session, jobs: List[ClaimedJob]) -> None:
        release = lambda: self._calls.release(session.worker, jobs)  # noqa: E731
        try:
            repeat("a release", release, self._calls.connection.target, self._closed)
        except (BadRequest, WorkerDead, Closed) as error:
            log.warning("they could not be released, and run again when this worker has stopped: %s", error)
        for job in jobs:
            session.finish(job.claim)

    def _run_suspect(self, session: Session) -> None:
        """Claims a suspect, and runs it alone for a while if what runs here ends in time. Returns when others may start."""
        if not self._slots.wait_free():
            return
        batch = self._claim(session, 1, solo=True)
        if not batch.jobs:
            self._closed.wait(_AFTER_NO_SUSPECT)
            return
        job = batch.jobs[0]
        solo_time = _SOLO_BASE * 2 ** min(max(job.worker_deaths - 1, 0), _MAX_DOUBLINGS)
        is_patient = time.monotonic() >= self._no_wait_until
        if not self._slots.wait_idle(solo_time if is_patient else 0.0):
            if is_patient:
                self._no_wait_until = time.monotonic() + solo_time * _RESPITE
            self._renewer.end_solo(session, job.claim, self._closed)
            self._start(session, batch)
            return
        for attempt in self._start(session, batch):
            end = time.monotonic() + solo_time
            while not attempt.ended.wait(min(0.2, max(end - time.monotonic(), 0.0))):
                if self._closed.is_set():
                    return
                if time.monotonic() >= end:
                    self._renewer.end_solo(session, job.claim, self._closed)
                    return
