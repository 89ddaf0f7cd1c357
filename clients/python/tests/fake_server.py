"""A server in memory with the same calls as the real one, which loses answers, delays them and sends garbage as a test tells it.

It is a reference of the protocol: jobs with epochs and revisions, numbered claims, leases. Time is that of the machine.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from collections import defaultdict, deque
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple
from urllib.parse import parse_qs, unquote, urlsplit

from windlass.values import time_text

#: What a fault does: loses the request, loses the answer, answers late, with no HTTP, no JSON, other JSON, an error of a proxy, or is busy.
FAULTS = ("lose_request", "lose_answer", "late", "no_http", "no_json", "other_json", "half_answer", "proxy_error", "busy")
#: How many seconds a late answer takes.
LATE = 0.3


#: An input that is sent as JSON of far more levels than Python reads.
DEEP = "@deep@"
_DEEP_JSON = b"[" * 100_000 + b"]" * 100_000


class Refusal(Exception):
    """An error as it is answered."""

    def __init__(self, status: int, code: str, message: str = "refused", hint: str = "do not") -> None:
        super().__init__(message)
        self.status, self.body = status, {"code": code, "message": message, "hint": hint}


class FakeServer:
    """The server. `with FakeServer() as server:` starts and stops it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.jobs: Dict[str, Dict[str, Any]] = {}
        self.workers: Dict[str, Dict[str, Any]] = {}
        #: Every outcome that was written: job, epoch, outcome.
        self.written: List[Tuple[str, int, Dict[str, Any]]] = []
        #: How often each path was requested.
        self.requests: Dict[str, int] = defaultdict(int)
        self.bodies: Dict[str, List[Any]] = defaultdict(list)
        self.signals: List[Tuple[str, str, Any, Optional[str]]] = []
        #: Faults of the next requests of a path, in order; `None` is an ordinary answer.
        self.faults: Dict[str, Deque[Optional[str]]] = defaultdict(deque)
        #: Chooses a fault for any request: called with its path.
        self.choose_fault: Callable[[str], Optional[str]] = lambda path: None
        self.token: Optional[str] = None
        self.is_down = False
        self.payload_limit = 1 << 20
        #: Refuses a change, by its outcome; or the whole call with `Refusal`.
        self.check_change: Callable[[Dict[str, Any]], Optional[str]] = lambda change: None
        self.cancels: Dict[Tuple[str, int], str] = {}
        #: Whether requests that were given up may have claimed after all.
        self.has_late_claims = False
        #: Set it before the start.
        self.tls: Optional[ssl.SSLContext] = None
        self._last_worker = 0

    def __enter__(self) -> "FakeServer":
        self._http = _Http(("127.0.0.1", 0), _handler(self))
        if self.tls is not None:
            self._http.socket = self.tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self._http.server_address[1]}"
        return self

    def __exit__(self, *_: Any) -> None:
        with self.lock:
            self.is_down = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    # What tests do.

    def add(self, kind: str, input: Any = None, **settings: Any) -> str:
        """Adds a job. Returns its id."""
        with self.lock:
            id = f"job-{len(self.jobs) + 1}"
            self._insert({"id": id, "kind": kind, "input": input, **settings})
            return id

    def until(self, condition: Callable[[], Any], timeout: float = 20.0) -> Any:
        """Waits until a condition holds."""
        end = time.monotonic() + timeout
        with self.lock:
            while True:
                value = condition()
                if value:
                    return value
                if time.monotonic() > end:
                    raise AssertionError(f"waited in vain; the jobs: {self.jobs}")
                self.changed.wait(0.05)

    def until_all_end(self, timeout: float = 20.0) -> None:
        self.until(lambda: all(job["state"] in ("done", "failed", "cancelled") for job in self.jobs.values()), timeout)

    def kill_workers(self) -> None:
        """Declares all workers dead, as if their leases had run out."""
        with self.lock:
            for worker in self.workers.values():
                worker["until"] = 0.0
            self._reap()

    # The API.

    def handle(self, method: str, path: str, query: Dict[str, str], body: Any) -> Tuple[int, Any]:
        with self.lock:
            self._reap()
            if path.startswith("/worker/v1/"):
                verb = path[len("/worker/v1/") :].replace("-", "_")
                answer = getattr(self, f"_worker_{verb}")(body)
                self.changed.notify_all()
                return 200, answer
            return self._v1(method, [unquote(part) for part in path.split("/")[2:]], query, body)

    def _v1(self, method: str, parts: List[str], query: Dict[str, str], body: Any) -> Tuple[int, Any]:
        if method == "POST" and parts == ["jobs"]:
            answer = self._insert(body)
            return (201 if answer["new"] else 200), answer
        if method == "POST" and parts == ["jobs", "batch"]:
            return 200, {"jobs": [self._insert_or_error(job) for job in body["jobs"]]}
        if method == "GET" and parts == ["jobs"]:
            return 200, self._list(query)
        job = next((job for job in self.jobs.values() if parts[1] in (job["id"], job["key"], f"{job['kind']}/{job['key']}")), None)
        if job is None:
            raise Refusal(404, "not_found", f"there is no job {parts[1]!r}")
        if method == "GET" and len(parts) == 2:
            return 200, self._shown(job)
        if parts[2] == "result":
            end = time.monotonic() + float(query.get("wait", "0ms")[:-2]) / 1000
            while job["state"] not in ("done", "failed", "cancelled") and time.monotonic() < end and not self.is_down:
                self.changed.wait(0.05)
            return self._result(job)
        if parts[2] == "why":
            return 200, {"job": job["id"], "state": job["state"], "cause": "ready", "because": "it waits", "hint": "wait"}
        if parts[2] == "signals":
            known = any(each[0] == job["id"] and each[1] == parts[3] and each[3] == body["dedup"] for each in self.signals)
            if not known:
                self.signals.append((job["id"], parts[3], body["payload"], body["dedup"]))
            return 200, {"job": job["id"], "name": parts[3], "delivery": "duplicate" if known else "delivered"}
        if parts[2] == "cancel":
            if job["state"] == "running":
                self.cancels[job["id"], job["epoch"]] = "ada"
                return 200, {"job": job["id"], "outcome": "cancel_requested"}
            job.update(state="cancelled", failure={"class": "cancelled", "message": "by ada"})
            return 200, {"job": job["id"], "outcome": "cancelled"}
        raise Refusal(404, "not_found")

    def _insert(self, new: Dict[str, Any]) -> Dict[str, Any]:
        if new["kind"] == "refused":
            raise Refusal(400, "invalid", "the kind is refused", "choose another")
        known = self.jobs.get(new["id"])
        if known is None and new.get("key"):
            known = next((job for job in self.jobs.values() if (job["kind"], job["key"]) == (new["kind"], new["key"])), None)
        if known is not None:
            return {"id": known["id"], "new": False, "differs": known["input"] != new.get("input")}
        job = {"key": None, "queue": "default", "version": 1, "priority": 0, "input": None, **new}
        job.update(state="ready", epoch=0, rev=0, attempts=0, deaths=0, claim=None, due=0.0, submitted_at=time_text(datetime.now(timezone.utc)))
        self.jobs[job["id"]] = job
        self.changed.notify_all()
        return {"id": job["id"], "new": True, "differs": False}

    def _insert_or_error(self, new: Dict[str, Any]) -> Dict[str, Any]:
        try:
            return self._insert(new)
        except Refusal as refusal:
            return {"error": refusal.body}

    def _list(self, query: Dict[str, str]) -> Dict[str, Any]:
        jobs = [job for job in reversed(list(self.jobs.values())) if query.get("kind") in (None, job["kind"])]
        jobs = [job for job in jobs if query.get("stage") in (None, job.get("stage"))]
        if "before" in query:
            jobs = jobs[[job["id"] for job in jobs].index(query["before"]) + 1 :]
        limit = int(query["limit"])
        more = jobs[limit - 1]["id"] if len(jobs) > limit else None
        return {"counts": {}, "jobs": [self._shown(job) for job in jobs[:limit]], "next_before": more}

    def _shown(self, job: Dict[str, Any]) -> Dict[str, Any]:
        names = ("id", "kind", "version", "queue", "state", "key", "priority", "attempts", "submitted_at")
        return {**{name: job[name] for name in names}, "due_at": job["submitted_at"], "epoch": job["epoch"], "rev": job["rev"]}

    def _result(self, job: Dict[str, Any]) -> Tuple[int, Any]:
        answer = {"job": job["id"], "state": job["state"]}
        if job["state"] == "done":
            return 200, {**answer, "output": job["output"]}
        if job["state"] in ("failed", "cancelled"):
            return 200, {**answer, "reason": job.get("reason"), "failure": job["failure"]}
        return 202, answer

    # The worker protocol.

    def _worker_register(self, body: Dict[str, Any]) -> Dict[str, Any]:
        self._last_worker += 1
        id = f"w{self._last_worker:x}"
        until = time.monotonic() + body["lease_ms"] / 1000
        self.workers[id] = {"until": until, "claims": {}, "solo": set(), "settled": 0, "progress": None, "alive": True}
        return {"worker": id, "now": time_text(datetime.now(timezone.utc)), "payload_limit": self.payload_limit}

    def _alive(self, id: str) -> Dict[str, Any]:
        worker = self.workers.get(id)
        if worker is None or not worker["alive"]:
            raise Refusal(409, "worker_dead", "the worker was declared dead", "register again")
        return worker

    def _worker_claim(self, body: Dict[str, Any]) -> Dict[str, Any]:
        worker = self._alive(body["worker"])
        self._settle(worker, body["settled"])
        number, end = body["number"], time.monotonic() + body["wait_ms"] / 1000
        if number <= worker["settled"]:
            raise Refusal(400, "invalid", "the claim is settled")
        while number not in worker["claims"]:
            ready = [job for job in self.jobs.values() if self._claimable(job, body)]
            solo = body.get("solo", False)
            jobs = [job for job in ready if bool(job["deaths"]) == solo][: body["limit"]]
            suspects = any(job["deaths"] for job in ready if job not in jobs)
            if jobs or suspects or time.monotonic() >= end or self.is_down:
                worker["claims"][number] = [job["id"] for job in jobs]
                if solo and jobs:
                    worker["solo"].add(number)
                for job in jobs:
                    job.update(state="running", claim=(body["worker"], number))
                break
            self.changed.wait(0.02)
            worker = self._alive(body["worker"])
        claimed = [self.jobs[id] for id in worker["claims"][number] if self.jobs[id]["claim"] == (body["worker"], number)]
        suspects = any(job["deaths"] for job in self.jobs.values() if self._claimable(job, body))
        now = time_text(datetime.now(timezone.utc))
        return {"jobs": [self._claimed(job, number) for job in claimed], "more": False, "suspects": suspects, "now": now}

    def _claimable(self, job: Dict[str, Any], body: Dict[str, Any]) -> bool:
        if job["state"] != "ready" or job["queue"] != body["queue"] or job["due"] > time.monotonic():
            return False
        return any(each["kind"] == job["kind"] and each["version"] == job["version"] for each in body["kinds"])

    def _claimed(self, job: Dict[str, Any], number: int) -> Dict[str, Any]:
        names = ("id", "kind", "version", "epoch", "rev", "attempts", "key")
        claimed = {name: job[name] for name in names}
        if job["version"] == 1:
            del claimed["version"]
        claimed.update(claim=number, worker_deaths=job["deaths"], due_at=job["submitted_at"], deadline_at=job.get("deadline_at"))
        claimed["input"] = job["payload"] if "payload" in job else {"json": job["input"]}
        claimed.update({name: job[name] for name in ("timeout_ms", "fault") if name in job})
        return claimed

    def _settle(self, worker: Dict[str, Any], settled: int) -> None:
        """Forgets settled claims, if none of their jobs is claimed."""
        for number in [number for number in worker["claims"] if number <= settled]:
            claims = [self.jobs[id]["claim"] for id in worker["claims"][number]]
            is_open = any(claim is not None and claim[1] == number and self.workers[claim[0]] is worker for claim in claims)
            if not is_open:
                del worker["claims"][number]
            elif not self.has_late_claims:
                raise AssertionError(f"claim {number} is settled, and has jobs")
        worker["settled"] = max(worker["settled"], settled)

    def _worker_renew(self, body: Dict[str, Any]) -> Dict[str, Any]:
        worker = self.workers.get(body["worker"])
        if worker is None or not worker["alive"]:
            return {"held": False, "claims": [], "cancels": []}
        self._settle(worker, body["settled"])
        worker["until"] = time.monotonic() + body["lease_ms"] / 1000
        worker["progress"] = body.get("progress", worker["progress"])
        worker["solo"].difference_update(body.get("solo_ended", []))
        cancels = [
            {"job": job, "epoch": epoch, "author": author, "note": "too late", "deadline_at": time_text(datetime.now(timezone.utc))}
            for (job, epoch), author in self.cancels.items()
            if self.jobs[job]["claim"] is not None and self.jobs[job]["claim"][0] == body["worker"]
        ]
        return {"held": True, "claims": sorted(worker["claims"]), "cancels": cancels}

    def _worker_commit(self, body: Dict[str, Any]) -> Dict[str, Any]:
        assert len({change["job"] for change in body["changes"]}) == len(body["changes"]), "a job has two changes in one call"
        refusals = [self.check_change(change) for change in body["changes"]]
        return {"outcomes": [self._commit(body["worker"], *pair) for pair in zip(body["changes"], refusals)]}

    def _commit(self, worker: str, change: Dict[str, Any], refusal: Optional[str]) -> Dict[str, Any]:
        job, epoch, claim = self.jobs[change["job"]], change["epoch"], (worker, change["claim"])
        if job.get("wrote") == (claim, epoch, change["rev"]):
            return {"outcome": "committed", "state": job["state"]}
        if job["claim"] != claim or job["epoch"] != epoch or job["rev"] != change["rev"]:
            return {"outcome": "fenced"}
        if refusal is not None:
            return {"outcome": "refused", "message": refusal}
        outcome = change["outcome"]
        job.update(claim=None, rev=job["rev"] + 1, wrote=(claim, epoch, change["rev"]))
        self.written.append((job["id"], epoch, outcome))
        if "done" in outcome:
            job.update(state="done", output=outcome["done"]["json"])
        elif "cancelled" in outcome:
            job.update(state="cancelled", failure={"class": "cancelled", **outcome["cancelled"]})
        else:
            self._fail(job, outcome)
        return {"outcome": "committed", "state": job["state"]}

    def _fail(self, job: Dict[str, Any], outcome: Dict[str, Any]) -> None:
        error = outcome["error"]
        policy = outcome.get("policy") or [{"class": None, "attempts": 20, "base_ms": 10}]
        rule = next((rule for rule in policy if rule["class"] in (None, error["class"])), None)
        job["attempts"] += 1
        if error["retry"] and rule is not None and job["attempts"] < rule["attempts"]:
            delay = error.get("after_ms", rule["base_ms"]) / 1000
            job.update(state="ready", epoch=job["epoch"] + 1, due=time.monotonic() + delay)
        else:
            job.update(state="failed", failure=error, reason="exhausted" if error["retry"] else "stopped")

    def _worker_release(self, body: Dict[str, Any]) -> Dict[str, Any]:
        for each in body["jobs"]:
            job = self.jobs[each["job"]]
            if job["claim"] == (body["worker"], each["claim"]) and job["epoch"] == each["epoch"]:
                job.update(state="ready", claim=None, epoch=job["epoch"] + 1)
        return {"outcomes": []}

    def _worker_release_claims(self, body: Dict[str, Any]) -> Dict[str, Any]:
        for number in body["numbers"]:
            self.workers[body["worker"]]["claims"].pop(number, None)
            self._return_jobs(body["worker"], number)
        return {"released": 0}

    def _worker_retire(self, body: Dict[str, Any]) -> Dict[str, Any]:
        worker = self.workers.get(body["worker"])
        if worker is not None:
            worker.update(alive=False, until=0.0)
            self._return_jobs(body["worker"])
        return {}

    def _reap(self) -> None:
        for id, worker in self.workers.items():
            if worker["alive"] and worker["until"] <= time.monotonic():
                worker["alive"] = False
                self._return_jobs(id, deaths=1)

    def _return_jobs(self, worker: str, number: Optional[int] = None, deaths: int = 0) -> None:
        for job in self.jobs.values():
            if job["claim"] is not None and job["claim"][0] == worker and number in (None, job["claim"][1]):
                job.update(state="ready", claim=None, epoch=job["epoch"] + 1, deaths=job["deaths"] + deaths)
        self.changed.notify_all()


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients hang up, as tests want them to. Anything else is a fault of this file.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _handler(server: FakeServer) -> Any:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def _serve(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            data = self.rfile.read(length)
            if len(data) < length:
                return self._hang_up()
            with server.lock:
                server.requests[url.path] += 1
                queued = server.faults[url.path]
                fault = queued.popleft() if queued else server.choose_fault(url.path)
                down = server.is_down
            if down or fault == "lose_request":
                return self._hang_up()
            if fault == "busy":
                return self._answer(503, {"code": "unavailable", "message": "busy", "hint": "later"}, {"Retry-After": "0"})
            if fault == "proxy_error":
                return self._send_raw(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>")
            try:
                status, answer = self._processed(url.path, dict((k, v[0]) for k, v in parse_qs(url.query).items()), data)
            except Refusal as refusal:
                status, answer = refusal.status, refusal.body
            if fault == "late":
                time.sleep(LATE)
            if fault == "lose_answer" or server.is_down:
                return self._hang_up()
            if fault == "no_http":
                return self._send_raw(b"\x00\xffgarbage\r\n\r\n")
            if fault == "no_json":
                return self._send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\"a\xff")
            if fault == "half_answer":
                return self._send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{}")
            if fault == "other_json":
                status, answer = 200, [1, {"jobs": 7}]
            self._answer(status, answer, {})

        def _processed(self, path: str, query: Dict[str, str], data: bytes) -> Tuple[int, Any]:
            if server.token is not None and self.headers.get("Authorization") != f"Bearer {server.token}":
                raise Refusal(401, "unauthorized", "the token is not known here", "send another")
            body = json.loads(data) if data else None
            with server.lock:
                server.bodies[path].append(body)
            return server.handle(self.command, path, query, body)

        def _answer(self, status: int, answer: Any, headers: Dict[str, str]) -> None:
            data = json.dumps(answer).encode().replace(json.dumps(DEEP).encode(), _DEEP_JSON)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

        def _send_raw(self, data: bytes) -> None:
            try:
                self.wfile.write(data)
            except OSError:
                pass
            self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

        do_GET = do_POST = _serve

    return Handler
