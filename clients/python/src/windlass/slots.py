"""Slots: threads that run attempts, one each at a time."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, List, Optional

from . import outcome
from .attempts import Attempt
from .loops import log, spawn
from .protocol import change
from .values import to_json


class Slots:
    """The threads, and how many of them are free.

    A slot is busy until the function returns: an attempt that was given up and does not end keeps its slot.
    """

    def __init__(self, count: int, ended: Callable[[Attempt, bytes], None]) -> None:
        """`ended` is called with each attempt that has ended, and its change."""
        self._count = count
        self._ended = ended
        self._free = count
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._queue: "queue.SimpleQueue[Optional[Attempt]]" = queue.SimpleQueue()

    def start(self) -> List[threading.Thread]:
        """Starts the threads."""
        return [spawn(f"slot-{number}", self._run, self._closed) for number in range(self._count)]

    def wait_free(self) -> int:
        """Waits for a free slot. Returns how many there are; 0 if they are closed."""
        with self._changed:
            while self._free <= 0 and not self._closed.is_set():
                self._changed.wait()
            return 0 if self._closed.is_set() else self._free

    def wait_idle(self, timeout: float) -> bool:
        """Waits until nothing runs. Returns whether that is so before the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= self._count or self._closed.is_set(), timeout)
            return self._free >= self._count

    def stop_waiting(self) -> None:
        """Ends all waits, and makes `wait_free` return 0 from now on."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the threads, each when it runs nothing any more. Nothing may be run afterwards."""
        for _ in range(self._count):
            self._queue.put(None)

    def run(self, attempt: Attempt) -> None:
        """Runs an attempt in a slot that `wait_free` counted."""
        with self._changed:
            self._free -= 1
        self._queue.put(attempt)

    def _run(self) -> None:
        while True:
            attempt = self._queue.get()
            if attempt is None:
                return
            try:
                self._ended(attempt, run_attempt(attempt))
            finally:
                attempt.ended.set()
                with self._changed:
                    self._free += 1
                    self._changed.notify_all()


def run_attempt(attempt: Attempt) -> bytes:
    """Runs the function, and returns the change that follows from how it ends."""
    job, task, context = attempt.job, attempt.task, attempt.context
    try:
        value = job.decode_input()
    except ValueError as error:
        return _change(attempt, outcome.error("undecodable", str(error), retry=False))
    try:
        output = task.run(context, value)
    except BaseException as raised:  # also SystemExit: a task that calls sys.exit has failed
        try:
            return _change(attempt, outcome.of_exception(raised, context, task))
        except Exception as error:
            message = f"what the task raised cannot be written ({error}): {outcome.message_of(raised)}"
            return _change(attempt, outcome.refused(message))
    return _change_of_output(attempt, output)


def _change_of_output(attempt: Attempt, output: Any) -> bytes:
    try:
        size = len(to_json(output))
    except (TypeError, ValueError) as error:
        return _change(attempt, outcome.refused(f"the result of the task is no JSON: {error}; return what json.dumps accepts"))
    limit = attempt.session.payload_limit
    if limit is not None and size > limit:
        return _change(
            attempt,
            outcome.refused(f"the result of the task has {size} bytes, more than the {limit} allowed; keep it elsewhere and return its name"),
        )
    return _change(attempt, outcome.done(output))


def _change(attempt: Attempt, ended: outcome.Outcome) -> bytes:
    return change(attempt.job, attempt.started_at, ended)


def minimal_failure(attempt: Attempt, message: str) -> bytes:
    """The change that fails a job whose own change the server cannot write."""
    log.error("the outcome of the job %s (%s) was refused: %s", attempt.job.id, attempt.job.kind, message)
    return _change(attempt, outcome.refused(message))
