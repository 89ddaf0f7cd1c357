"""What the loops of a worker share: threads that do not die, and calls that are repeated until they are answered."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional, TypeVar

from .backoff import Backoff
from .errors import ApiError, BadRequest, TransportError, Unauthorized, WorkerDead
from .transport import Target

log = logging.getLogger("windlass")
T = TypeVar("T")

#: How many seconds to wait after a fault of this package, which is logged.
_AFTER_FAULT = 1.0


class Closed(Exception):
    """The worker has stopped, and the call is not repeated any more."""


def spawn(name: str, body: Callable[[], None], closed: threading.Event) -> threading.Thread:
    """Starts a thread that runs `body` until it returns or the worker has stopped. A fault is logged, and `body` runs again."""

    def run() -> None:
        while not closed.is_set():
            try:
                return body()
            except Closed:
                return
            except Exception:
                log.exception("the %s of the worker failed, and starts again", name)
                closed.wait(_AFTER_FAULT)

    # A daemon: a function that never returns must not keep the process from ending.
    thread = threading.Thread(target=run, name=f"windlass-{name}", daemon=True)
    thread.start()
    return thread


def repeat(
    what: str,
    call: Callable[[], T],
    target: Target,
    closed: threading.Event,
    failed: Optional[Callable[[], None]] = None,
) -> T:
    """Repeats a call until it is answered. `failed` is called after each failure.

    Raises `Closed` when the worker has stopped, and `WorkerDead` and `BadRequest`, which a repeat does not change. All other refusals may
    pass: the server is restarted, a token is replaced.
    """
    backoff = Backoff()
    failures = 0
    while True:
        if closed.is_set():
            raise Closed
        try:
            answer = call()
        except (WorkerDead, BadRequest):
            raise
        except (TransportError, ApiError) as error:
            if closed.is_set():
                raise Closed from None
            if isinstance(error, Unauthorized):
                target.reload_token()
            failures += 1
            # Once per outage, and now and then while it lasts.
            level = logging.WARNING if failures == 1 or failures % 100 == 0 else logging.DEBUG
            log.log(level, "%s failed, and is repeated: %s", what, error)
            if failed is not None:
                failed()
            after = error.retry_after if isinstance(error, ApiError) else None
            closed.wait(backoff.delay(after or 0.0))
            continue
        if failures:
            log.info("%s succeeded after %d failures", what, failures)
        return answer
