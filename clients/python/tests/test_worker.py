"""Workers against a server that loses answers, delays, sends garbage, restarts, and declares them dead."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
import unittest
from typing import Any, Callable, Dict, List, Optional

from tests.fake_server import DEEP, FAULTS, LATE, FakeServer
from windlass import (
    ApiError,
    Cancelled,
    Client,
    Context,
    Counts,
    Fail,
    Retry,
    RetryPolicy,
    Task,
    TimedOut,
    Unauthorized,
    Worker,
    task,
)


@task("echo")
def echo(input: Any) -> Any:
    return input


class WorkerCase(unittest.TestCase):
    def setUp(self) -> None:
        self.server = FakeServer().__enter__()
        self.addCleanup(self.server.__exit__)
        # A late answer is later than this, but for a claim, which waits.
        self.client = Client(self.server.url, timeout=LATE / 2)
        self.addCleanup(self.client.close)
        # What workers log of faults is expected here.
        logging.getLogger("windlass").setLevel(logging.CRITICAL)

    def worker(self, *tasks: "Task[Any, Any]", **settings: Any) -> Worker:
        chosen: Dict[str, Any] = {"slots": 2, "lease": 5.0, "renew_every": 0.05, "drain": 10.0, "poll": 0.5, **settings}
        return Worker(self.client, tasks=tasks, **chosen)

    def start(self, worker: Worker) -> "Running":
        running = Running(worker)
        self.addCleanup(running.stop)
        return running

    def run_to_end(self, *tasks: "Task[Any, Any]", **settings: Any) -> Counts:
        """Runs a worker until all jobs have ended."""
        running = self.start(self.worker(*tasks, **settings))
        self.server.until_all_end()
        return running.stop()

    def job(self, id: str) -> Dict[str, Any]:
        return self.server.jobs[id]

    def assert_written_once(self) -> None:
        """No job has two outcomes that end it."""
        ended = [job for job, _, outcome in self.server.written if "done" in outcome]
        self.assertEqual(len(ended), len(set(ended)))


class Running:
    """A worker in a thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.error: Optional[BaseException] = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> Counts:
        """Stops it, if that has not been requested."""
        if self.thread.is_alive():
            self.worker.stop()
        return self.join()

    def join(self) -> Counts:
        """Waits until it has stopped."""
        self.thread.join(30)
        if self.thread.is_alive():
            raise AssertionError("the worker does not stop")
        if self.error is not None:
            raise self.error
        return self.worker.counts


class Outcomes(WorkerCase):
    def test_jobs_run_and_their_outputs_are_committed(self) -> None:
        jobs = [self.server.add("echo", {"n": n}) for n in range(40)]
        counts = self.run_to_end(echo)
        self.assertEqual([self.job(id)["output"] for id in jobs], [{"n": n} for n in range(40)])
        self.assertEqual((counts.committed, counts.fenced, counts.released), (40, 0, 0))
        self.assertLess(self.server.requests["/worker/v1/commit"], 40, "outcomes that wait are committed together")

    def test_a_function_may_take_the_context(self) -> None:
        @task("context", version=2)
        def with_context(context: Context, input: Any) -> Any:
            return [context.job, context.kind, context.version, context.key, context.attempt, context.fence, context.cancelled]

        id = self.server.add("context", key="k", version=2)
        self.run_to_end(with_context)
        self.assertEqual(self.job(id)["output"], [id, "context", 2, "k", 1, 0, False])

    def test_an_error_has_its_class_message_and_traceback_and_is_retried(self) -> None:
        attempts: List[int] = []

        @task("flaky", retry=RetryPolicy().on(KeyError, 5, base=0.01).otherwise(2, base=0.01))
        def flaky(context: Context, input: Any) -> Any:
            attempts.append(context.attempt)
            if context.attempt < 3:
                raise KeyError("missing ä \ud800")
            return "done"

        id = self.server.add("flaky")
        self.run_to_end(flaky)
        self.assertEqual((self.job(id)["state"], attempts), ("done", [1, 2, 3]))
        error = self.server.written[0][2]["error"]
        self.assertEqual((error["class"], error["retry"]), ("KeyError", True))
        self.assertIn("missing ä", error["message"])
        self.assertIn("in flaky", error["detail"]["traceback"])
        self.assertNotIn("slots.py", error["detail"]["traceback"], "frames of this package are left out")
        self.assertEqual(
            self.server.written[0][2]["policy"],
            [
                {"class": "KeyError", "attempts": 5, "base_ms": 10, "cap_ms": 300000, "jitter": 0.25},
                {"class": None, "attempts": 2, "base_ms": 10, "cap_ms": 300000, "jitter": 0.25},
            ],
        )

    def test_a_traceback_is_bounded(self) -> None:
        @task("deep", retry=1)
        def deep(input: Any) -> Any:
            raise ValueError("x" * 100_000)

        id = self.server.add("deep")
        self.run_to_end(deep)
        failure = self.job(id)["failure"]
        self.assertLess(len(failure["message"]), 5_000)
        self.assertLess(len(failure["detail"]["traceback"]), 10_000)

    def test_retry_and_fail_say_what_follows(self) -> None:
        @task("choose")
        def choose(context: Context, input: Any) -> Any:
            if input == "fail":
                raise Fail("no such account", error_class="account", detail={"id": 7})
            if context.attempt == 1:
                raise Retry("busy", after=0.02, error_class="busy")
            return "later"

        failed, retried = self.server.add("choose", "fail"), self.server.add("choose", "retry")
        self.run_to_end(choose)
        failure = self.job(failed)["failure"]
        self.assertEqual((self.job(failed)["state"], self.job(failed)["reason"]), ("failed", "stopped"))
        self.assertEqual((failure["class"], failure["message"], failure["detail"]), ("account", "no such account", {"id": 7}))
        self.assertEqual(self.job(retried)["output"], "later")
        retry = next(outcome["error"] for job, _, outcome in self.server.written if job == retried)
        self.assertEqual((retry["after_ms"], retry["class"]), (20, "busy"))

    def test_what_cannot_be_written_fails_its_job_alone(self) -> None:
        @task("bad")
        def bad(input: Any) -> Any:
            if input == "object":
                return object()
            if input == "nan":
                return float("nan")
            if input == "surrogate":
                return "\ud800"
            if input == "large":
                return "x" * (1 << 20)
            if input == "exit":
                raise SystemExit(3)
            if input == "detail":
                raise Fail("x", detail=object())
            if input == "after":
                raise Retry("x", after=-1)
            if input == "loop":
                value: List[Any] = []
                value.append(value)
                return value
            return "good"

        kinds = ["object", "nan", "surrogate", "large", "detail", "after", "loop"]
        jobs = {kind: self.server.add("bad", kind) for kind in kinds}
        good = [self.server.add("bad", "good") for _ in range(10)]
        self.run_to_end(bad)
        for kind, id in jobs.items():
            with self.subTest(kind=kind):
                self.assertEqual(self.job(id)["failure"]["class"], "refused", self.job(id)["failure"])
        self.assertTrue(all(self.job(id)["state"] == "done" for id in good))

    def test_a_change_that_the_server_refuses_is_found_and_fails_its_job(self) -> None:
        from tests.fake_server import Refusal

        def check(change: Dict[str, Any]) -> Optional[str]:
            done = change["outcome"].get("done")
            if done is not None and done["json"] == 3:
                raise Refusal(400, "invalid", "a number is out of range")
            return "too large" if done is not None and done["json"] == 5 else None

        self.server.check_change = check
        jobs = [self.server.add("echo", n) for n in range(12)]
        self.run_to_end(echo, slots=12)
        states = [self.job(id)["state"] for id in jobs]
        self.assertEqual([n for n, state in enumerate(states) if state == "failed"], [3, 5])
        self.assertIn("out of range", self.job(jobs[3])["failure"]["message"])
        self.assertEqual(self.job(jobs[5])["failure"]["message"], "too large")

    def test_inputs_of_codecs_are_decoded_or_refused(self) -> None:
        plain = self.server.add("echo", payload={"codec": 0, "base64": "eyJhIjoxfQ=="})
        broken = [self.server.add("echo", payload={"codec": codec, "base64": text}) for codec, text in ((7, ""), (0, "%"), (0, "eyI="))]
        broken.append(self.server.add("echo", fault="its settings cannot be decoded"))
        self.run_to_end(echo)
        self.assertEqual(self.job(plain)["output"], {"a": 1})
        self.assertEqual([self.job(id)["failure"]["class"] for id in broken], ["undecodable"] * 4)
        self.assertEqual(self.job(broken[3])["failure"]["message"], "its settings cannot be decoded")


class Ends(WorkerCase):
    def test_an_input_that_is_nested_too_deeply_fails_its_job_and_no_other(self) -> None:
        nested: Any = "core"
        for _ in range(200):
            nested = {"in": [nested]}
        inputs = ["before", DEEP, nested, {"key": "]}[{\\\""}, "after"]
        jobs = [self.server.add("echo", input) for input in inputs]
        self.run_to_end(echo)
        ended = [self.server.jobs[job] for job in jobs]
        self.assertEqual([job["state"] for job in ended], ["done", "failed", "done", "done", "done"])
        self.assertEqual([job.get("output") for job in ended], [inputs[0], None, *inputs[2:]])
        failure = ended[1]["failure"]
        self.assertEqual((failure["class"], failure["retry"]), ("undecodable", False))
        self.assertIn("nested deeper", failure["message"])
        self.assertEqual(self.server.requests["/worker/v1/register"], 1)

    def test_a_cancel_reaches_the_attempt(self) -> None:
        started = threading.Event()

        @task("long")
        def long(context: Context, input: Any) -> Any:
            started.set()
            try:
                context.sleep(30)
            except Exception:
                self.fail("a cancel is no Exception")

        id = self.server.add("long")
        self.start(self.worker(long))
        self.assertTrue(started.wait(10))
        self.client.cancel(id)
        self.server.until(lambda: self.job(id)["state"] == "cancelled")
        self.assertEqual(self.job(id)["failure"]["message"], "cancelled by ada: too late")

    def test_a_task_cancels_its_own_job(self) -> None:
        @task("quit")
        def leave(input: Any) -> Any:
            raise Cancelled("not needed any more")

        id = self.server.add("quit")
        self.run_to_end(leave)
        self.assertEqual((self.job(id)["state"], self.job(id)["failure"]["message"]), ("cancelled", "not needed any more"))

    def test_a_timeout_ends_an_attempt_that_looks_and_one_that_does_not(self) -> None:
        release = threading.Event()
        seen: List[BaseException] = []

        @task("slow", timeout=0.1, retry=1)
        def slow(context: Context, input: Any) -> Any:
            if input == "deaf":
                release.wait(30)
                return "too late"
            try:
                context.sleep(30)
            except TimedOut as error:
                seen.append(error)
                raise

        polite, deaf = self.server.add("slow", "polite"), self.server.add("slow", "deaf")
        self.addCleanup(release.set)
        running = self.start(self.worker(slow, timeout_grace=0.1))
        self.server.until_all_end()
        release.set()
        running.stop()
        for id in (polite, deaf):
            self.assertEqual(self.job(id)["failure"]["class"], "timeout")
        self.assertEqual(len(seen), 1)
        self.assertEqual(len(self.server.written), 2, "what the late attempt returned is dropped")

    def test_the_timeout_of_the_job_comes_before_that_of_the_task(self) -> None:
        @task("slow", timeout=60, retry=1)
        def slow(context: Context, input: Any) -> Any:
            context.sleep(30)

        id = self.server.add("slow", timeout_ms=50)
        self.run_to_end(slow)
        self.assertEqual(self.job(id)["failure"]["message"], "the attempt ran longer than 0.05 s")

    def test_a_passed_deadline_ends_the_attempt_and_commits_nothing(self) -> None:
        ended = threading.Event()

        @task("slow")
        def slow(context: Context, input: Any) -> Any:
            try:
                context.sleep(30)
            finally:
                ended.set()

        self.server.add("slow", deadline_at="2020-01-01T00:00:00.000000Z")
        self.start(self.worker(slow))
        self.assertTrue(ended.wait(10))
        self.assertEqual(self.server.written, [], "the server fails it by its own timer")

    def test_progress_is_reported(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)

        @task("long")
        def long(context: Context, input: Any) -> Any:
            context.progress(0.5, "half of it")
            go.wait(30)
            context.progress(7, "pages", total=9)
            with self.assertRaises(ValueError):
                context.progress(7)

        id = self.server.add("long")
        self.start(self.worker(long))

        def report() -> Any:
            reports = [report for worker in self.server.workers.values() for report in worker["progress"] or []]
            return reports and reports[0]

        found = self.server.until(report)
        self.assertEqual({name: found[name] for name in ("job", "epoch", "done", "total", "note")}, {"job": id, "epoch": 0, "done": 50, "total": 100, "note": "half of it"})
        go.set()
        self.server.until_all_end()
        self.assertEqual(self.job(id)["state"], "done")


class Drains(WorkerCase):
    def test_a_stopping_worker_waits_for_what_runs_and_claims_nothing_more(self) -> None:
        started, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        @task("long")
        def long(input: Any) -> Any:
            started.set()
            go.wait(30)
            return "finished"

        first = self.server.add("long")
        running = self.start(self.worker(long, slots=1))
        self.assertTrue(started.wait(10))
        second = self.server.add("long")
        running.worker.stop()
        threading.Timer(0.2, go.set).start()
        counts = running.join()
        self.assertEqual((self.job(first)["output"], self.job(second)["state"]), ("finished", "ready"))
        self.assertEqual((counts.committed, counts.released), (1, 0))
        self.assertEqual([worker["alive"] for worker in self.server.workers.values()], [False], "it has retired")

    def test_what_does_not_end_in_time_is_released(self) -> None:
        go, started = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        @task("long")
        def long(context: Context, input: Any) -> Any:
            started.set()
            go.wait(30)
            return "too late"

        id = self.server.add("long")
        running = self.start(self.worker(long, drain=0.1))
        self.assertTrue(started.wait(10))
        counts = running.stop()
        self.assertEqual((self.job(id)["state"], self.job(id)["epoch"], counts.released), ("ready", 1, 1))
        go.set()
        self.assertEqual(self.server.written, [])

    def test_a_second_stop_does_not_wait(self) -> None:
        started, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        @task("long")
        def long(context: Context, input: Any) -> Any:
            started.set()
            go.wait(60)

        id = self.server.add("long")
        running = self.start(self.worker(long, drain=60))
        self.assertTrue(started.wait(10))
        running.worker.stop()
        running.stop()
        self.assertEqual(self.job(id)["state"], "ready")

    def test_sigterm_stops_the_worker_in_the_main_thread(self) -> None:
        id = self.server.add("echo", 1)

        def kill() -> None:
            self.server.until_all_end()
            os.kill(os.getpid(), signal.SIGTERM)

        killer = threading.Thread(target=kill)
        killer.start()
        counts = self.worker(echo).run()
        killer.join()
        self.assertEqual((self.job(id)["state"], counts.committed), ("done", 1))
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL, "the handler is put back")

    def test_a_stop_before_the_start_and_while_the_server_is_away(self) -> None:
        worker = self.worker(echo)
        worker.stop()
        self.assertEqual(worker.run().committed, 0)
        self.server.is_down = True
        running = self.start(self.worker(echo))
        self.server.until(lambda: self.server.requests["/worker/v1/register"] > 1)
        running.stop()


class Faults(WorkerCase):
    def test_every_job_is_done_and_written_once_whatever_is_lost(self) -> None:
        for seed in range(3):
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                self.server.choose_fault = lambda path: chance.choice(FAULTS) if path.startswith("/worker") and chance.random() < 0.25 else None
                jobs = [self.server.add("echo", n) for n in range(60)]
                self.run_to_end(echo, slots=4)
                self.assertEqual([self.job(id)["output"] for id in jobs], list(range(60)))
                self.assert_written_once()

    def test_each_fault_at_each_call_is_survived(self) -> None:
        for verb in ("register", "claim", "commit", "renew"):
            for fault in FAULTS:
                with self.subTest(verb=verb, fault=fault):
                    id = self.server.add("echo", fault)
                    self.server.faults[f"/worker/v1/{verb}"].extend([fault, fault])
                    self.run_to_end(echo)
                    self.assertEqual(self.job(id)["output"], fault)
                    self.server.faults.clear()
        self.assert_written_once()

    def test_a_lost_claim_is_repeated_under_its_number_and_gives_the_same_jobs(self) -> None:
        runs: List[Any] = []

        @task("count")
        def count(input: Any) -> Any:
            runs.append(input)

        for n in range(6):
            self.server.add("count", n)
        self.server.faults["/worker/v1/claim"].extend(["lose_answer", "no_json", "half_answer"])
        self.run_to_end(count)
        self.assertEqual(sorted(runs), list(range(6)), "each ran once")
        claims = self.server.bodies["/worker/v1/claim"]
        self.assertEqual([claim["number"] for claim in claims[:4]], [1, 1, 1, 1])
        self.assertTrue(all(later["settled"] >= earlier["settled"] for earlier, later in zip(claims, claims[1:])))

    def test_a_lost_commit_is_repeated_and_counts_once(self) -> None:
        id = self.server.add("echo", 1)
        self.server.faults["/worker/v1/commit"].extend(["lose_answer", "busy", "other_json", "lose_answer"])
        counts = self.run_to_end(echo)
        self.assertEqual((self.job(id)["state"], counts.committed, len(self.server.written)), ("done", 1, 1))

    def test_a_restarted_server_is_awaited(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)
        started = threading.Event()

        @task("long")
        def long(input: Any) -> Any:
            started.set()
            go.wait(30)
            return input

        first = self.server.add("long", 1)
        running = self.start(self.worker(long))
        self.assertTrue(started.wait(10))
        self.server.is_down = True
        go.set()
        requests = dict(self.server.requests)
        self.server.until(lambda: self.server.requests["/worker/v1/commit"] > requests.get("/worker/v1/commit", 0))
        second = self.server.add("long", 2)
        self.server.is_down = False
        self.server.until_all_end()
        self.assertEqual((self.job(first)["output"], self.job(second)["output"]), (1, 2))
        self.assertEqual(self.job(first)["epoch"], 0, "the attempt went on through the outage")
        running.stop()

    def test_a_worker_that_was_declared_dead_registers_again_and_drops_its_attempts(self) -> None:
        go, ended = threading.Event(), threading.Event()
        self.addCleanup(go.set)
        starts: List[int] = []

        @task("long")
        def long(context: Context, input: Any) -> Any:
            starts.append(context.fence)
            if context.fence > 0:
                return "by the second attempt"
            while not context.cancelled and not go.is_set():
                time.sleep(0.01)
            ended.set()
            return "by the first attempt"

        id = self.server.add("long")
        running = self.start(self.worker(long))
        self.server.until(lambda: starts)
        self.server.kill_workers()
        self.server.until_all_end()
        self.assertTrue(ended.wait(10), "the first attempt learns of it")
        running.stop()
        self.assertEqual((self.job(id)["output"], starts), ("by the second attempt", [0, 1]))
        self.assertEqual(len(self.server.workers), 2)
        self.assertEqual(len(self.server.written), 1)

    def test_claims_that_the_server_has_lost_are_dropped(self) -> None:
        ended = threading.Event()

        @task("long")
        def long(context: Context, input: Any) -> Any:
            if context.fence > 0:
                return "again"
            try:
                context.sleep(30)
            finally:
                ended.set()

        id = self.server.add("long")
        running = self.start(self.worker(long))
        self.server.until(lambda: self.job(id)["state"] == "running")
        with self.server.lock:
            # As after a restore from a backup.
            for worker in self.server.workers.values():
                worker["claims"].clear()
            self.job(id).update(state="ready", claim=None, epoch=1)
        self.assertTrue(ended.wait(10))
        self.server.until_all_end()
        running.stop()
        self.assertEqual((self.job(id)["output"], len(self.server.workers)), ("again", 1))

    def test_suspects_run_alone_for_a_while_and_then_with_others(self) -> None:
        together: List[int] = []
        running: List[int] = []
        lock = threading.Lock()

        @task("long")
        def long(context: Context, input: Any) -> Any:
            with lock:
                running.append(input)
                together.append(len(running))
            context.sleep(0.1 if input < 3 else 1.6)
            with lock:
                running.remove(input)

        suspects = [self.server.add("long", n) for n in range(4)]
        for id in suspects:
            self.job(id)["deaths"] = 1
        runs = self.start(self.worker(long, slots=4))
        self.server.until(lambda: len(together) == 4)
        worker = next(iter(self.server.workers.values()))
        self.assertEqual(together, [1, 1, 1, 1], "each was alone")
        self.assertTrue(worker["solo"], "the server knows that it runs alone")
        later = self.server.add("long", 0)
        self.server.until(lambda: self.job(later)["state"] == "done")
        self.assertEqual(self.job(suspects[3])["state"], "running", "others join it when its time alone is over")
        self.assertFalse([number for number in worker["solo"] if self.job(suspects[3])["claim"][1] == number], "and the server knows that")
        self.server.until_all_end()
        runs.stop()

    def test_a_suspect_does_not_wait_for_ever_to_be_alone(self) -> None:
        go = threading.Event()
        self.addCleanup(go.set)

        @task("long")
        def long(context: Context, input: Any) -> Any:
            if input == "blocker":
                go.wait(30)

        self.server.add("long", "blocker")
        running = self.start(self.worker(long, slots=2))
        self.server.until(lambda: any(job["state"] == "running" for job in self.server.jobs.values()))
        suspect = self.server.add("long", "suspect")
        self.job(suspect)["deaths"] = 1
        self.server.until(lambda: self.job(suspect)["state"] == "done")
        go.set()
        running.stop()
        self.assertTrue(any(body.get("solo_ended") for body in self.server.bodies["/worker/v1/renew"]))

    def test_a_claim_whose_answer_never_came_is_released(self) -> None:
        running = self.start(self.worker(echo))
        worker = self.server.until(lambda: next((id for id, worker in self.server.workers.items() if worker["settled"] >= 1), None))
        id = self.server.add("other")
        with self.server.lock:
            # A request that was given up long ago has claimed after all.
            self.server.has_late_claims = True
            self.server.workers[worker]["claims"][1] = [id]
            self.job(id).update(state="running", claim=(worker, 1))
        self.server.until(lambda: self.job(id)["state"] == "ready")
        running.stop()

    def test_a_job_of_an_unknown_kind_is_released(self) -> None:
        id = self.server.add("other")
        original: Callable[..., bool] = self.server._claimable
        with self.server.lock:
            self.server._claimable = lambda job, body: job["epoch"] == 0 and original({**job, "kind": "echo"}, body)  # type: ignore[method-assign]
        running = self.start(self.worker(echo))
        self.server.until(lambda: self.job(id)["epoch"] == 1)
        running.stop()
        self.assertEqual(self.job(id)["state"], "ready")

    def test_a_refusal_at_the_start_is_raised(self) -> None:
        self.server.token = "secret"
        with self.assertRaises(Unauthorized):
            self.worker(echo).run()
        self.server.token = None
        self.server.faults["/worker/v1/register"].append("busy")
        self.server.add("echo", 1)
        self.run_to_end(echo)

    def test_settings_that_cannot_work_are_refused(self) -> None:
        for settings in ({"slots": 0}, {"lease": 1, "renew_every": 2}, {"drain": -1}):
            with self.subTest(settings=settings), self.assertRaises(ValueError):
                self.worker(echo, **settings)
        with self.assertRaisesRegex(ValueError, "no tasks"):
            self.worker()
        with self.assertRaisesRegex(ValueError, "two tasks"):
            self.worker(echo, task("echo")(lambda input: input))
        with self.assertRaisesRegex(TypeError, "put @task"):
            self.worker(len)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            task("x")(lambda: None)  # type: ignore[arg-type,misc]

        async def coroutine(input: Any) -> None: ...

        with self.assertRaisesRegex(TypeError, "async"):
            task("x")(coroutine)
        with self.assertRaises(ValueError):
            task("")(lambda input: input)


class Tasks(unittest.TestCase):
    def test_a_task_is_called_like_its_function(self) -> None:
        self.assertEqual(echo(3), 3)
        context = Context("job-1", "echo")
        context.request_end(Cancelled("stop"))
        with self.assertRaises(Cancelled):
            context.check()
        self.assertTrue(context.cancelled)

    def test_errors_of_the_api_are_exceptions_and_cancels_are_not(self) -> None:
        self.assertTrue(issubclass(ApiError, Exception))
        self.assertFalse(issubclass(Cancelled, Exception))


if __name__ == "__main__":
    unittest.main()
