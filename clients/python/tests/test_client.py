"""The client against a server that loses answers and sends garbage."""

from __future__ import annotations

import pickle
import ssl
import tempfile
import threading
import unittest
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.fake_server import DEEP, FAULTS, LATE, FakeServer
from windlass import (
    BadRequest,
    Client,
    JobCancelled,
    JobFailed,
    NewJob,
    NotFound,
    ResultTimeout,
    Serial,
    SubmitManyError,
    TransportError,
    Unauthorized,
    Unavailable,
    Unique,
    Worker,
    WorkerDead,
    new_job_id,
    task,
)
from windlass.errors import api_error
from windlass.values import duration_text, parse_time, time_text


class ClientCase(unittest.TestCase):
    def setUp(self) -> None:
        self.server = self.enterContext(FakeServer()) if hasattr(self, "enterContext") else self._enter()
        # A late answer is later than this.
        self.client = Client(self.server.url, retry_for=10, timeout=LATE / 2)
        self.addCleanup(self.client.close)

    def _enter(self) -> FakeServer:
        server = FakeServer().__enter__()
        self.addCleanup(server.__exit__)
        return server


class Submits(ClientCase):
    def test_a_submit_is_done_once_whatever_is_lost(self) -> None:
        for fault in FAULTS:
            with self.subTest(fault=fault):
                # Another service's JSON is no lost answer; see `test_another_service_is_recognised`.
                fault = "lose_answer" if fault == "other_json" else fault
                before = len(self.server.jobs)
                self.server.faults["/v1/jobs"].extend([fault, fault, None])
                job = self.client.submit("mail", {"to": fault})
                self.assertIn(job.id, self.server.jobs)
                self.assertEqual(len(self.server.jobs), before + 1)
        self.assertEqual(self.server.requests["/v1/jobs"], 3 * len(FAULTS))

    def test_settings_are_sent_as_the_api_reads_them(self) -> None:
        @task("resize", version=3)
        def resize(input: object) -> None: ...

        at = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
        self.client.submit(
            resize,
            [1],
            id="0199f0c2-6f7a-7000-8000-000000000001",
            key="k",
            queue="q",
            priority=-3,
            tags=["a"],
            delay=timedelta(minutes=5),
            deadline_at=at,
            attempts=4,
            timeout=1.5,
            unique=Unique("u", on_conflict="reject", within=60),
            serial=Serial("s", slots=2),
        )
        expected = {
            "kind": "resize",
            "version": 3,
            "input": [1],
            "id": "0199f0c2-6f7a-7000-8000-000000000001",
            "key": "k",
            "queue": "q",
            "priority": -3,
            "tags": ["a"],
            "delay": "300000ms",
            "deadline_at": "2030-01-02T01:04:05.000006Z",
            "attempts": 4,
            "timeout": "1500ms",
            "unique": {"name": "u", "on_conflict": "reject", "within": "60000ms"},
            "serial": {"key": "s", "slots": 2},
        }
        self.assertEqual(self.server.bodies["/v1/jobs"], [expected])

    def test_a_key_finds_the_first_job(self) -> None:
        first = self.client.submit("mail", 1, key="welcome")
        second = self.client.submit("mail", 2, key="welcome")
        self.assertEqual((first.new, second.new, second.differs), (True, False, True))
        self.assertEqual(first.id, second.id)

    def test_a_refusal_is_an_error_with_what_to_do(self) -> None:
        with self.assertRaises(BadRequest) as caught:
            self.client.submit("refused")
        error = caught.exception
        self.assertEqual((error.status, error.code, error.hint), (400, "invalid", "choose another"))
        self.assertEqual(str(error), "the kind is refused; choose another")
        self.assertEqual(self.server.requests["/v1/jobs"], 1, "a refusal is not repeated")

    def test_values_that_are_no_json_are_not_sent(self) -> None:
        for bad in (float("nan"), object(), "\ud800", {(1, 2): 3}):
            with self.assertRaises((TypeError, ValueError)):
                self.client.submit("mail", bad)
        with self.assertRaises(ValueError):
            self.client.submit("mail", at=datetime(2030, 1, 1))
        with self.assertRaises(TypeError):
            self.client.submit("mail", tags="abc")
        self.assertEqual(self.server.jobs, {})

    def test_many_jobs_take_few_requests_and_each_has_its_answer(self) -> None:
        self.server.faults["/v1/jobs/batch"].extend(["lose_answer", None, "no_json"])
        jobs = self.client.submit_many(NewJob("mail", n) for n in range(2_500))
        self.assertEqual([self.server.jobs[job.id]["input"] for job in jobs], list(range(2_500)))
        self.assertEqual(len(self.server.jobs), 2_500)
        self.assertEqual(self.server.requests["/v1/jobs/batch"], 5)
        with self.assertRaises(SubmitManyError) as caught:
            self.client.submit_many([NewJob("mail"), NewJob("refused"), NewJob("mail")])
        outcomes = caught.exception.outcomes
        self.assertIsInstance(outcomes[1], BadRequest)
        self.assertEqual([outcome.new for outcome in outcomes if not isinstance(outcome, BadRequest)], [True, True])

    def test_large_jobs_are_divided_by_their_size(self) -> None:
        self.client.submit_many(NewJob("mail", "x" * (1 << 20)) for _ in range(12))
        self.assertEqual(len(self.server.jobs), 12)
        self.assertEqual(self.server.requests["/v1/jobs/batch"], 3)


class Reads(ClientCase):
    def test_a_result_is_awaited_through_faults(self) -> None:
        job = self.server.add("mail")
        path = f"/v1/jobs/{job}/result"
        self.server.faults[path].extend(["no_http", "half_answer", "busy", "proxy_error"])

        def finish() -> None:
            with self.server.lock:
                self.server.jobs[job].update(state="done", output={"sent": True})
                self.server.changed.notify_all()

        timer = threading.Timer(0.2, finish)
        timer.start()
        self.addCleanup(timer.join)
        self.assertEqual(self.client.result(job, timeout=20), {"sent": True})

    def test_failures_and_cancels_are_errors(self) -> None:
        failed, cancelled = self.server.add("mail"), self.server.add("mail")
        self.server.jobs[failed].update(state="failed", reason="stopped", failure={"class": "smtp", "message": "no such user"})
        self.client.cancel(cancelled)
        with self.assertRaises(JobFailed) as caught:
            self.client.result(failed)
        self.assertEqual((caught.exception.reason, caught.exception.failure["class"]), ("stopped", "smtp"))
        with self.assertRaises(JobCancelled):
            self.client.result(cancelled)
        with self.assertRaises(NotFound):
            self.client.result("nobody")

    def test_an_output_that_is_nested_too_deeply_is_an_error_at_once(self) -> None:
        job = self.server.add("deep")
        self.server.jobs[job].update(state="done", output=DEEP)
        with self.assertRaisesRegex(TransportError, "nested deeper"):
            self.client.result(job)
        self.assertEqual(self.server.requests[f"/v1/jobs/{job}/result"], 1)

    def test_a_result_that_does_not_come_is_a_timeout(self) -> None:
        job = self.server.add("mail")
        with self.assertRaisesRegex(ResultTimeout, "ready"):
            self.client.result(job, timeout=0.05)
        with self.assertRaises(TimeoutError):
            self.client.result(job, timeout=0)

    def test_pages_are_read_to_the_end(self) -> None:
        jobs = [self.server.add("mail", n) for n in range(25)]
        self.server.add("other")
        self.assertEqual([job.id for job in self.client.jobs(kind="mail", page=10)], jobs[::-1])
        first = next(self.client.jobs(kind="mail", page=10))
        self.assertEqual((first.state, first.has_ended, first.raw["epoch"]), ("ready", False, 0))
        self.assertEqual(first.submitted_at and first.submitted_at.tzinfo, timezone.utc)

    def test_jobs_are_listed_by_stage(self) -> None:
        jobs = [self.server.add("order", stage=stage) for stage in ("paid", "sent", "paid")]
        self.assertEqual([job.id for job in self.client.jobs(stage="paid")], [jobs[2], jobs[0]])

    def test_signals_are_delivered_once(self) -> None:
        job = self.server.add("approval", key="a b/c")
        path = "/v1/jobs/approval%2Fa%20b%2Fc/signals/ok"
        self.server.faults[path].extend(["lose_answer", "lose_answer"])
        self.assertTrue(self.client.signal("approval/a b/c", "ok", {"by": "ada"}))
        self.assertEqual([(each[0], each[2]) for each in self.server.signals], [(job, {"by": "ada"})])
        self.assertTrue(self.client.signal(job, "ok", dedup="1"))
        self.assertFalse(self.client.signal(job, "ok", dedup="1"))

    def test_a_job_and_its_reason_are_shown(self) -> None:
        job = self.client.submit("mail", key="k")
        self.assertEqual(self.client.get(job).key, "k")
        self.assertEqual(self.client.why("mail/k").because, "it waits")


class Faults(ClientCase):
    def test_an_outage_ends_in_an_error_that_says_so(self) -> None:
        self.server.is_down = True
        client = Client(self.server.url, retry_for=0.1)
        self.addCleanup(client.close)
        with self.assertRaises(TransportError):
            client.submit("mail")
        self.server.is_down = False
        self.server.choose_fault = lambda path: "busy"
        with self.assertRaises(Unavailable):
            client.submit("mail")

    def test_another_service_is_recognised(self) -> None:
        self.server.choose_fault = lambda path: "other_json"
        with self.assertRaisesRegex(TransportError, "check the address"):
            self.client.submit("mail")

    def test_a_connection_that_the_server_closed_is_opened_again(self) -> None:
        client = Client(self.server.url, retry_for=0)
        self.addCleanup(client.close)
        client.submit("mail")
        # The next request on the same connection is not answered, which costs no retry.
        self.server.faults["/v1/jobs"].append("lose_request")
        client.submit("mail")
        self.assertEqual(len(self.server.jobs), 2)

    def test_a_new_token_in_the_file_is_read(self) -> None:
        self.server.token = "first"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "token")
            file.write_text("first\n")
            file.chmod(0o600)
            client = Client(self.server.url, token_file=file)
            self.addCleanup(client.close)
            client.submit("mail")
            self.server.token = "second"
            with self.assertRaises(Unauthorized):
                client.submit("mail")
            file.write_text("second\n")
            client.submit("mail")

    def test_a_token_file_that_others_may_read_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "token")
            file.write_text("windlass_1_secret\n")
            for mode in (0o644, 0o640, 0o604, 0o620, 0o601):
                file.chmod(mode)
                with self.subTest(mode=oct(mode)), self.assertRaisesRegex(ValueError, f"{mode:04o}.*chmod 600") as raised:
                    Client("http://localhost", token_file=file)
                self.assertNotIn("secret", str(raised.exception))
            for mode in (0o600, 0o400):
                file.chmod(mode)
                Client("http://localhost", token_file=file).close()

    def test_http_to_another_machine_is_refused_unless_it_is_allowed(self) -> None:
        for url in ("http://jobs.example:7077", "http://10.0.0.1", "http://[2001:db8::1]:7077", "http://localhost.example"):
            with self.subTest(url=url):
                with self.assertRaisesRegex(ValueError, "allow_http"):
                    Client(url, token="windlass_1_secret")
                Client(url, token="windlass_1_secret", allow_http=True).close()
        for url in ("http://localhost:7077", "http://127.8.9.1", "http://[::1]:7077", "http://[::ffff:127.0.0.1]:1", "https://jobs.example"):
            Client(url).close()

    def test_settings_that_cannot_work_are_refused(self) -> None:
        for url in ("127.0.0.1:7077", "ftp://x", "http://", "http://user:secret@host", "http://x/?a=b"):
            with self.subTest(url=url), self.assertRaises(ValueError):
                Client(url)
        for bad in ("a b", "line\nbreak", "ä"):
            with self.assertRaises(ValueError):
                Client("http://localhost", token=bad)
        with self.assertRaises(ValueError):
            Client("http://localhost", token="a", token_file="b")
        with self.assertRaises(ValueError):
            Client("http://localhost", ca_file="ca.pem")


class Tls(unittest.TestCase):
    CERTIFICATE = Path(__file__).with_name("tls") / "cert.pem"

    def setUp(self) -> None:
        self.server = FakeServer()
        self.server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.tls.load_cert_chain(self.CERTIFICATE, self.CERTIFICATE.with_name("key.pem"))
        self.server.__enter__()
        self.addCleanup(self.server.__exit__)

    def test_a_certificate_is_trusted_if_the_file_has_its_authority(self) -> None:
        for host in ("127.0.0.1", "localhost"):
            client = Client(self.server.url.replace("127.0.0.1", host), ca_file=self.CERTIFICATE)
            self.addCleanup(client.close)
            self.server.faults["/v1/jobs"].extend(["lose_answer", "half_answer"])
            client.submit("mail")
        self.assertEqual(len(self.server.jobs), 2)

    def test_another_certificate_is_an_error_at_once(self) -> None:
        client = Client(self.server.url, token="secret", retry_for=3_600)
        self.addCleanup(client.close)
        with self.assertRaisesRegex(TransportError, "(?i)certificate"):
            client.submit("mail")
        with self.assertRaisesRegex(TransportError, "(?i)certificate"):
            Worker(client, tasks=[task("mail")(lambda input: input)]).run()
        self.assertEqual(self.server.requests, {}, "nothing was sent")


class Values(unittest.TestCase):
    def test_ids_sort_in_the_order_in_which_they_were_drawn(self) -> None:
        ids = [new_job_id() for _ in range(5_000)]
        self.assertEqual(ids, sorted(ids))
        self.assertEqual(len(set(ids)), len(ids))
        self.assertTrue(all(id[14] == "7" and id[19] in "89ab" for id in ids))

    def test_times_and_durations(self) -> None:
        at = parse_time("2026-11-15T01:02:03.123456789Z")
        self.assertEqual(at and time_text(at), "2026-11-15T01:02:03.123456Z")
        self.assertEqual(parse_time("2026-11-15T01:02:03+01:00"), datetime(2026, 11, 15, 0, 2, 3, tzinfo=timezone.utc))
        self.assertEqual(duration_text(timedelta(days=30)), "2592000000ms")
        for bad in (-1, float("inf"), float("nan")):
            with self.assertRaises(ValueError):
                duration_text(bad)

    def test_errors_survive_pickling(self) -> None:
        for error in (api_error(409, {"code": "worker_dead", "message": "m"}), JobFailed("j", "stopped", {"message": "m"})):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again)), (type(error), str(error)))
        self.assertIsInstance(api_error(409, {"code": "worker_dead"}), WorkerDead)
        self.assertIsInstance(api_error(502, None), Unavailable)


if __name__ == "__main__":
    unittest.main()
