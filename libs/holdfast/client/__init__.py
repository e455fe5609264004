"""Start workflows, wait for them, ask about them.

async with Client.connect() as holdfast:
    run = await holdfast.start("orders/order-fulfillment", run_id="order-123", input=order)
    print(await run.result(timeout=30))
"""

from holdfast.client.client import Client
from holdfast.client.errors import (
    CompensationFailed,
    NotCompleted,
    WaitTimedOut,
    WorkflowCancelled,
    WorkflowCompensated,
    WorkflowFailed,
)
from holdfast.client.reads import Status
from holdfast.client.run import Run, Sent
from holdfast.client.sync import SyncClient, SyncRun

__all__ = [
    "Client",
    "CompensationFailed",
    "NotCompleted",
    "Run",
    "Sent",
    "Status",
    "SyncClient",
    "SyncRun",
    "WaitTimedOut",
    "WorkflowCancelled",
    "WorkflowCompensated",
    "WorkflowFailed",
]
