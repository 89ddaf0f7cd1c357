"""The real server and real workers, as processes in a folder of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar

import windlass
from windlass import Client, Job

T = TypeVar("T")

PACKAGE = Path(__file__).resolve().parents[2]
ROOT = PACKAGE.parents[1]
#: How many seconds a test waits for what must happen.
PATIENCE = 120.0


def binary() -> str:
    """The program `windlass`: that of the environment, or the last debug build."""
    path = Path(os.environ.get("WINDLASS_BIN") or ROOT / "target/debug/windlass")
    if not path.exists():
        raise AssertionError(f"{path} does not exist; build it with `cargo build -p windlass-bin`, or set WINDLASS_BIN")
    return str(path)


def until(what: str, check: Callable[[], Optional[T]]) -> T:
    """Waits until `check` returns something that is true."""
    end = time.monotonic() + PATIENCE
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain until {what}")
        time.sleep(0.05)


def private_postgres(test: unittest.TestCase) -> str:
    """Starts a PostgreSQL server that ends with the test. Returns its address. `WINDLASS_TEST_POSTGRES` is the program that does it,
    `private_postgres` of the crate `windlass-testpg`."""
    command = [os.environ["WINDLASS_TEST_POSTGRES"]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    test.addCleanup(process.stdout.close)
    test.addCleanup(process.wait)
    # It ends when its input does.
    test.addCleanup(process.stdin.close)
    address = process.stdout.readline().strip()
    test.assertTrue(address.startswith("postgres://"), address)
    return address


class ServerCase(unittest.TestCase):
    """A test with a folder, a server on a SQLite file in it, and whatever processes it starts."""

    #: Arguments of the server.
    serve = ["--no-work"]
    #: The address of the store, if it is not a SQLite file in the folder.
    store: Optional[str] = None

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url)
        self.addCleanup(self.client.close)
        self.record = self.folder / "record"
        self.record.touch()
        self.start_server()

    def environment(self) -> Dict[str, str]:
        """The environment of processes, without the settings of whoever runs the tests."""
        settings = {name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "OTEL_", "RUST_LOG"))}
        # The package that is tested, which may be an installed one, and these tests.
        settings["PYTHONPATH"] = os.pathsep.join([str(Path(windlass.__file__).parents[1]), str(PACKAGE)])
        settings["TMPDIR"] = str(self.folder)
        if self.store is not None:
            settings["WINDLASS_STORE"] = self.store
        return settings

    def spawn(self, command: List[str]) -> "subprocess.Popen[str]":
        """Starts a process, which is killed at the end of the test. Its log is shown if the test fails."""
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

        def end() -> None:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

        self.addCleanup(end)
        return process

    def logs(self) -> str:
        """What the processes have logged, for messages."""
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("log-*")))

    def start_server(self) -> None:
        """Starts the server, or starts it again on the same address and store."""
        self.server = self.spawn([binary(), "serve", "--listen", f"127.0.0.1:{self.port}", "--rate", "0", *self.serve])
        self.assertIn("serves", self.first_line(self.server))

    def first_line(self, process: "subprocess.Popen[str]") -> str:
        """What the process has printed first, which says that it works."""
        assert process.stdout is not None
        line = process.stdout.readline()
        self.assertTrue(line, f"the process ended: {self.logs()}")
        return line

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """Kills a process without a warning."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def python_worker(self, *arguments: str) -> "subprocess.Popen[str]":
        """Starts the worker of `worker_program.py`. Returns when it runs."""
        worker = self.spawn([sys.executable, "-m", "tests.integration.worker_program", self.url, str(self.record), *arguments])
        self.assertIn("started", self.first_line(worker))
        return worker

    def records(self) -> Dict[str, List[str]]:
        """What attempts have written outside of the store: their tokens, by job."""
        found: Dict[str, List[str]] = {}
        for line in self.record.read_text().splitlines():
            job, token = line.split(" ")
            found.setdefault(job, []).append(token)
        return found

    def all_jobs(self, kind: str) -> Dict[str, Job]:
        """All jobs of a kind, by id."""
        return {job.id: job for job in self.client.jobs(kind=kind, page=1000)}

    def until_done(self, kind: str, count: int) -> None:
        """Waits until so many jobs of a kind are done, through outages."""
        patient = Client(self.url, retry_for=60)
        self.addCleanup(patient.close)

        def are_done() -> bool:
            _, answer = patient._caller.call("GET", "/v1/jobs", query={"kind": kind, "limit": 1})
            counts = answer["counts"]
            self.assertFalse(counts.get("failed") or counts.get("cancelled"), f"{counts}; {self.logs()}")
            return bool(counts.get("done", 0) == count)

        end = time.monotonic() + PATIENCE + count / 50
        while not are_done():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain until {count} jobs are done; {self.logs()}")
            time.sleep(0.1)

    def assert_nothing_lost_or_doubled(self, kind: str, jobs: List[str]) -> int:
        """By the record outside of the store: each job was run, its output is that of one recorded attempt, and it was committed
        once. Returns how many attempts ran more than needed."""
        records, shown = self.records(), self.all_jobs(kind)
        self.assertEqual(sorted(shown), sorted(jobs))
        for id in jobs:
            self.assertIn(id, records, "it was never run")
        self.assertEqual(set(records) - set(jobs), set(), "jobs were run that nobody submitted")
        for id in jobs:
            job = self.client.get(id)
            self.assertEqual(job.state, "done")
            # One commit and no more: only commits raise the revision.
            self.assertEqual(job.raw["rev"], 1, id)
            self.assertIn(token_of(job.raw["output"]), records[id], "its output is of no attempt that ran")
        return sum(len(tokens) for tokens in records.values()) - len(jobs)


def token_of(output: Any) -> str:
    """The token of an attempt, which the built-in kind `exec` has printed and the worker of these tests returns in the same form."""
    return str(output["stdout"]).strip()
