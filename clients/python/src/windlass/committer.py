"""The committer: writes outcomes, all that wait with one call, as soon as the last call has returned."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Callable, Deque, List, Sequence

from .attempts import Attempt, Attempts
from .errors import BadRequest, WorkerDead
from .loops import log, repeat
from .protocol import CommitOutcome, WorkerCalls
from .session import Session
from .slots import minimal_failure

#: How many changes one call has at most. The server writes them in one transaction.
_BATCH_CHANGES = 500
#: How many bytes one call has at most, unless one change has more: the server accepts 8 MiB.
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True)
class Change:
    """A change that waits to be committed."""

    attempt: Attempt
    data: bytes
    #: Whether it replaces a change that the server refused.
    is_minimal: bool = False


@dataclass
class Counts:
    """What has become of attempts."""

    committed: int = 0
    #: Attempts whose job had been taken over by another worker, or ended from outside.
    fenced: int = 0
    #: Jobs that were released, because the worker stopped before they ended.
    released: int = 0


class Committer:
    """The loop, and the changes that wait for it."""

    def __init__(
        self,
        calls: WorkerCalls,
        attempts: Attempts,
        session_over: Callable[[Session], None],
        counts: Counts,
        closed: threading.Event,
    ) -> None:
        self._calls = calls
        self._attempts = attempts
        self._session_over = session_over
        self._counts = counts
        self._closed = closed
        self._waiting: Deque[Change] = deque()
        self._changed = threading.Condition()

    def put(self, change: Change) -> None:
        """Commits a change soon."""
        with self._changed:
            self._waiting.append(change)
            self._changed.notify()

    def wake(self) -> None:
        """Lets the loop see that the worker has stopped."""
        with self._changed:
            self._changed.notify_all()

    def run(self) -> None:
        """Commits until the worker has stopped."""
        while True:
            batch = self._next_batch()
            if not batch:
                return
            self._commit(batch)

    def _next_batch(self) -> List[Change]:
        """Waits for changes. Returns those of one session, with no job twice; nothing if the worker has stopped."""
        with self._changed:
            while not self._waiting and not self._closed.is_set():
                self._changed.wait()
            if self._closed.is_set():
                return []
            session, jobs, size = self._waiting[0].attempt.session, set(), 0
            batch: List[Change] = []
            while self._waiting and len(batch) < _BATCH_CHANGES:
                change = self._waiting[0]
                size += len(change.data) + 1
                if change.attempt.session is not session or change.attempt.job.id in jobs or (batch and size > _BATCH_BYTES):
                    break
                jobs.add(change.attempt.job.id)
                batch.append(self._waiting.popleft())
            return batch

    def _commit(self, batch: Sequence[Change]) -> None:
        session = batch[0].attempt.session
        if session.is_over:
            return self._drop(batch)
        data = [change.data for change in batch]
        try:
            outcomes = repeat("a commit", lambda: self._calls.commit(session.worker, data), self._calls.connection.target, self._closed)
        except WorkerDead:
            self._session_over(session)
            return self._drop(batch)
        except BadRequest as error:
            return self._refused(batch, str(error))
        for change, outcome in zip(batch, outcomes):
            self._answered(change, outcome)

    def _answered(self, change: Change, outcome: CommitOutcome) -> None:
        if outcome.outcome == "refused":
            return self._refused([change], outcome.message)
        if outcome.outcome == "fenced":
            self._drop([change])
        else:
            self._counts.committed += 1
            self._attempts.finish(change.attempt)

    def _refused(self, batch: Sequence[Change], message: str) -> None:
        """The server cannot read or write some change of the batch: finds it by halving, and fails its job."""
        if len(batch) > 1:
            middle = len(batch) // 2
            self._commit(batch[:middle])
            return self._commit(batch[middle:])
        change = batch[0]
        if not change.is_minimal:
            data = minimal_failure(change.attempt, message)
            return self._commit([Change(change.attempt, data, is_minimal=True)])
        attempt = change.attempt
        log.error("the job %s cannot even be failed, and is released: %s", attempt.job.id, message)
        release = lambda: self._calls.release(attempt.session.worker, [attempt.job])  # noqa: E731
        try:
            repeat("a release", release, self._calls.connection.target, self._closed)
        except (BadRequest, WorkerDead) as error:
            log.error("it could not be released; another worker runs it when this one has stopped: %s", error)
        self._counts.released += 1
        self._attempts.finish(attempt)

    def _drop(self, batch: Sequence[Change]) -> None:
        for change in batch:
            log.info("the outcome of the job %s is dropped: it was taken over or ended meanwhile", change.attempt.job.id)
            self._counts.fenced += 1
            self._attempts.finish(change.attempt)
