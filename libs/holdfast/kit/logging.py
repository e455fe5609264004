"""One line per event to stderr, JSON for machines or coloured for people; the standard library's loggers too.

Code that runs in somebody else's process (the SDK, the log) uses the standard library's `logging`; services use the
bound logger that `configure` returns. Both end in the same lines.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TypeAlias

import structlog
from structlog.typing import FilteringBoundLogger, Processor

Logger: TypeAlias = FilteringBoundLogger
LogFormat: TypeAlias = Literal["json", "console"]


def configure(service: str, instance_id: str, *, level: str = "INFO", style: LogFormat = "json") -> Logger:
    """Set up logging of this process and return its logger, with the service and its instance in every line."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    final: list[Processor]
    if style == "json":
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        final = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[*shared, *final],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    identity = {"service": service, "instance": instance_id}

    def identify(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return {**identity, **event}

    foreign: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        identify,
        *shared,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=foreign,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logger: Logger = structlog.get_logger().bind(**identity)
    return logger
