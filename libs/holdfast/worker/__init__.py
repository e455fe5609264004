"""What activity authors import, and the worker process that runs their activities."""

from holdfast.worker.activity import Activity, activity
from holdfast.worker.context import ActivityContext
from holdfast.worker.errors import NonRetryable, RetryLater
from holdfast.worker.worker import Worker

__all__ = ["Activity", "ActivityContext", "NonRetryable", "RetryLater", "Worker", "activity"]
