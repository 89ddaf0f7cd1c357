"""A worker in Python and one in Rust finish the same jobs together, while the server and both workers are killed.

What has run is judged by a file outside of the store, to which each attempt appends its job and a token of its own. `WINDLASS_MIXED_JOBS`
is the number of jobs.
"""

from __future__ import annotations

import os
import subprocess
import unittest
from typing import List

from tests.integration.server import ServerCase, binary, private_postgres, until
from windlass import NewJob

#: The slots of each worker.
SLOTS = 16
#: What an attempt in Rust runs: appends one line with one write, and prints its token.
PROGRAM = 't="rust-$WINDLASS_FENCE-$$-$(cat /proc/sys/kernel/random/uuid)"; printf "%s %s\\n" "$WINDLASS_JOB" "$t" >> "$1"; echo "$t"'


class Mixed(ServerCase):
    def rust_worker(self) -> "subprocess.Popen[str]":
        command = [binary(), "worker", "--server", self.url, "--exec", "--queue", f"default={SLOTS}", "--lease", "3s"]
        worker = self.spawn(command)
        self.assertIn("worker", self.first_line(worker))
        return worker

    def mixed_python_worker(self) -> "subprocess.Popen[str]":
        return self.python_worker("--slots", str(SLOTS), "--kinds", "exec")

    def recorded(self) -> int:
        return self.record.read_bytes().count(b"\n")

    def test_two_languages_finish_all_jobs_while_everything_is_killed_once_or_twice(self) -> None:
        count = int(os.environ.get("WINDLASS_MIXED_JOBS", "1000"))
        program = {"command": "sh", "args": ["-c", PROGRAM, "sh", str(self.record)]}
        jobs = [job.id for job in self.client.submit_many(NewJob("exec", program) for _ in range(count))]
        python, rust = self.mixed_python_worker(), self.rust_worker()
        steps = [count * part // 6 for part in range(1, 5)]
        until("some jobs have run", lambda: self.recorded() >= steps[0])
        self.kill(self.server)
        self.start_server()
        until("more jobs have run", lambda: self.recorded() >= steps[1])
        self.kill(python)
        python = self.mixed_python_worker()
        until("more jobs have run", lambda: self.recorded() >= steps[2])
        self.kill(rust)
        rust = self.rust_worker()
        until("more jobs have run", lambda: self.recorded() >= steps[3])
        self.kill(self.server)
        self.start_server()
        self.until_done("exec", count)
        extra = self.assert_nothing_lost_or_doubled("exec", jobs)
        tokens: List[str] = [token for tokens in self.records().values() for token in tokens]
        shares = {language: sum(token.startswith(language) for token in tokens) for language in ("python", "rust")}
        print(f"\n{count} jobs: {shares}, {extra} attempts more than jobs", flush=True)
        self.assertTrue(all(shares.values()), "both work")
        # What was in the slots of a killed worker, or claimed for them, runs again.
        self.assertLessEqual(extra, 8 * SLOTS)


@unittest.skipUnless(os.environ.get("WINDLASS_TEST_POSTGRES"), "`./test full` runs it: it starts the PostgreSQL server")
class MixedOnPostgres(Mixed):
    """The same with another store."""

    def setUp(self) -> None:
        self.store = private_postgres(self)
        super().setUp()


if __name__ == "__main__":
    unittest.main()
