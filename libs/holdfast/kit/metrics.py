"""Numbers of one process for Prometheus.

A service declares its metrics as module constants with prometheus_client, in the registry of the process, named
`holdfast_<service>_...`, each with a help text that says what an operator learns from it.
"""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Gauge, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST

ready = Gauge("holdfast_service_ready", "1 while every readiness check of this process passes, else 0", ["service"])
loop_lag_seconds = Gauge("holdfast_service_loop_lag_seconds", "How late the event loop's last tick was", ["service"])
draining = Gauge("holdfast_service_draining", "1 from the signal to stop until the process ends", ["service"])


def exposition(registry: CollectorRegistry = REGISTRY) -> bytes:
    """All metrics of this process in Prometheus' text format."""
    return generate_latest(registry)


def without_help(registry: CollectorRegistry = REGISTRY) -> list[str]:
    """Names of our metrics that say nothing about themselves; the tests hold this empty."""
    return [
        family.name
        for family in registry.collect()
        if family.name.startswith("holdfast_") and not family.documentation.strip()
    ]
