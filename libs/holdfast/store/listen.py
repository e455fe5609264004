"""Being woken by NOTIFY where that is possible, and saying so where it is not.

Behind a pooler in transaction mode LISTEN succeeds and nothing ever arrives, so a new listener proves itself with a
notification of its own. What was heard since the last wait is not lost: it ends the next one at once.
"""

import asyncio
import contextlib
import logging
import time
import uuid

from holdfast.core.errors import HoldfastError
from holdfast.store.failures import translated
from holdfast.store.pool import Connection, Database

_log = logging.getLogger(__name__)

_PROOF_S = 1.0
_RETRY_S = 30.0


class Listener:
    def __init__(self, database: Database, channel: str) -> None:
        self._database = database
        self._channel = channel
        self._heard = asyncio.Event()
        self._proven = asyncio.Event()
        self._proof = uuid.uuid4().hex
        self._connection: Connection | None = None
        self._retry_at = 0.0

    async def ready(self) -> bool:
        """Whether notifications arrive; tries to make it so, at most every half minute."""
        if self._connection is not None and not self._connection.is_closed():
            return True
        if time.monotonic() < self._retry_at:
            return False
        self._retry_at = time.monotonic() + _RETRY_S
        try:
            await self._listen()
        except (HoldfastError, TimeoutError) as problem:
            _log.warning("no notifications on %s, polling instead: %s", self._channel, problem or "none arrives")
            await self.close()
            return False
        self._retry_at = 0.0
        # What was said while nobody listened is unknown: look once.
        self._heard.set()
        return True

    async def wait(self, timeout_s: float) -> bool:
        """True when something was heard."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._heard.wait()
        heard = self._heard.is_set()
        self._heard.clear()
        return heard

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _listen(self) -> None:
        self._connection = await self._database.connect()
        self._proven.clear()
        with translated():
            await self._connection.add_listener(self._channel, self._hear)
            await self._database.execute("SELECT pg_notify($1, $2)", self._channel, self._proof)
        async with asyncio.timeout(_PROOF_S):
            await self._proven.wait()

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == self._proof:
            self._proven.set()
        else:
            self._heard.set()
