"""What activity authors import, and the worker process that runs their activities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.worker.activity import Activity, activity
from holdfast.worker.context import ActivityContext
from holdfast.worker.errors import NonRetryable, RetryLater
from holdfast.worker.loading import load_worker
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from holdfast.worker.service import WorkerSettings, run_worker

__all__ = [
    "Activity",
    "ActivityContext",
    "NonRetryable",
    "RetryLater",
    "Worker",
    "WorkerSettings",
    "activity",
    "load_worker",
    "run_worker",
]


def __getattr__(name: str) -> Any:
    # A module of activities needs no Kafka client; a child process, which imports it too, even less.
    if name in ("WorkerSettings", "run_worker"):
        from holdfast.worker import service

        return getattr(service, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
