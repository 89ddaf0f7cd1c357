"""Errors: what a call raises, and what the code of a task raises to say how its attempt ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Type, Union


class WindlassError(Exception):
    """The base of all errors that calls of this package raise."""


class TransportError(WindlassError):
    """The server could not be reached, or its answer was lost or is not JSON.

    The call was repeated for as long as the client may. Whether the server did what was asked is unknown: repeat the call with the
    same `id` or `dedup` to find out.
    """


class ApiError(WindlassError):
    """The server refused a request."""

    def __init__(self, status: int, code: str, message: str, hint: str = "", retry_after: Optional[float] = None) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        #: The status code of the response.
        self.status = status
        #: The word to compare.
        self.code = code
        #: What is wrong, and why.
        self.message = message
        #: What to do next.
        self.hint = hint
        #: How many seconds the server asks to wait before the request is repeated.
        self.retry_after = retry_after

    def __reduce__(self) -> Any:
        return (type(self), (self.status, self.code, self.message, self.hint, self.retry_after))


class BadRequest(ApiError):
    """The request, or a value in it, cannot be accepted. The same request will never be."""


class Unauthorized(ApiError):
    """There is no token, or it is not accepted."""


class Forbidden(ApiError):
    """The token may not do this."""


class NotFound(ApiError):
    """There is no such job or path."""


class Conflict(ApiError):
    """The state of the job does not allow it."""


class WorkerDead(Conflict):
    """The server has declared the worker dead: other workers have its jobs."""


class TooManyRequests(ApiError):
    """This client sends too many requests."""


class Unavailable(ApiError):
    """The server or its store is busy or stops, or the request took too long."""


class ServerError(ApiError):
    """A fault of the server."""


_BY_CODE: Dict[str, Type[ApiError]] = {
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not_found": NotFound,
    "conflict": Conflict,
    "worker_dead": WorkerDead,
    "too_many_requests": TooManyRequests,
    "slow_body": Unavailable,
    "unavailable": Unavailable,
    "timeout": Unavailable,
    "internal": ServerError,
}
_BY_STATUS: Dict[int, Type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    429: TooManyRequests,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def api_error(status: int, body: Any, retry_after: Optional[float] = None) -> ApiError:
    """Makes the error of a response. A proxy's own has no JSON, and a code of its status."""
    fields: Dict[Any, Any] = body if isinstance(body, dict) else {}
    code = str(fields.get("code") or f"http_{status}")
    message = str(fields.get("message") or f"the server answered with status {status}")
    hint = str(fields.get("hint") or "")
    default: Type[ApiError] = ServerError if status >= 500 else BadRequest
    error = _BY_CODE.get(code) or _BY_STATUS.get(status) or default
    return error(status, code, message, hint, retry_after)


class JobFailed(WindlassError):
    """The job has failed."""

    def __init__(self, job: str, reason: str, failure: Dict[str, Any]) -> None:
        super().__init__(f"the job {job} failed ({reason}): {failure.get('message', '')}")
        #: The id of the job.
        self.job = job
        #: Why it failed: `exhausted`, `stopped`, `timeout`, `poison`, `undecodable`, `expired`, `refused` or `diverged`.
        self.reason = reason
        #: The last error: `class`, `message`, and perhaps `detail`.
        self.failure = failure

    def __reduce__(self) -> Any:
        return (type(self), (self.job, self.reason, self.failure))


class JobCancelled(WindlassError):
    """The job was cancelled."""

    def __init__(self, job: str, failure: Dict[str, Any]) -> None:
        super().__init__(f"the job {job} was cancelled: {failure.get('message', '')}")
        #: The id of the job.
        self.job = job
        #: Who cancelled it, or why: `class` and `message`.
        self.failure = failure

    def __reduce__(self) -> Any:
        return (type(self), (self.job, self.failure))


class JobGone(WindlassError):
    """The job was deleted while its result was awaited."""


class ResultTimeout(WindlassError, TimeoutError):
    """The job has not ended within the time that the caller waits."""


class SubmitManyError(WindlassError):
    """Some jobs of a `submit_many` were refused. The others are submitted."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        refused: List[ApiError] = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        super().__init__(f"{len(refused)} of {len(outcomes)} jobs were refused; the first: {refused[0] if refused else '?'}")
        #: For each job, in order: what was submitted, or the `ApiError` that refused it.
        self.outcomes = list(outcomes)

    def __reduce__(self) -> Any:
        return (type(self), (self.outcomes,))


class Retry(Exception):
    """Raised in a task: the attempt failed and is worth another one, after `after` if that is given.

    The retry policy decides whether there is another attempt. Any other exception means the same without a delay of its own.
    """

    def __init__(self, message: str = "", *, after: Union[timedelta, float, None] = None, error_class: str = "error") -> None:
        super().__init__(message)
        self.after = after
        self.error_class = error_class


class Fail(Exception):
    """Raised in a task: the job fails, because no further attempt can help."""

    def __init__(self, message: str = "", *, error_class: str = "error", detail: Any = None) -> None:
        super().__init__(message)
        self.error_class = error_class
        #: Any JSON that is kept with the failure.
        self.detail = detail


class Cancelled(BaseException):
    """Raised by `Context.check` and `Context.sleep` when the attempt must end. Raised by a task itself, it cancels the job.

    It is no `Exception`, so that `except Exception` in a task does not catch it.
    """


class TimedOut(Cancelled):
    """The attempt has run longer than it may."""
