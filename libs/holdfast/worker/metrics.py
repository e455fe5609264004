"""What Prometheus sees of a worker: made from plain numbers when asked, so that the hot path pays for no metric object.

It is asked from the health server's thread, so everything here is copied before it is walked over.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.worker.process import WorkerProcess


class WorkerCollector(Collector):
    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def collect(self) -> Iterator[Metric]:
        yield from self._attempts()
        yield from self._queues()
        engine = self._process.engine
        stats, reporter = engine.stats, engine.reporter
        yield GaugeMetricFamily("holdfast_worker_running", "Attempts running now", engine.concurrency - engine.free)
        yield GaugeMetricFamily("holdfast_worker_slots_free", "Attempts that could run as well", max(0, engine.free))
        yield GaugeMetricFamily(
            "holdfast_worker_reports_unacknowledged", "Reports that Kafka has not acknowledged", reporter.unacknowledged
        )
        yield GaugeMetricFamily(
            "holdfast_worker_reports_stalled_seconds", "Since when Kafka acknowledges nothing", reporter.stalled_s
        )
        yield _counter("reports_resent", "Reports sent again after a failure", reporter.resent)
        yield _counter("producers", "Producers made; more than one means that one broke", reporter.producers)
        yield _counter("heartbeats", "Heartbeats sent", self._process.pulse.sent)
        yield _counter("delivered_again", "Dispatches delivered more than once to this process", stats.delivered_again)
        yield _counter("malformed", "Task messages put into the dead letter queue", stats.malformed)
        yield _counter("malformed_cancellations", "Cancellations that could not be read", stats.malformed_cancellations)
        yield _counter("no_handler", "Tasks handed back because no activity has that name", stats.no_handler)

    def _attempts(self) -> Iterator[Metric]:
        stats = self._process.engine.stats
        attempts = CounterMetricFamily(
            "holdfast_worker_attempts", "Attempts ended, by activity and outcome", labels=["activity", "outcome"]
        )
        for (activity, outcome), count in list(stats.attempts.items()):
            attempts.add_metric([activity, outcome], count)
        seconds = CounterMetricFamily(
            "holdfast_worker_attempt_seconds", "Time spent in attempts, by activity", labels=["activity"]
        )
        for activity, spent in list(stats.seconds.items()):
            seconds.add_metric([activity], spent)
        stops = CounterMetricFamily("holdfast_worker_stops", "Attempts told to stop, by why", labels=["why"])
        for why, count in list(stats.stops.items()):
            stops.add_metric([why], count)
        yield from (attempts, seconds, stops)

    def _queues(self) -> Iterator[Metric]:
        partitions = GaugeMetricFamily("holdfast_worker_partitions", "Partitions assigned, by queue", labels=["queue"])
        pending = GaugeMetricFamily(
            "holdfast_worker_pending", "Tasks read that may not begin yet, by queue", labels=["queue"]
        )
        failures = CounterMetricFamily(
            "holdfast_worker_commit_failures", "Offset commits that failed, by queue", labels=["queue"]
        )
        for intake in self._process.intakes:
            partitions.add_metric([intake.queue], len(intake.assignment))
            pending.add_metric([intake.queue], intake.pending)
            failures.add_metric([intake.queue], intake.commit_failures)
        yield from (partitions, pending, failures)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"holdfast_worker_{name}", text, value)
