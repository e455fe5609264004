"""A worker as a service: settings from the environment, health, metrics, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import gc

from prometheus_client import REGISTRY
from pydantic import Field

from holdfast.kit.health import Health
from holdfast.kit.service import Runtime, run_service
from holdfast.kit.settings import KafkaSettings, ProcessSettings
from holdfast.worker.kafka_port import KafkaPort
from holdfast.worker.metrics import WorkerCollector
from holdfast.worker.process import Options, WorkerProcess, flush_wait_s, leave_wait_s, stop_wait_s
from holdfast.worker.worker import Worker

_health_s = 0.25


class WorkerSettings(KafkaSettings, ProcessSettings):
    concurrency: int | None = Field(None, ge=1, description="Attempts at a time; empty: what the Worker says")
    start_grace_s: float = Field(0.2, ge=0, description="An attempt that takes longer tells the coordinator it started")
    drain_s: float = Field(30.0, ge=0, description="How long running attempts may go on after SIGTERM")
    session_timeout_s: float = Field(10.0, gt=0, description="Kafka moves the partitions of a silent worker after")


def run_worker(worker: Worker, settings: WorkerSettings | None = None) -> int:
    """Run until SIGTERM or Ctrl-C; returns the exit code."""
    chosen = settings or WorkerSettings()
    if chosen.concurrency is not None:
        worker.limit(chosen.concurrency)
    # Our drain ends by itself; the service's limit is for one that hangs.
    limit_s = chosen.drain_s + stop_wait_s + flush_wait_s + leave_wait_s + 5.0
    process_settings = chosen.model_copy(update={"drain_s": limit_s})
    return run_service("worker", process_settings, lambda runtime: _body(worker, chosen, runtime))


async def _body(worker: Worker, settings: WorkerSettings, runtime: Runtime) -> None:
    holder = runtime.instance_id
    port = KafkaPort(
        settings.kafka_client(f"holdfast-worker-{holder}"), session_timeout_ms=int(settings.session_timeout_s * 1000)
    )
    options = Options(
        start_grace_s=settings.start_grace_s,
        drain_s=settings.drain_s,
        holder=holder,
        log_level=settings.log_level,
        log_format=settings.log_format,
    )
    process = WorkerProcess(worker, port, options)
    collector = WorkerCollector(process)
    REGISTRY.register(collector)
    # What is loaded now stays; and an attempt is some twenty objects that die young, without cycles: looking for
    # cycles after every 700 of them finds nothing.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    showing = asyncio.create_task(_show(process, runtime.health))
    runtime.log.info(
        "worker_starts", queues=worker.queues, activities=list(worker.activities), concurrency=worker.concurrency
    )
    try:
        await process.run(runtime.stopping)
    finally:
        showing.cancel()
        REGISTRY.unregister(collector)


async def _show(process: WorkerProcess, health: Health) -> None:
    health.fails("kafka", "not assigned yet")
    health.started()
    while True:
        problem = process.problem()
        if problem is None:
            health.passes("kafka")
        else:
            health.fails("kafka", problem)
        await asyncio.sleep(_health_s)
