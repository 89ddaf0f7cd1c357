"""The renewer: keeps the lease in a thread of its own, registers again when it was lost, and delivers cancel requests."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional

from .attempts import Attempts
from .errors import ApiError, Cancelled, TransportError, Unauthorized, WorkerDead
from .loops import Closed, log
from .protocol import Registration, Renewal, WorkerCalls
from .session import Session

#: The most reports of progress that the server keeps of one worker.
_MAX_REPORTS = 1_000


class Renewer:
    """The loop, and the session that is valid."""

    def __init__(
        self,
        calls: WorkerCalls,
        register: Callable[[WorkerCalls], Registration],
        lease: float,
        every: float,
        attempts: Attempts,
        closed: threading.Event,
    ) -> None:
        self._calls = calls
        self._register = register
        self._lease = lease
        self._every = every
        self._attempts = attempts
        self._closed = closed
        self._changed = threading.Condition()
        self._session: Optional[Session] = None
        self._is_due = False
        #: The reports that the server has, if that is known.
        self._written: Optional[List[Dict[str, Any]]] = []

    def begin(self) -> Session:
        """Registers, and lets the claimer go on."""
        session = Session(self._register(self._calls))
        with self._changed:
            self._session = session
            self._written = []
            self._changed.notify_all()
        log.info("registered as the worker %s", session.worker)
        return session

    def session(self, closed: threading.Event) -> Session:
        """Waits for a valid session. Raises `Closed` when `closed` is set; call `wake` after that."""
        with self._changed:
            while self._session is None or self._session.is_over:
                if closed.is_set():
                    raise Closed
                self._changed.wait()
            return self._session

    def end_solo(self, session: Session, number: int, closed: threading.Event) -> None:
        """Tells the server that a job does not run alone any more: a death of this worker proves nothing from now on. Returns when the
        server knows it, the session is over, or `closed` is set; call `wake` after that."""
        session.end_solo(number)
        self.renew_now()
        with self._changed:
            while number in session.solo_ended() and not session.is_over and not closed.is_set():
                self._changed.wait()

    def last_session(self) -> Optional[Session]:
        """The session that is valid, or was the last one."""
        return self._session

    def session_over(self, session: Session) -> None:
        """The server has declared the worker dead: all its claims are void."""
        if session.end():
            dropped = self._attempts.drop(lambda attempt: attempt.session is session, "another worker has the job")
            log.warning("the worker %s lost its lease; %d attempts are dropped, and it registers again", session.worker, dropped)
        self.renew_now()

    def renew_now(self) -> None:
        """Renews, or registers, at once."""
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Lets everybody see that the worker has stopped."""
        with self._changed:
            self._changed.notify_all()

    def run(self) -> None:
        """Renews until the worker has stopped."""
        while not self._closed.is_set():
            self._wait(self._every if self._tick() else max(self._every / 5, 0.05))

    def _wait(self, delay: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_due or self._closed.is_set(), delay)
            is_poked, self._is_due = self._is_due, False
        if is_poked:
            # A server that is away must not be asked without a pause.
            self._closed.wait(min(0.05, self._every))

    def _tick(self) -> bool:
        """Renews or registers. Returns whether it worked."""
        session = self._session
        try:
            if session is None or session.is_over:
                self.begin()
                return True
            self._renew(session)
            return True
        except WorkerDead:
            if session is not None:
                self.session_over(session)
            return False
        except (TransportError, ApiError) as error:
            if isinstance(error, Unauthorized):
                self._calls.connection.target.reload_token()
            if not self._closed.is_set():
                log.warning("the lease could not be renewed: %s", error)
            return False

    def _renew(self, session: Session) -> None:
        reports = self._attempts.reports()
        reports = sorted(reports, key=lambda report: str(report["at"]))[-_MAX_REPORTS:]
        progress = None if reports == self._written else reports
        open_before, settled, solo_ended = session.open_claims(), session.settled(), session.solo_ended()
        self._written = None
        renewal = self._calls.renew(session.worker, self._lease, settled, solo_ended, progress)
        if not renewal.held:
            return self.session_over(session)
        self._written = reports
        session.confirm_solo_ended(solo_ended)
        with self._changed:
            self._changed.notify_all()
        self._drop_lost(session, open_before, renewal)
        self._release_orphans(session, settled, renewal)
        for cancel in renewal.cancels:
            attempt = self._attempts.get(cancel.job, cancel.epoch)
            if attempt is not None:
                note = f": {cancel.note}" if cancel.note else ""
                attempt.context.request_end(Cancelled(f"cancelled by {cancel.author}{note}"))

    def _drop_lost(self, session: Session, open_before: List[int], renewal: Renewal) -> None:
        if renewal.claims is None:
            return
        lost = session.lost_claims(open_before, renewal.claims)
        if lost:
            is_lost = lambda attempt: attempt.session is session and attempt.job.claim in lost  # noqa: E731
            dropped = self._attempts.drop(is_lost, "the server does not have the claim any more")
            log.warning("the server has lost claims of this worker, as after a restore; %d attempts are dropped", dropped)

    def _release_orphans(self, session: Session, settled: int, renewal: Renewal) -> None:
        orphans = session.orphans(renewal.claims or [], settled)
        if orphans:
            self._calls.release_claims(session.worker, orphans)
            log.warning("claims whose answers never came were released: %s", orphans)
