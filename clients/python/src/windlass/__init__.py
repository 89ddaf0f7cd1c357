"""Windlass in Python: submit jobs to a server, wait for their results, and run them.

    from windlass import Client, Worker, task

    @task("greet")
    def greet(input):
        return f"hello, {input['name']}"

    client = Client("http://127.0.0.1:7077")
    job = client.submit(greet, {"name": "world"}, key="first")
    Worker(client, tasks=[greet]).run()

A worker is at-least-once: a function may run again after its worker was killed, and the outcome of one attempt is recorded, once.
"""

from .client import Client
from .committer import Counts
from .context import Context
from .errors import (
    ApiError,
    BadRequest,
    Cancelled,
    Conflict,
    Fail,
    Forbidden,
    JobCancelled,
    JobFailed,
    JobGone,
    NotFound,
    ResultTimeout,
    Retry,
    ServerError,
    SubmitManyError,
    TimedOut,
    TooManyRequests,
    TransportError,
    Unauthorized,
    Unavailable,
    WindlassError,
    WorkerDead,
)
from .ids import new_job_id
from .jobs import Job, NewJob, Rate, Serial, Submitted, Unique, Why
from .retry import RetryPolicy, RetryRule
from .task import Task, task
from .worker import Worker

__all__ = [
    "ApiError",
    "BadRequest",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Counts",
    "Fail",
    "Forbidden",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobGone",
    "NewJob",
    "NotFound",
    "Rate",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "RetryRule",
    "Serial",
    "ServerError",
    "SubmitManyError",
    "Submitted",
    "Task",
    "TimedOut",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "Unavailable",
    "Unique",
    "Why",
    "WindlassError",
    "Worker",
    "WorkerDead",
    "new_job_id",
    "task",
]
