"""How every service runs: signals, drain, health, exit codes.

The first SIGTERM or SIGINT sets `runtime.stopping`; the body finishes what it has and returns. If that takes longer
than `drain_s` it is cancelled, and a second signal ends the process at once: whatever was not finished is what the
leases, fences and offsets are there for.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.kit import metrics
from holdfast.kit.health import Health, HealthServer
from holdfast.kit.logging import Logger, configure
from holdfast.kit.settings import ProcessSettings

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_NOT_DRAINED = 3
EXIT_INTERRUPTED = 130

_TICK_S = 0.5
_CANCEL_S = 5.0


@dataclass(slots=True)
class Runtime:
    """What a service's body is given."""

    name: str
    instance_id: str
    health: Health
    log: Logger
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, reason: str) -> None:
        """Begin to drain, as a signal would."""
        if not self.stopping.is_set():
            self.log.info("draining", reason=reason)
            metrics.draining.labels(self.name).set(1)
            self.health.fails("draining", reason)
            self.stopping.set()


Body: TypeAlias = Callable[[Runtime], Awaitable[None]]


def run_service(name: str, settings: ProcessSettings, body: Body) -> int:
    """Run the body until it returns or the process is told to stop. Returns the exit code for `sys.exit`."""
    # New for each start of a process: whoever comes back after a crash is somebody else.
    instance_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    log = configure(name, instance_id, level=settings.log_level, style=settings.log_format)
    health = Health(name, loop_silent_max_s=settings.loop_silent_max_s)
    runtime = Runtime(name, instance_id, health, log)
    _rarely_collect()
    with contextlib.ExitStack() as stack:
        if settings.health_port:
            server = HealthServer(health, settings.health_host, settings.health_port)
            server.start()
            stack.callback(server.stop)
        log.info("starting", pid=os.getpid(), health_port=settings.health_port)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            code = runner.run(_supervise(runtime, settings.drain_s, body))
            if code == EXIT_NOT_DRAINED:
                # A thread that hangs would keep the interpreter from ending, which is what was to be bounded.
                log.error("stopped", code=code)
                sys.stderr.flush()
                os._exit(code)
    log.info("stopped", code=code)
    return code


def _rarely_collect() -> None:
    """Python's collector looks for cycles after every 700 new objects, and a service makes millions that have none.
    Measured: a fifth of a coordinator's time. What was imported is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


async def _supervise(runtime: Runtime, drain_s: float, body: Body) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, runtime, number)
    ticking = asyncio.create_task(_tick(runtime))
    working = asyncio.ensure_future(body(runtime))
    stopping = asyncio.create_task(runtime.stopping.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await asyncio.wait([working], timeout=drain_s)
        return await _outcome(runtime, working, drain_s)
    finally:
        ticking.cancel()
        stopping.cancel()


async def _outcome(runtime: Runtime, working: asyncio.Future[None], drain_s: float) -> int:
    if not working.done():
        runtime.log.error("not_drained", drain_s=drain_s)
        working.cancel()
        await asyncio.wait([working], timeout=_CANCEL_S)
        return EXIT_NOT_DRAINED
    problem = None if working.cancelled() else working.exception()
    if problem is not None:
        runtime.health.fatal(repr(problem))
        runtime.log.error("failed", error=str(problem), exc_info=problem)
        return EXIT_FAILED
    return EXIT_OK


def _on_signal(runtime: Runtime, number: signal.Signals) -> None:
    if runtime.stopping.is_set():
        runtime.log.warning("stopped_at_once", signal=number.name)
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)
    runtime.stop(number.name)


async def _tick(runtime: Runtime) -> None:
    loop = asyncio.get_running_loop()
    lag = metrics.loop_lag_seconds.labels(runtime.name)
    while True:
        due = loop.time() + _TICK_S
        runtime.health.tick()
        await asyncio.sleep(_TICK_S)
        lag.set(max(0.0, loop.time() - due))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None  # Not on every platform; the standard loop is slower and does the same.
    return uvloop.new_event_loop
