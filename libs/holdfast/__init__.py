"""Holdfast: durable workflows and sagas on Kafka and Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client import Client as Client
    from holdfast.worker import ActivityContext as ActivityContext
    from holdfast.worker import NonRetryable as NonRetryable
    from holdfast.worker import RetryLater as RetryLater
    from holdfast.worker import Worker as Worker
    from holdfast.worker import activity as activity

__all__ = ["ActivityContext", "Client", "NonRetryable", "RetryLater", "Worker", "activity"]

_HOMES = dict.fromkeys(__all__, "holdfast.worker") | {"Client": "holdfast.client"}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: a coordinator needs no worker, and `holdfast --help` needs nothing at all.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
