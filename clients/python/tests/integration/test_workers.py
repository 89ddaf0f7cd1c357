"""Workers in Python and the real server, with processes killed on the way."""

from __future__ import annotations

import signal
import subprocess
import unittest
from typing import List

from tests.integration.server import ServerCase, until
from windlass import JobCancelled, JobFailed, NewJob


class Workers(ServerCase):
    def submit(self, count: int, seconds: float = 0.0) -> List[str]:
        return [job.id for job in self.client.submit_many(NewJob("record", {"seconds": seconds}) for _ in range(count))]

    def until_recorded(self, count: int) -> None:
        until(f"{count} attempts have run", lambda: len(self.record.read_text().splitlines()) >= count)

    def test_jobs_of_a_killed_worker_run_again_in_another(self) -> None:
        jobs = self.submit(400, seconds=0.01)
        first, second = self.python_worker(), self.python_worker()
        self.until_recorded(50)
        self.kill(first)
        third = self.python_worker()
        self.until_done("record", len(jobs))
        extra = self.assert_nothing_lost_or_doubled("record", jobs)
        self.assertLessEqual(extra, 4, "only what the killed worker had in its slots runs twice")
        for worker in (second, third):
            self.stop(worker)

    def test_workers_go_on_when_the_server_is_killed_and_started_again(self) -> None:
        jobs = self.submit(400, seconds=0.01)
        worker = self.python_worker()
        for recorded in (50, 150):
            self.until_recorded(recorded)
            self.kill(self.server)
            self.start_server()
        self.until_done("record", len(jobs))
        self.assert_nothing_lost_or_doubled("record", jobs)
        self.stop(worker)

    def test_a_frozen_worker_is_fenced_when_it_wakes_and_works_again(self) -> None:
        job = self.client.submit("long")
        frozen = self.python_worker("--slots", "1")
        self.until_recorded(1)
        frozen.send_signal(signal.SIGSTOP)
        other = self.python_worker("--slots", "1")
        self.until_recorded(2)
        (self.folder / "go").touch()
        self.assertEqual(self.client.result(job, timeout=60), "finished")
        rev = self.client.get(job).raw["rev"]
        self.stop(other)
        frozen.send_signal(signal.SIGCONT)
        # It registers as a new worker, and runs new jobs.
        self.client.result(self.client.submit("record", {}), timeout=60)
        self.assertEqual(self.client.get(job).raw["rev"], rev, "it wrote nothing of its old attempt")
        self.stop(frozen)

    def test_a_stopping_worker_finishes_what_it_runs(self) -> None:
        job = self.client.submit("long")
        worker = self.python_worker("--slots", "1")
        self.until_recorded(1)
        worker.send_signal(signal.SIGTERM)
        later = self.client.submit("record", {})
        (self.folder / "go").touch()
        self.assertEqual(self.client.result(job, timeout=60), "finished")
        self.assertIn("committed 1, fenced 0, released 0", self.ended(worker))
        self.assertEqual(self.client.get(later).state, "ready")

    def test_a_cancel_progress_and_failures_are_seen(self) -> None:
        worker = self.python_worker()
        job = self.client.submit("long")
        progress = until("its progress is shown", lambda: self.client.get(job).raw.get("progress"))
        self.assertEqual((progress["done"], progress["total"], progress["note"]), (50, 100, "half of it"))
        self.client.cancel(job, grace=30)
        with self.assertRaises(JobCancelled):
            self.client.result(job, timeout=60)
        self.assertEqual(self.client.result(self.client.submit("flaky", 3), timeout=60), 3)
        with self.assertRaises(JobFailed) as caught:
            self.client.result(self.client.submit("flaky", 9), timeout=60)
        failure = caught.exception.failure
        self.assertEqual((caught.exception.reason, failure["class"], failure["message"]), ("exhausted", "ValueError", "attempt 3 fails"))
        self.assertIn("in flaky", failure["detail"]["traceback"])
        with self.assertRaises(JobFailed) as caught:
            self.client.result(self.client.submit("refuses"), timeout=60)
        failure = caught.exception.failure
        self.assertEqual((caught.exception.reason, failure["class"], failure["detail"]), ("stopped", "account", {"id": 7}))
        self.stop(worker)

    def stop(self, worker: "subprocess.Popen[str]") -> str:
        """Stops a worker. Returns what it has printed."""
        worker.send_signal(signal.SIGTERM)
        return self.ended(worker)

    def ended(self, worker: "subprocess.Popen[str]") -> str:
        """Waits until a worker has stopped. Returns what it has printed."""
        printed, _ = worker.communicate(timeout=60)
        self.assertEqual(worker.returncode, 0, self.logs())
        return printed


if __name__ == "__main__":
    unittest.main()
