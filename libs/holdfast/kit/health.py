"""/healthz, /readyz and /metrics, from a thread of their own, so that they answer also while the event loop is busy.

Healthy means that the loop still turns; unhealthy asks for a restart. Ready means that the work goes on; not ready says
which of the named checks fails and why, and asks for patience.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

Check = Callable[[], str | None]
"""None when all is well, else the reason why not. Called on the server's thread: only look, never wait."""


class Health:
    def __init__(self, *, silence_s_max: float = 30.0) -> None:
        self._silence_s_max = silence_s_max
        self._beat_at = time.monotonic()
        self._checks: dict[str, Check] = {}
        self._fatal: str | None = None
        self._server: ThreadingHTTPServer | None = None

    def beat(self) -> None:
        self._beat_at = time.monotonic()

    def check(self, name: str, check: Check) -> None:
        """Add or replace a readiness check."""
        self._checks[name] = check

    def fatal(self, reason: str) -> None:
        self._fatal = reason

    def unhealthy(self) -> str | None:
        silence_s = time.monotonic() - self._beat_at
        if self._fatal is not None:
            return self._fatal
        return f"the event loop has not turned for {silence_s:.0f} s" if silence_s > self._silence_s_max else None

    def not_ready(self) -> dict[str, str]:
        reasons = {name: check() for name, check in list(self._checks.items())}
        found = {name: reason for name, reason in reasons.items() if reason is not None}
        unhealthy = self.unhealthy()
        return found if unhealthy is None else {"healthy": unhealthy, **found}

    def serve(self, host: str, port: int) -> int:
        """Listen; returns the port (any free one for 0)."""
        handler = type("Handler", (_Handler,), {"health": self})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="holdfast-health", daemon=True).start()
        return int(self._server.server_address[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Handler(BaseHTTPRequestHandler):
    health: Health

    def do_GET(self) -> None:
        match self.path.split("?", 1)[0]:
            case "/healthz":
                reason = self.health.unhealthy()
                self._answer(200 if reason is None else 503, {"healthy": reason is None, "reason": reason})
            case "/readyz":
                reasons = self.health.not_ready()
                self._answer(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})
            case "/metrics":
                self._send(200, CONTENT_TYPE_LATEST, generate_latest())
            case _:
                self._answer(404, {"paths": ["/healthz", "/readyz", "/metrics"]})

    def _answer(self, status: int, body: dict[str, object]) -> None:
        self._send(status, "application/json", json.dumps(body).encode() + b"\n")

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A probe every second is no news."""
