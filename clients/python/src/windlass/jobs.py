"""Jobs as they are submitted, and as the server shows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, Mapping, Optional, Sequence, Union

from .ids import new_job_id
from .task import Task
from .values import Duration, duration_text, parse_time, time_text

#: A job, by its id, its key, or `kind/key`.
JobRef = Union[str, "Submitted", "Job"]


@dataclass(frozen=True)
class Unique:
    """A name that only one job of its kind holds at a time."""

    name: str
    #: If another job holds it: `keep` that job, `reject` this one, `replace` that job unless it runs, or `cancel_and_replace` it.
    on_conflict: Optional[str] = None
    #: A job holds it while it is `live`, `waiting` or `kept`.
    held_while: Optional[str] = None
    #: A job holds it for at most this long after its submit.
    within: Optional[Duration] = None

    def to_json(self) -> Dict[str, Any]:
        within = None if self.within is None else duration_text(self.within)
        return _given(name=self.name, on_conflict=self.on_conflict, held_while=self.held_while, within=within)


@dataclass(frozen=True)
class Serial:
    """A serial key: jobs with the same one run one after the other, or as many at once as it has slots."""

    key: str
    slots: Optional[int] = None
    #: Whether the job keeps its slot while it waits for a retry.
    hold: Optional[bool] = None

    def to_json(self) -> Dict[str, Any]:
        return _given(key=self.key, slots=self.slots, hold=self.hold)


@dataclass(frozen=True)
class Rate:
    """The rate limit that a job starts under."""

    limit: str
    weight: Optional[int] = None

    def to_json(self) -> Dict[str, Any]:
        return _given(limit=self.limit, weight=self.weight)


@dataclass(frozen=True)
class NewJob:
    """A job to be submitted. `None` means that the kind or the server decides."""

    #: Its kind: a name, or a task of this program, which also has the version.
    kind: Union[str, "Task[Any, Any]"]
    #: Its input: any JSON.
    input: Any = None
    #: Its id. A repeated submit of the same id is done once.
    id: str = field(default_factory=new_job_id)
    #: Its key, unique among the jobs of its kind: a second submit with the same key returns the first job.
    key: Optional[str] = None
    version: Optional[int] = None
    queue: Optional[str] = None
    #: From -100 (most urgent) to 100 (least urgent).
    priority: Optional[int] = None
    tags: Sequence[str] = ()
    #: Start it this long from now.
    delay: Optional[Duration] = None
    #: Start it at this time.
    at: Optional[datetime] = None
    #: Fail it if it has not ended by then.
    deadline_at: Optional[datetime] = None
    #: The number of attempts in total.
    attempts: Optional[int] = None
    #: How long one attempt may run.
    timeout: Optional[Duration] = None
    unique: Optional[Unique] = None
    serial: Optional[Serial] = None
    rate: Optional[Rate] = None
    #: Its parent, by id, key or `kind/key`.
    parent: Optional[str] = None
    #: Any JSON, kept with the job.
    options: Any = None
    #: The trace that it belongs to, a W3C traceparent.
    trace: Optional[str] = None
    #: Accept an input that the server's own code of the kind cannot decode.
    any_input: bool = False

    def to_json(self) -> Dict[str, Any]:
        """The body of a submit."""
        kind, version = self.kind, self.version
        if isinstance(kind, Task):
            version = kind.version if version is None else version
            kind = kind.kind
        if isinstance(self.tags, str):
            raise TypeError(f"tags is the text {self.tags!r}; give a list of texts")
        return _given(
            kind=kind,
            input=self.input,
            id=self.id,
            key=self.key,
            version=version,
            queue=self.queue,
            priority=self.priority,
            tags=list(self.tags) or None,
            delay=None if self.delay is None else duration_text(self.delay),
            at=None if self.at is None else time_text(self.at),
            deadline_at=None if self.deadline_at is None else time_text(self.deadline_at),
            attempts=self.attempts,
            timeout=None if self.timeout is None else duration_text(self.timeout),
            unique=None if self.unique is None else self.unique.to_json(),
            serial=None if self.serial is None else self.serial.to_json(),
            rate=None if self.rate is None else self.rate.to_json(),
            parent=self.parent,
            options=self.options,
            trace=self.trace,
            any_input=self.any_input or None,
        )


@dataclass(frozen=True)
class Submitted:
    """A job that was submitted, now or before."""

    #: Its id.
    id: str
    #: Whether this submit made it.
    new: bool
    #: Whether it is an existing job with another input.
    differs: bool
    #: The job that it replaced.
    replaced: Optional[str] = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Submitted":
        return cls(str(value["id"]), bool(value["new"]), bool(value.get("differs", False)), value.get("replaced"))


@dataclass(frozen=True)
class Job:
    """A job as the server shows it. `raw` has every field; those here are of every job."""

    id: str
    kind: str
    version: int
    queue: str
    #: `scheduled`, `ready`, `running`, `waiting`, `done`, `failed` or `cancelled`.
    state: str
    key: Optional[str]
    priority: int
    #: How many attempts have failed.
    attempts: int
    #: Why it failed.
    reason: Optional[str]
    submitted_at: Optional[datetime]
    due_at: Optional[datetime]
    finished_at: Optional[datetime]
    #: The JSON of the server.
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Job":
        return cls(
            id=str(value["id"]),
            kind=str(value["kind"]),
            version=int(value["version"]),
            queue=str(value["queue"]),
            state=str(value["state"]),
            key=value.get("key"),
            priority=int(value["priority"]),
            attempts=int(value["attempts"]),
            reason=value.get("reason"),
            submitted_at=parse_time(value.get("submitted_at")),
            due_at=parse_time(value.get("due_at")),
            finished_at=parse_time(value.get("finished_at")),
            raw=value,
        )

    @property
    def has_ended(self) -> bool:
        """Whether its state is final."""
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Why:
    """Why a job is in its state."""

    job: str
    state: Optional[str]
    #: The cause, a word to compare.
    cause: str
    #: The reason, in a sentence.
    because: str
    #: What to do about it.
    hint: str
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Why":
        return cls(
            job=str(value["job"]),
            state=value.get("state"),
            cause=str(value["cause"]),
            because=str(value["because"]),
            hint=str(value["hint"]),
            raw=value,
        )


def job_name(job: JobRef) -> str:
    """The name by which a path names a job."""
    return job if isinstance(job, str) else job.id


def _given(**values: Any) -> Dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
