"""`/healthz`, `/readyz` and `/metrics`, answered by a thread of their own, also while the event loop is busy.

Alive: the loop has turned lately and nothing fatal happened; a supervisor restarts what is not. Ready: every named
check passes; a process whose Kafka or Postgres is away is alive and not ready, and restarting it would not help.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from holdfast.kit import metrics


class Health:
    """What is known about this process. Every method may be called from any thread."""

    def __init__(self, service: str, *, loop_silent_max_s: float = 30.0) -> None:
        self._service = service
        self._silent_max_s = loop_silent_max_s
        self._lock = threading.Lock()
        self._failing: dict[str, str] = {"starting": "the service has not said that it is ready"}
        self._fatal: str | None = None
        self._ticked_at = time.monotonic()
        metrics.ready.labels(service).set(0)

    def tick(self) -> None:
        """The event loop turned."""
        self._ticked_at = time.monotonic()

    def started(self) -> None:
        """Everything is in place: from here on only the named checks count."""
        self.passes("starting")

    def fails(self, check: str, reason: str) -> None:
        with self._lock:
            self._failing[check] = reason
            metrics.ready.labels(self._service).set(0)

    def passes(self, check: str) -> None:
        with self._lock:
            self._failing.pop(check, None)
            metrics.ready.labels(self._service).set(0 if self._failing else 1)

    def fatal(self, reason: str) -> None:
        """This process cannot go on and should be replaced."""
        self._fatal = self._fatal or reason

    def not_alive(self) -> str | None:
        """Why a supervisor should replace this process, or None."""
        if self._fatal is not None:
            return self._fatal
        silent_s = time.monotonic() - self._ticked_at
        if silent_s > self._silent_max_s:
            return f"the event loop has not turned for {silent_s:.0f} s"
        return None

    def not_ready(self) -> dict[str, str]:
        """The checks that fail and why; empty when ready."""
        with self._lock:
            failing = dict(self._failing)
        dead = self.not_alive()
        return failing if dead is None else {**failing, "alive": dead}


class HealthServer:
    """Serves one `Health` over HTTP."""

    def __init__(self, health: Health, host: str, port: int) -> None:
        handler = type("Handler", (_Handler,), {"health": health})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    health: Health
    timeout = 5  # A client that says nothing does not keep a thread.

    def do_GET(self) -> None:  # The name that http.server calls.
        path = self.path.split("?", 1)[0]
        if path == "/healthz":
            reason = self.health.not_alive()
            self._json(reason is None, {"reason": reason} if reason else {})
        elif path == "/readyz":
            failing = self.health.not_ready()
            self._json(not failing, {"failing": failing} if failing else {})
        elif path == "/metrics":
            self._answer(200, metrics.CONTENT_TYPE, metrics.exposition())
        else:
            self._answer(404, "text/plain", b"/healthz, /readyz or /metrics\n")

    def _json(self, good: bool, body: dict[str, object]) -> None:
        self._answer(200 if good else 503, "application/json", json.dumps({"ok": good, **body}).encode() + b"\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds; their lines would be most of the log."""
