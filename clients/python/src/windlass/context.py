"""The context of an attempt: what it runs, how far it is, and whether it must end."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from typing import Any, Dict, Optional

from .errors import Cancelled, TimedOut
from .values import Duration, seconds, time_text

#: The longest note of a report that the server keeps, in characters.
_MAX_NOTE = 200
#: A share is reported in parts of this.
_PARTS = 100


class Context:
    """What an attempt knows of its job. A test may make one: `Context("id", "resize")`."""

    def __init__(
        self,
        job: str,
        kind: str,
        *,
        version: int = 1,
        key: Optional[str] = None,
        attempt: int = 1,
        fence: int = 0,
        due_at: Optional[datetime] = None,
        deadline_at: Optional[datetime] = None,
    ) -> None:
        #: The id of the job: an idempotency key for what the task does elsewhere.
        self.job = job
        self.kind = kind
        self.version = version
        #: The caller's own name for the job.
        self.key = key
        #: The number of this attempt, from 1. Attempts whose worker died are not counted.
        self.attempt = attempt
        #: A number that grows whenever another attempt may start: a fencing token for systems that compare one.
        self.fence = fence
        #: When the job became due.
        self.due_at = due_at
        #: When the job fails if it has not ended.
        self.deadline_at = deadline_at
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._end: Optional[Cancelled] = None
        self._report: Optional[Dict[str, Any]] = None

    @property
    def cancelled(self) -> bool:
        """Whether the attempt must end: the job was cancelled, the attempt has timed out, or another worker has the job."""
        return self._ends.is_set()

    def check(self) -> None:
        """Raises `Cancelled` if the attempt must end; `TimedOut` if that is because of its time."""
        why = self.end_reason
        if why is not None:
            raise type(why)(*why.args)

    def sleep(self, duration: Duration) -> None:
        """Sleeps. Raises `Cancelled` as soon as the attempt must end."""
        self._ends.wait(seconds(duration))
        self.check()

    def progress(self, done: float, note: str = "", *, total: Optional[int] = None) -> None:
        """Reports how far the attempt is: a share from 0 to 1, or with `total` a number out of it.

        `progress(0.5, "resizing")` is a half, `progress(37, "pages", total=120)` 37 of 120. The report is sent with the next renewal of
        the lease; only the last one is kept.
        """
        if total is None:
            if not 0 <= done <= 1:
                raise ValueError(f"a share of {done}; give one from 0 to 1, or a number and its total")
            count, total = round(done * _PARTS), _PARTS
        else:
            count = int(done)
            if count < 0 or total < 0:
                raise ValueError(f"{count} of {total}; neither may be negative")
        note = note[:_MAX_NOTE].encode("utf-8", "replace").decode()
        report = {"done": count, "total": total, "note": note, "at": time_text(datetime.now(timezone.utc))}
        with self._lock:
            self._report = report

    def last_report(self) -> Optional[Dict[str, Any]]:
        """What `progress` reported last, as it is sent."""
        with self._lock:
            return self._report

    def request_end(self, why: Cancelled) -> None:
        """Asks the attempt to end, as its worker does. The first reason stays."""
        with self._lock:
            if self._end is None:
                self._end = why
        self._ends.set()

    @property
    def end_reason(self) -> Optional[Cancelled]:
        """Why the attempt must end, if it must."""
        with self._lock:
            return self._end

    @property
    def timed_out(self) -> bool:
        """Whether it must end because of its time."""
        return isinstance(self.end_reason, TimedOut)
