"""Workers: run the jobs of one queue with functions of this program.

Four loops share one session: the claimer takes jobs for free slots, slots run them in threads, the committer writes their outcomes, and the
renewer keeps the lease. The thread that calls `Worker.run` checks the time of attempts and waits for the request to stop.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import outcome
from .attempts import Attempt, Attempts
from .backoff import Backoff
from .claimer import Claimer
from .client import Client
from .committer import Change, Committer, Counts
from .errors import ApiError, BadRequest, Forbidden, NotFound, TransportError, Unauthorized
from .loops import log, spawn
from .protocol import Registration, WorkerCalls, change
from .renewer import Renewer
from .slots import Slots
from .task import Task
from .transport import Connection, is_untrusted
from .values import Duration, seconds

#: How often at least the thread of `run` looks around, in seconds.
_TICK = 0.5
#: How many seconds a worker that stops takes at most to say so to the server.
_RETIRE = 5.0


class Worker:
    """Runs jobs of one queue until it is stopped.

    The functions run in threads, `slots` of them. Python runs one thread's code at a time: for work that computes, use more processes with
    a worker each.
    """

    def __init__(
        self,
        client: Client,
        *,
        tasks: Sequence["Task[Any, Any]"],
        queue: str = "default",
        slots: int = 8,
        name: Optional[str] = None,
        lease: Duration = 15.0,
        renew_every: Optional[Duration] = None,
        drain: Duration = 30.0,
        timeout_grace: Duration = 5.0,
        poll: Duration = 20.0,
    ) -> None:
        """`name` is for people; by default it is the host and the process. `lease` is how long the worker may be away before others take
        its jobs, and `renew_every` how often it reports, by default a third of that. `drain` is how long a stopping worker waits for
        running attempts. `timeout_grace` is how long an attempt that ran too long may take to end. `poll` is how long one claim waits."""
        if slots < 1:
            raise ValueError(f"a worker with {slots} slots runs nothing; give at least 1")
        known: Dict[Tuple[str, int], "Task[Any, Any]"] = {}
        for task in tasks:
            if not isinstance(task, Task):
                raise TypeError(f"{task!r} is no task; put @task(\"kind\") above the function")
            if known.setdefault((task.kind, task.version), task) is not task:
                raise ValueError(f"two tasks have the kind {task.kind!r} and the version {task.version}; leave one out")
        if not known:
            raise ValueError("the worker has no tasks; give at least one")
        held = seconds(lease)
        every = held / 3 if renew_every is None else seconds(renew_every)
        if not 0 < every < held:
            raise ValueError(f"a lease of {held:g} s is renewed every {every:g} s; renew it more often than it runs out")
        self._client = client
        self._drain = seconds(drain)
        self._settings = _Settings(
            name=name or f"{socket.gethostname()}:{os.getpid()} (python)",
            queue=queue,
            slots=slots,
            tasks=known,
            lease=held,
            renew_every=every,
            timeout_grace=seconds(timeout_grace),
            poll=seconds(poll),
        )
        #: Wakes `run`. Its `put` may be called by signal handlers.
        self._mailbox: "_Mailbox" = _Mailbox()
        #: How often `stop` was called.
        self._stops = 0
        self.counts = Counts()

    def stop(self) -> None:
        """Requests the worker to stop: it claims nothing more, and waits for running attempts. Called again, it does not wait for them.
        May be called from any thread and from signal handlers."""
        self._stops += 1
        self._mailbox.put()

    def run(self, *, handle_signals: bool = True) -> Counts:
        """Runs jobs until `stop` is called, or until SIGTERM or SIGINT, if this is the main thread and `handle_signals` says so.

        Returns what has become of the jobs. While the server is away the worker waits for it. Only if the server refuses the worker at its
        start, or its certificate is not trusted, this raises an `ApiError` or a `TransportError`.
        """
        with self._signals(handle_signals):
            loops = _Loops(self._settings, self._client, self.counts, self._mailbox)
            try:
                if not self._register(loops.renewer):
                    return self.counts
                loops.start()
                self._supervise(loops, lambda: self._stops > 0, None)
                log.info("stopping: claiming nothing more, waiting for %d running attempts", len(loops.attempts.all()))
                loops.drain()
                is_done = lambda: not loops.attempts.all() or self._stops > 1  # noqa: E731
                self._supervise(loops, is_done, time.monotonic() + self._drain)
            finally:
                loops.close()
        return self.counts

    def _register(self, renewer: Renewer) -> bool:
        """Registers for the first time. Waits while the server is away; returns whether it worked before the request to stop."""
        backoff = Backoff()
        failed = False
        while not self._stops:
            try:
                renewer.begin()
                return True
            except (BadRequest, Forbidden, NotFound, Unauthorized) as error:
                # Somebody has to change something: this program, its token, or the server.
                if not isinstance(error, Unauthorized) or not self._client.target.reload_token():
                    raise
            except (TransportError, ApiError) as error:
                if is_untrusted(error):
                    raise
                log.log(logging.DEBUG if failed else logging.WARNING, "waiting for the server: %s", error)
                failed = True
                after = error.retry_after if isinstance(error, ApiError) else None
                self._mailbox.wait(backoff.delay(after or 0.0))
        return False

    def _supervise(self, loops: "_Loops", is_over: Callable[[], bool], until: Optional[float]) -> None:
        """Checks the time of attempts until `is_over`, or until a time."""
        while not is_over():
            next_check = loops.check_times()
            now = time.monotonic()
            if until is not None and now >= until:
                return
            wait = _TICK if next_check is None else min(_TICK, next_check - now)
            self._mailbox.wait(max(wait, 0.0))

    @contextmanager
    def _signals(self, wanted: bool) -> Iterator[None]:
        """Stops the worker on SIGTERM and SIGINT."""
        if not wanted or threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class _Settings:
    """What a worker is; spans are in seconds."""

    name: str
    queue: str
    slots: int
    tasks: Dict[Tuple[str, int], "Task[Any, Any]"]
    lease: float
    renew_every: float
    timeout_grace: float
    poll: float

    def register(self, calls: WorkerCalls) -> Registration:
        """Registers the worker."""
        return calls.register(self.name, self.lease, self.queue, self.slots, sorted(self.tasks))


class _Loops:
    """The loops of one run, from their start to their end."""

    def __init__(self, settings: _Settings, client: Client, counts: Counts, mailbox: "_Mailbox") -> None:
        self._settings, self._client, self._counts = settings, client, counts
        self._draining, self._closed = threading.Event(), threading.Event()
        # A renewal that hangs must not cost the lease.
        self._renewals = self._new_calls(settings.lease / 3)
        self._commits, self._claims = self._new_calls(), self._new_calls()
        self.attempts = Attempts(mailbox.put)
        self.renewer = Renewer(
            self._renewals, settings.register, settings.lease, settings.renew_every, self.attempts, self._closed
        )
        self._committer = Committer(self._commits, self.attempts, self.renewer.session_over, counts, self._closed)
        self._slots = Slots(settings.slots, self._ended)
        self._claimer = Claimer(
            self._claims, settings.queue, settings.tasks, settings.poll, self._slots, self.attempts, self.renewer, self._draining
        )
        self._threads: List[threading.Thread] = []
        self._claiming: Optional[threading.Thread] = None

    def start(self) -> None:
        """Starts them. The worker is registered."""
        self._threads.append(spawn("renewer", self.renewer.run, self._closed))
        self._threads.append(spawn("committer", self._committer.run, self._closed))
        self._slots.start()
        self._claiming = spawn("claimer", self._claimer.run, self._draining)

    def check_times(self) -> Optional[float]:
        """Ends attempts that run too long. Returns when to check again, by the monotonic clock."""
        return self.attempts.check_times(self._settings.timeout_grace, self._timed_out)

    def drain(self) -> None:
        """Claims nothing more. What an answer brings that is on its way is released when the worker retires."""
        self._draining.set()
        self._claims.connection.abort()
        self._slots.stop_waiting()
        self.renewer.wake()
        if self._claiming is not None:
            self._claiming.join(_RETIRE)

    def close(self) -> None:
        """Ends them, and releases what is not committed."""
        self._draining.set()
        self._closed.set()
        self._slots.stop_waiting()
        self._slots.close()
        self._committer.wake()
        self.renewer.wake()
        self._counts.released += self.attempts.drop(lambda attempt: True, "the worker has stopped")
        for thread in self._threads:
            thread.join(_RETIRE)
        for calls in (self._renewals, self._commits, self._claims):
            calls.connection.abort()
            calls.connection.close()
        self._retire()

    def _new_calls(self, timeout: Optional[float] = None) -> WorkerCalls:
        return WorkerCalls(Connection(self._client.target, timeout))

    def _ended(self, attempt: Attempt, data: bytes) -> None:
        """A function has returned."""
        if attempt.decide():
            self._committer.put(Change(attempt, data))

    def _timed_out(self, attempt: Attempt) -> None:
        """An attempt has not ended after its timeout."""
        why = attempt.context.end_reason
        if why is not None and attempt.decide():
            job = attempt.job
            log.warning("the job %s (%s) does not end after its timeout; its slot is busy until it does", job.id, job.kind)
            data = change(job, attempt.started_at, outcome.timed_out(attempt.task, why))
            self._committer.put(Change(attempt, data))

    def _retire(self) -> None:
        """Releases what is left. If the server is away, it finds out when the lease has run out."""
        session = self.renewer.last_session()
        if session is None or session.is_over:
            return
        calls = self._new_calls(_RETIRE / 2)
        until = time.monotonic() + _RETIRE
        while True:
            try:
                return calls.retire(session.worker)
            except (TransportError, ApiError) as error:
                if time.monotonic() > until or not isinstance(error, TransportError):
                    log.warning("the server does not know that this worker has stopped: %s", error)
                    return
                time.sleep(0.1)
            finally:
                calls.connection.close()


class _Mailbox:
    """Wakes a thread that waits. `put` may be called by any thread and by signal handlers."""

    def __init__(self) -> None:
        self._queue: "queue.SimpleQueue[None]" = queue.SimpleQueue()

    def put(self) -> None:
        self._queue.put(None)

    def wait(self, timeout: float) -> None:
        """Waits for a `put`, and takes all there are."""
        try:
            self._queue.get(timeout=timeout)
            while True:
                self._queue.get_nowait()
        except queue.Empty:
            pass
