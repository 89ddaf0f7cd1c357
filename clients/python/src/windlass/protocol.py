"""The worker protocol: the calls under `/worker/v1`, and what they carry.

Each call may be repeated. A claim has a number of its own; the same number again gives the same jobs. A change names the epoch and the
revision that it follows, so that the server recognises one that it has written.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from .errors import TransportError
from .transport import Connection
from .values import TOO_DEEP, TooDeep, from_json, from_json_cut, millis, parse_time, time_text, to_json

T = TypeVar("T")
_BASE = "/worker/v1/"
#: Within how many values an input is in the answer to a claim: the answer, its jobs, a job, and its payload.
_INPUT_LEVEL = 4


@dataclass(frozen=True)
class Registration:
    """A worker as the server knows it."""

    worker: str
    #: The most bytes of an output.
    payload_limit: Optional[int]


@dataclass(frozen=True)
class ClaimedJob:
    """A job as it is claimed."""

    id: str
    kind: str
    version: int
    #: The number of the claim, the epoch and the revision. Every change names them.
    claim: int
    epoch: int
    rev: int
    #: How many attempts have failed.
    attempts: int
    key: Optional[str]
    due_at: Optional[datetime]
    deadline_at: Optional[datetime]
    #: The input as it came: `{"json": …}` or `{"codec": …, "base64": …}`.
    input: Mapping[str, Any]
    #: How many seconds one attempt may run, if the job says so.
    timeout: Optional[float]
    #: How many workers died while they had it.
    worker_deaths: int
    #: What of the job cannot be decoded. It must not run.
    fault: Optional[str]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ClaimedJob":
        timeout = value.get("timeout_ms")
        return cls(
            id=str(value["id"]),
            kind=str(value["kind"]),
            version=int(value.get("version", 1)),
            claim=int(value["claim"]),
            epoch=int(value["epoch"]),
            rev=int(value["rev"]),
            attempts=int(value.get("attempts", 0)),
            key=value.get("key"),
            due_at=parse_time(value.get("due_at")),
            deadline_at=parse_time(value.get("deadline_at")),
            input=dict(value["input"]),
            timeout=None if timeout is None else int(timeout) / 1000,
            worker_deaths=int(value.get("worker_deaths", 0)),
            fault=value.get("fault"),
        )

    def decode_input(self) -> Any:
        """The input. Raises `ValueError` if it cannot be decoded here, or something else of the job cannot at all."""
        if self.fault is not None:
            raise ValueError(self.fault)
        if "json" in self.input:
            if self.input["json"] is TOO_DEEP:
                raise TooDeep("the input is nested deeper than this Python can read; see sys.setrecursionlimit")
            return self.input["json"]
        codec = self.input.get("codec")
        if codec != 0:
            raise ValueError(f"the input was written by the codec {codec}, which this worker does not have; run its kind in a worker that has")
        try:
            data = base64.b64decode(str(self.input.get("base64", "")), validate=True)
        except binascii.Error as error:
            raise ValueError(f"the input is not base64: {error}") from None
        return from_json(data)

    def name(self) -> Dict[str, Any]:
        """The claimed job as calls name it."""
        return {"job": self.id, "epoch": self.epoch, "claim": self.claim}


@dataclass(frozen=True)
class ClaimBatch:
    """The answer to a claim."""

    jobs: List[ClaimedJob]
    #: Whether suspects wait: jobs whose worker died, which are claimed one by one to run alone.
    suspects: bool
    #: The server's clock.
    now: Optional[datetime]


@dataclass(frozen=True)
class CancelRequest:
    """A request to an attempt to end."""

    job: str
    epoch: int
    #: Who cancelled the job, and why.
    author: str
    note: Optional[str]


@dataclass(frozen=True)
class Renewal:
    """The answer to a renewal."""

    #: Whether the worker still has its lease. If not, all its claims are void.
    held: bool
    #: The numbers of the claims that the server has of this worker; `None` if it does not say.
    claims: Optional[List[int]]
    cancels: List[CancelRequest]


@dataclass(frozen=True)
class CommitOutcome:
    """What became of one change: `committed`, `halted`, `fenced` or `refused`."""

    outcome: str
    message: str


class WorkerCalls:
    """Sends the calls of a worker over one connection, each once: the loops of the worker repeat them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def register(self, name: str, lease: float, queue: str, slots: int, kinds: Sequence[Tuple[str, int]]) -> Registration:
        """Registers a worker. After a lost answer, a repeat registers another one; the lease of the first runs out."""
        serves = {"queue": queue, "slots": slots, "kinds": _kinds(kinds)}
        body = {"name": name, "lease_ms": millis(lease), "serves": [serves]}
        return self._call("register", body, lambda value: Registration(str(value["worker"]), _limit(value.get("payload_limit"))))

    def claim(
        self,
        worker: str,
        number: int,
        queue: str,
        kinds: Sequence[Tuple[str, int]],
        limit: int,
        wait: float,
        settled: int,
        solo: bool,
    ) -> ClaimBatch:
        """Claims at most `limit` jobs, and waits for the first. `solo` claims a suspect, which is to run alone."""
        body = {"worker": worker, "number": number, "queue": queue, "kinds": _kinds(kinds), "limit": limit}
        body.update(wait_ms=millis(wait), settled=settled)
        if solo:
            body["solo"] = True

        def read(value: Mapping[str, Any]) -> ClaimBatch:
            jobs = [ClaimedJob.from_json(job) for job in value["jobs"]]
            return ClaimBatch(jobs, value.get("suspects") is True, parse_time(value.get("now")))

        # An input that cannot be read costs its own job, and not the claim.
        return self._send("claim", to_json(body), read, wait, lambda data: from_json_cut(data, _INPUT_LEVEL))

    def renew(
        self,
        worker: str,
        lease: float,
        settled: int,
        solo_ended: Sequence[int],
        progress: Optional[List[Dict[str, Any]]],
    ) -> Renewal:
        """Renews the lease, and fetches requests to end attempts. `solo_ended` are claims whose job does not run alone any more.
        `progress` replaces all reports; `None` leaves them."""
        body: Dict[str, Any] = {"worker": worker, "lease_ms": millis(lease), "settled": settled}
        if solo_ended:
            body["solo_ended"] = list(solo_ended)
        if progress is not None:
            body["progress"] = progress

        def read(value: Mapping[str, Any]) -> Renewal:
            claims = value.get("claims")
            cancels = [
                CancelRequest(str(each["job"]), int(each["epoch"]), str(each["author"]), each.get("note"))
                for each in value.get("cancels") or []
            ]
            return Renewal(value["held"] is True, None if claims is None else [int(number) for number in claims], cancels)

        return self._call("renew", body, read)

    def commit(self, worker: str, changes: Sequence[bytes]) -> List[CommitOutcome]:
        """Commits changes, which are encoded already."""
        body = b'{"worker":' + to_json(worker) + b',"changes":[' + b",".join(changes) + b"]}"
        outcomes = self._send("commit", body, _outcomes)
        if len(outcomes) != len(changes):
            raise TransportError(f"{len(changes)} changes were sent, and {len(outcomes)} answered")
        return outcomes

    def release(self, worker: str, jobs: Sequence[ClaimedJob]) -> None:
        """Gives claimed jobs back that have not started."""
        self._call("release", {"worker": worker, "jobs": [job.name() for job in jobs]}, lambda value: None)

    def release_claims(self, worker: str, numbers: Sequence[int]) -> None:
        """Releases all jobs of claims whose answers never came."""
        self._call("release-claims", {"worker": worker, "numbers": list(numbers)}, lambda value: None)

    def retire(self, worker: str) -> None:
        """Ends the service of the worker. What it still has claimed is released."""
        self._call("retire", {"worker": worker}, lambda value: None)

    def _call(self, verb: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        return self._send(verb, to_json(body), read)

    def _send(
        self,
        verb: str,
        body: bytes,
        read: Callable[[Any], T],
        wait: float = 0.0,
        parse: Callable[[bytes], Any] = from_json,
    ) -> T:
        _, value = self.connection.send("POST", _BASE + verb, body, wait, parse)
        try:
            return read(value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TransportError(f"the answer to {verb} is not one of this protocol ({type(error).__name__}: {error})") from error


def change(job: ClaimedJob, started_at: datetime, outcome: Mapping[str, Any]) -> bytes:
    """A change, encoded. Raises `TypeError` or `ValueError` if JSON cannot express the outcome."""
    return to_json({**job.name(), "rev": job.rev, "started_at": time_text(started_at), "outcome": outcome})


def _outcomes(value: Mapping[str, Any]) -> List[CommitOutcome]:
    outcomes = [CommitOutcome(str(each["outcome"]), str(each.get("message") or "")) for each in value["outcomes"]]
    for each in outcomes:
        if each.outcome not in ("committed", "halted", "fenced", "refused"):
            raise ValueError(f"the outcome {each.outcome!r}")
    return outcomes


def _kinds(kinds: Sequence[Tuple[str, int]]) -> List[Dict[str, Any]]:
    return [{"kind": kind, "version": version} for kind, version in kinds]


def _limit(value: Any) -> Optional[int]:
    return None if value is None else int(value)
