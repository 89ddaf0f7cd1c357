"""The client and the API of the real server."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta, timezone

from tests.integration.server import ServerCase, binary
from windlass import (
    BadRequest,
    Client,
    Forbidden,
    JobCancelled,
    JobFailed,
    NewJob,
    NotFound,
    Rate,
    ResultTimeout,
    Serial,
    SubmitManyError,
    Unauthorized,
    Unique,
    new_job_id,
)


class Working(ServerCase):
    """A server that runs the built-in kinds."""

    serve = []

    def test_jobs_are_submitted_once_and_have_results(self) -> None:
        id = new_job_id()
        first = self.client.submit("sleep", {"ms": 1}, id=id, key="nap", tags=["a"], priority=-1, timeout=60, attempts=2)
        again = self.client.submit("sleep", {"ms": 1}, id=id, key="nap")
        self.assertEqual((first.id, first.new, again.id, again.new, again.differs), (id, True, id, False, False))
        self.assertIsNone(self.client.result("nap", timeout=60))
        job = self.client.get("sleep/nap")
        self.assertEqual((job.id, job.state, job.priority, job.raw["tags"]), (id, "done", -1, ["a"]))
        self.assertIsNotNone(job.finished_at)

    def test_many_jobs_are_submitted_with_every_setting(self) -> None:
        jobs = [
            NewJob("noop", delay=timedelta(hours=1), unique=Unique("u", within=60)),
            NewJob("noop", serial=Serial("s", slots=2), options={"a": 1}),
            NewJob("noop", {"any": ["thing", None, 1.5, "ä"]}, queue="default"),
        ]
        submitted = self.client.submit_many(jobs)
        self.assertEqual([job.id for job in submitted], [job.id for job in jobs])
        self.assertEqual(self.client.get(jobs[0].id).state, "scheduled")
        self.assertIsNone(self.client.result(jobs[1].id, timeout=60))
        self.assertIsNone(self.client.result(jobs[2].id, timeout=60))
        with self.assertRaises(SubmitManyError) as caught:
            self.client.submit_many([NewJob("noop"), NewJob("no spaces allowed"), NewJob("noop", rate=Rate("none", weight=0))])
        self.assertIsInstance(caught.exception.outcomes[1], BadRequest)

    def test_lists_are_read_page_by_page(self) -> None:
        jobs = [job.id for job in self.client.submit_many(NewJob("noop", queue="unserved") for _ in range(25))]
        listed = [job.id for job in self.client.jobs(queue="unserved", page=10)]
        self.assertEqual(sorted(listed), sorted(jobs))
        named = self.client.submit("noop", queue="unserved", key="order-7", tags=["a"])
        since = datetime.now(timezone.utc) - timedelta(hours=1)
        for found in (
            self.client.jobs(key_prefix="order-"),
            self.client.jobs(tag="a", since=since, top=True),
            self.client.jobs(key="order-7", version=1, state="ready"),
        ):
            self.assertEqual([job.id for job in found], [named.id])
        for none in (self.client.jobs(error_class="busy"), self.client.jobs(until=since)):
            self.assertEqual(list(none), [])

    def test_signals_wake_and_cancels_end(self) -> None:
        job = self.client.submit("approval", {"Ask": {"what": "deploy 17"}}, key="r/2 ä")
        with self.assertRaises(ResultTimeout):
            self.client.result(job, timeout=0.3)
        self.assertIn("approve", str(self.client.why(job).raw))
        self.assertTrue(self.client.signal("approval/r/2 ä", "approve", {"by": "ada"}))
        self.assertEqual(self.client.result(job, timeout=60), {"by": "ada"})
        other = self.client.submit("noop", delay=3600)
        self.client.cancel(other, note="not needed")
        with self.assertRaises(JobCancelled):
            self.client.result(other)
        rejected = self.client.submit("approval", {"Ask": {"what": "deploy 18"}})
        self.client.signal(rejected, "reject", "too late")
        with self.assertRaises(JobFailed) as caught:
            self.client.result(rejected, timeout=60)
        self.assertEqual((caught.exception.reason, caught.exception.failure["class"]), ("stopped", "rejected"))

    def test_refusals_say_what_to_do(self) -> None:
        with self.assertRaises(NotFound):
            self.client.get("nobody")
        with self.assertRaises(BadRequest) as caught:
            self.client.submit("sleep", {"hours": 1})
        self.assertTrue(caught.exception.message and caught.exception.code == "invalid")

    def test_a_result_is_awaited_while_the_server_is_killed_and_started_again(self) -> None:
        job = self.client.submit("sleep", {"ms": 300})
        self.kill(self.server)
        self.start_server()
        self.assertIsNone(self.client.result(job, timeout=60))


class WithLogin(ServerCase):
    """A server that asks for tokens."""

    serve = ["--no-work", "--login"]

    def start_server(self) -> None:
        for role in ("admin", "viewer"):
            command = [binary(), "tokens", "create", role, "--role", role, "--file", f"{role}.token"]
            subprocess.run(command, cwd=self.folder, env=self.environment(), check=True, capture_output=True)
        super().start_server()

    def test_tokens_decide_who_may_do_what(self) -> None:
        with self.assertRaises(Unauthorized):
            self.client.submit("noop")
        with Client(self.url, token="windlass_0000000000000000_x") as unknown, self.assertRaises(Unauthorized):
            unknown.submit("noop")
        admin = Client(self.url, token_file=self.folder / "admin.token")
        viewer = Client(self.url, token=(self.folder / "viewer.token").read_text().strip())
        self.addCleanup(admin.close)
        self.addCleanup(viewer.close)
        job = admin.submit("noop")
        self.assertEqual(viewer.get(job).state, "ready")
        with self.assertRaises(Forbidden):
            viewer.cancel(job)
