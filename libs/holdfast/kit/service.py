"""What every service does once: logs, health, signals, a bounded drain, an exit code.

SIGTERM or Ctrl-C asks for a drain, and the body of the service returns when it has finished what it was doing. A second
signal, or a drain that takes longer than `drain_s`, ends the process at once: nothing depends on a clean end.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.kit.health import Health
from holdfast.kit.logging import Logger, configure_logging, get_logger
from holdfast.kit.settings import ServiceSettings

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_NOT_DRAINED = 3

_BEAT_S = 1.0


@dataclass(slots=True)
class Runtime:
    """What a service's body gets to see of its process."""

    name: str
    health: Health
    log: Logger
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        """Sleeps, unless it is told to stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)


Body = Callable[[Runtime], Awaitable[None]]


def run_service(name: str, settings: ServiceSettings, body: Body) -> int:
    configure_logging(name, level=settings.log_level, format=settings.log_format)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_run(name, settings, body))
    return uvloop.run(_run(name, settings, body))


async def _run(name: str, settings: ServiceSettings, body: Body) -> int:
    runtime = Runtime(name, Health(), get_logger(f"holdfast.{name}"))
    log = runtime.log
    _listen_to_signals(runtime)
    if settings.health_port:
        runtime.health.serve(settings.health_host, settings.health_port)
    beat = asyncio.create_task(_beat(runtime), name="holdfast-beat")
    work = asyncio.ensure_future(body(runtime))
    log.info("service_started", pid=os.getpid())
    try:
        await asyncio.wait([work, asyncio.create_task(runtime.stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            runtime.health.check("draining", lambda: "draining")
            log.info("service_draining", drain_s=settings.drain_s)
            await asyncio.wait([work], timeout=settings.drain_s)
        if not work.done():
            log.error("service_not_drained", drain_s=settings.drain_s)
            return EXIT_NOT_DRAINED
        work.result()
        log.info("service_stopped")
        return EXIT_OK
    except Exception:
        log.exception("service_failed")
        return EXIT_FAILED
    finally:
        beat.cancel()
        work.cancel()
        runtime.health.close()


async def _beat(runtime: Runtime) -> None:
    while True:
        runtime.health.beat()
        await asyncio.sleep(_BEAT_S)


def _listen_to_signals(runtime: Runtime) -> None:
    def told() -> None:
        if runtime.stopping.is_set():
            runtime.log.warning("service_killed_by_second_signal")
            os._exit(EXIT_NOT_DRAINED)
        runtime.stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
