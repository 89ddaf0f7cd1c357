"""How attempts end: what a function returned or raised, as the outcome that is committed."""

from __future__ import annotations

import traceback
from typing import Any, Dict, Optional

from .context import Context
from .errors import Cancelled, Fail, Retry
from .retry import class_word
from .task import Task
from .values import millis

#: The longest message of an error that is sent, in characters. The server keeps 16 KiB.
_MAX_MESSAGE = 4_000
#: How much of a traceback is sent, in characters: its end, which is where the error is.
_MAX_TRACEBACK = 8_000

#: The outcome of a change, as the protocol has it.
Outcome = Dict[str, Any]


def done(output: Any) -> Outcome:
    """The job is done."""
    return {"done": {"json": output}}


def cancelled(why: BaseException) -> Outcome:
    """The job is cancelled."""
    message = message_of(why) if why.args else "the task asked for it"
    return {"cancelled": {"class": "cancelled", "message": _clean(message, _MAX_MESSAGE)}}


def refused(message: str) -> Outcome:
    """What the task did cannot be written, now or later."""
    return error("refused", message, retry=False)


def timed_out(task: "Task[Any, Any]", why: BaseException) -> Outcome:
    """The attempt ran too long."""
    return _with_policy(error("timeout", message_of(why), retry=True), task)


def error(
    error_class: str,
    message: str,
    *,
    retry: bool,
    after: Optional[int] = None,
    detail: Any = None,
) -> Outcome:
    """The attempt failed."""
    body: Dict[str, Any] = {"class": _clean(error_class, 128) or "error", "message": _clean(message, _MAX_MESSAGE), "retry": retry}
    if after is not None:
        body["after_ms"] = after
    if detail is not None:
        body["detail"] = detail
    return {"error": body}


def of_exception(raised: BaseException, context: Context, task: "Task[Any, Any]") -> Outcome:
    """The outcome of an attempt whose function raised something."""
    requested = context.end_reason
    if context.timed_out and requested is not None:
        return timed_out(task, requested)
    if requested is not None:
        # A cancelled job is not retried, whatever the function raised.
        return cancelled(requested)
    if isinstance(raised, Cancelled):
        return cancelled(raised)
    if isinstance(raised, Fail):
        return error(raised.error_class, message_of(raised), retry=False, detail=raised.detail)
    if isinstance(raised, Retry):
        after = None if raised.after is None else millis(raised.after)
        return _with_policy(error(raised.error_class, message_of(raised), retry=True, after=after), task)
    detail = {"exception": _qualified_name(raised), "traceback": traceback_of(raised)}
    return _with_policy(error(class_word(type(raised)), message_of(raised), retry=True, detail=detail), task)


def message_of(raised: BaseException) -> str:
    """The text of an exception; its class if there is none."""
    try:
        return str(raised) or type(raised).__name__
    except Exception:  # an exception of the program, whose __str__ may do anything
        return f"a {type(raised).__name__} whose text cannot be made"


def traceback_of(raised: BaseException) -> str:
    """The end of the traceback, with the exceptions that led to it."""
    try:
        # Without the frames of this package.
        trace = raised.__traceback__.tb_next if raised.__traceback__ is not None else None
        text = "".join(traceback.format_exception(type(raised), raised, trace))
    except Exception:  # as above: formatting calls code of the program
        return "the traceback cannot be made"
    if len(text) > _MAX_TRACEBACK:
        text = f"… ({len(text) - _MAX_TRACEBACK} characters left out)\n{text[-_MAX_TRACEBACK:]}"
    return _clean(text, 2 * _MAX_TRACEBACK)


def _with_policy(outcome: Outcome, task: "Task[Any, Any]") -> Outcome:
    if task.retry is not None:
        outcome["policy"] = task.retry.to_json()
    return outcome


def _qualified_name(raised: BaseException) -> str:
    return _clean(f"{type(raised).__module__}.{type(raised).__qualname__}", 256)


def _clean(text: str, most: int) -> str:
    """A text that UTF-8 can express, of at most so many characters."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else f"{text[:most]} … (truncated; {len(text)} characters in all)"
