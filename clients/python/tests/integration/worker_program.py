"""A worker for the tests with the real server: `python -m tests.integration.worker_program URL RECORD [--slots N] [--queue NAME]`.

Each attempt appends its job and a token of its own to the file RECORD, with one write, before it returns the token.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import uuid
from typing import Any, Dict

from windlass import Client, Context, Fail, RetryPolicy, Worker, task

_record: int = -1


def record(context: Context) -> Dict[str, Any]:
    """Writes the attempt into the record. The output is in the form of the built-in kind `exec`."""
    token = f"python-{context.fence}-{uuid.uuid4().hex}"
    os.write(_record, f"{context.job} {token}\n".encode())
    return {"code": 0, "stdout": f"{token}\n", "stderr": ""}


@task("record")
def record_only(context: Context, input: Any) -> Dict[str, Any]:
    context.sleep(float(input.get("seconds", 0)) if isinstance(input, dict) else 0)
    return record(context)


@task("exec")
def as_exec(context: Context, input: Any) -> Dict[str, Any]:
    """Does what the program of the mixed test does, so that its jobs may run here or in the worker in Rust."""
    return record(context)


@task("flaky", retry=RetryPolicy.times(3, base=0.01, cap=0.01))
def flaky(context: Context, input: Any) -> Any:
    if context.attempt < int(input):
        raise ValueError(f"attempt {context.attempt} fails")
    return context.attempt


@task("refuses")
def refuses(input: Any) -> Any:
    raise Fail("no such account", error_class="account", detail={"id": 7})


@task("long")
def long(context: Context, input: Any) -> Any:
    """Reports its progress and runs until it must end, or until there is a file `go`."""
    record(context)
    context.progress(0.5, "half of it")
    while not os.path.exists("go"):
        context.sleep(0.05)
    return "finished"


def main() -> int:
    global _record
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("record")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--queue", default="default")
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--kinds", default="record,exec,flaky,refuses,long")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    _record = os.open(arguments.record, os.O_WRONLY | os.O_APPEND)
    all_tasks = {each.kind: each for each in (record_only, as_exec, flaky, refuses, long)}
    worker = Worker(
        Client(arguments.url),
        tasks=[all_tasks[kind] for kind in arguments.kinds.split(",")],
        queue=arguments.queue,
        slots=arguments.slots,
        lease=arguments.lease,
        renew_every=0.5,
        drain=20,
    )
    print("started", flush=True)
    counts = worker.run()
    print(f"committed {counts.committed}, fenced {counts.fenced}, released {counts.released}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
