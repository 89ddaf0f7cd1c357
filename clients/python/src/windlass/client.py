"""The client: submits jobs, waits for results, sends signals, acts on jobs."""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Type, TypeVar, Union

from .errors import (
    JobCancelled,
    JobFailed,
    JobGone,
    NotFound,
    ResultTimeout,
    SubmitManyError,
    TransportError,
    api_error,
)
from .ids import new_job_id
from .jobs import Job, JobRef, NewJob, Rate, Serial, Submitted, Unique, Why, job_name
from .task import Task
from .transport import Caller, Target, segment
from .values import Duration, duration_text, seconds, time_text, to_json

T = TypeVar("T")

#: How many jobs one request submits: as many as one transaction of the server.
_BATCH_JOBS = 1_000
#: How many bytes of jobs one request submits: the server accepts 8 MiB.
_BATCH_BYTES = 6 << 20
#: For how many seconds one request waits for a result. The server allows 60; proxies often less.
_RESULT_WAIT = 25.0


class Client:
    """A client of a server. It may be used by several threads at once: each has a connection of its own.

    Every call is repeated if its answer is lost or the server is busy, for at most `retry_for` seconds, and has the effect of one. After
    that it raises `TransportError` or `Unavailable`. What the server refuses is another `ApiError`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:7077",
        *,
        token: Optional[str] = None,
        token_file: Union[str, Path, None] = None,
        ca_file: Union[str, Path, None] = None,
        timeout: float = 40.0,
        retry_for: float = 30.0,
        allow_http: bool = False,
    ) -> None:
        """`token_file`, which only its owner may read, is read again when the server refuses its token. `ca_file` has the certificates that are trusted for https, in
        PEM; by default those of the system are. `timeout` is how many seconds an answer may take. `allow_http` allows http to
        another machine: everybody on the way can read the token and the jobs."""
        self._caller = Caller(Target(url, token, token_file, ca_file, timeout, allow_http), retry_for)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._caller.close()

    @property
    def target(self) -> Target:
        """Where the server is. For workers, which have connections of their own."""
        return self._caller.target

    def submit(
        self,
        kind: Union[str, "Task[Any, Any]"],
        input: Any = None,
        *,
        id: Optional[str] = None,
        key: Optional[str] = None,
        version: Optional[int] = None,
        queue: Optional[str] = None,
        priority: Optional[int] = None,
        tags: Optional[Sequence[str]] = None,
        delay: Optional[Duration] = None,
        at: Optional[datetime] = None,
        deadline_at: Optional[datetime] = None,
        attempts: Optional[int] = None,
        timeout: Optional[Duration] = None,
        unique: Optional[Unique] = None,
        serial: Optional[Serial] = None,
        rate: Optional[Rate] = None,
        parent: Optional[str] = None,
        options: Any = None,
        trace: Optional[str] = None,
        any_input: bool = False,
    ) -> Submitted:
        """Submits a job; see `NewJob` for the settings.

        The id is drawn here if it is not given, so that a repeated request submits once. To submit once across several runs of a
        program, give a `key`, or an `id` that the program has kept.
        """
        job = NewJob(
            kind,
            input,
            id=new_job_id() if id is None else id,
            key=key,
            version=version,
            queue=queue,
            priority=priority,
            tags=() if tags is None else tags,
            delay=delay,
            at=at,
            deadline_at=deadline_at,
            attempts=attempts,
            timeout=timeout,
            unique=unique,
            serial=serial,
            rate=rate,
            parent=parent,
            options=options,
            trace=trace,
            any_input=any_input,
        )
        _, value = self._caller.call("POST", "/v1/jobs", body=to_json(job.to_json()))
        return _read(Submitted.from_json, value)

    def submit_many(self, jobs: Iterable[NewJob]) -> List[Submitted]:
        """Submits jobs, many with one request. Raises `SubmitManyError` if some were refused; the others are submitted."""
        outcomes: List[Any] = []
        batch: List[bytes] = []
        size = 0
        for job in jobs:
            text = to_json(job.to_json())
            if batch and (len(batch) >= _BATCH_JOBS or size + len(text) > _BATCH_BYTES):
                outcomes += self._submit_batch(batch)
                batch, size = [], 0
            batch.append(text)
            size += len(text) + 1
        if batch:
            outcomes += self._submit_batch(batch)
        if not all(isinstance(outcome, Submitted) for outcome in outcomes):
            raise SubmitManyError(outcomes)
        return outcomes

    def _submit_batch(self, batch: List[bytes]) -> List[Any]:
        body = b'{"jobs":[' + b",".join(batch) + b"]}"
        _, value = self._caller.call("POST", "/v1/jobs/batch", body=body)

        def outcome(answer: Mapping[str, Any]) -> Any:
            return api_error(400, answer["error"]) if "error" in answer else Submitted.from_json(answer)

        answers = _read(lambda value: [outcome(answer) for answer in value["jobs"]], value)
        if len(answers) != len(batch):
            raise TransportError(f"{len(batch)} jobs were submitted, and {len(answers)} answered")
        return answers

    def result(self, job: JobRef, timeout: Optional[Duration] = None) -> Any:
        """Waits for the end of a job and returns its output.

        Raises `JobFailed`, `JobCancelled`, or `ResultTimeout` if the job has not ended after `timeout`. Without one it waits for ever.
        """
        name = job_name(job)
        path = f"/v1/jobs/{segment(name)}/result"
        until = None if timeout is None else time.monotonic() + seconds(timeout)
        found = False
        while True:
            wait = _RESULT_WAIT if until is None else max(0.0, min(_RESULT_WAIT, until - time.monotonic()))
            query = {"wait": duration_text(wait)} if wait else None
            try:
                status, value = self._caller.call("GET", path, query=query, wait=wait, until=until)
            except NotFound as error:
                if not found:
                    raise
                raise JobGone(f"the job {name} was deleted while its result was awaited") from error
            found = True
            if status != 202:
                return _read(_output, value)
            if until is not None and time.monotonic() >= until:
                state = _read(lambda value: str(value["state"]), value)
                raise ResultTimeout(f"the job {name} has not ended in time; it is {state}")

    def signal(self, job: JobRef, name: str, payload: Any = None, *, dedup: Optional[str] = None) -> bool:
        """Sends a signal to a job. When this returns, the signal is durably in the job's inbox.

        A signal with the same name and `dedup` is delivered once; without one, each call delivers one. Returns whether it was
        delivered now.
        """
        body = to_json({"payload": payload, "dedup": uuid.uuid4().hex if dedup is None else dedup})
        path = f"/v1/jobs/{segment(job_name(job))}/signals/{segment(name)}"
        _, value = self._caller.call("POST", path, body=body)
        delivery = _read(lambda value: str(value["delivery"]), value)
        # A duplicate of a dedup id that was drawn here is this call itself, repeated.
        return delivery == "delivered" or dedup is None

    def cancel(
        self,
        job: JobRef,
        *,
        grace: Optional[Duration] = None,
        children: bool = False,
        note: Optional[str] = None,
    ) -> Dict[str, Any]:
        """Cancels a job. A running attempt is requested to end, and may take `grace`. Returns the outcome."""
        body: Dict[str, Any] = {"children": children}
        if grace is not None:
            body["grace"] = duration_text(grace)
        if note is not None:
            body["note"] = note
        _, value = self._caller.call("POST", f"/v1/jobs/{segment(job_name(job))}/cancel", body=to_json(body))
        return _read(dict, value)

    def get(self, job: JobRef) -> Job:
        """Reads a job with everything that the server has of it."""
        _, value = self._caller.call("GET", f"/v1/jobs/{segment(job_name(job))}")
        return _read(Job.from_json, value)

    def why(self, job: JobRef) -> Why:
        """Says why a job is in its state, and what to do."""
        _, value = self._caller.call("GET", f"/v1/jobs/{segment(job_name(job))}/why")
        return _read(Why.from_json, value)

    def jobs(
        self,
        *,
        state: Optional[str] = None,
        kind: Optional[str] = None,
        queue: Optional[str] = None,
        tag: Optional[str] = None,
        key: Optional[str] = None,
        key_prefix: Optional[str] = None,
        error_class: Optional[str] = None,
        stage: Optional[str] = None,
        version: Optional[int] = None,
        top: Optional[bool] = None,
        since: Optional[datetime] = None,
        until: Optional[datetime] = None,
        page: int = 100,
    ) -> Iterator[Job]:
        """The jobs that match, newest first: for example those that failed with an error of this class, are machines in this
        stage, or were submitted `since` a time and before `until`. `top` leaves out children of other jobs. Pages of `page` jobs are read as the caller goes on."""
        query: Dict[str, Any] = {
            "state": state,
            "kind": kind,
            "queue": queue,
            "tag": tag,
            "key": key,
            "key_prefix": key_prefix,
            "error_class": error_class,
            "stage": stage,
            "version": version,
            "top": top,
            "since": None if since is None else time_text(since),
            "until": None if until is None else time_text(until),
            "limit": page,
        }
        while True:
            _, value = self._caller.call("GET", "/v1/jobs", query=query)
            yield from _read(lambda value: [Job.from_json(job) for job in value["jobs"]], value)
            query["before"] = _read(lambda value: value["next_before"], value)
            if query["before"] is None:
                return


def _output(value: Mapping[str, Any]) -> Any:
    job, state = str(value["job"]), value["state"]
    if state == "done":
        return value["output"]
    failure = dict(value["failure"])
    if state == "failed":
        raise JobFailed(job, str(value["reason"]), failure)
    raise JobCancelled(job, failure)


def _read(reader: Callable[[Any], T], value: Any) -> T:
    """Reads an answer, or says that it is not one of this API."""
    try:
        return reader(value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TransportError(f"the server's answer is not one of this API ({type(error).__name__}: {error}); check the address") from error
