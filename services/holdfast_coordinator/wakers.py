"""After a commit: tell a sleeping relay or recovery, from another connection and without making anybody wait."""

import asyncio
from datetime import datetime

from holdfast.core.errors import Transient
from holdfast.kit.logging import Logger
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.rows import Commit


class Wakers:
    """One call of each kind at a time; what comes meanwhile is merged into the next. Both sides poll as well."""

    def __init__(self, store: CoordinatorStore, log: Logger) -> None:
        self._store = store
        self._log = log
        self._relay = False
        self._due_at: datetime | None = None
        self._task: asyncio.Task[None] | None = None

    def after(self, commit: Commit, *, relay_waiting: bool) -> None:
        due = [timer.due_at for changes in commit.changes for timer in changes.timers.values() if timer is not None]
        if due:
            earliest = min(due)
            self._due_at = earliest if self._due_at is None else min(earliest, self._due_at)
        if relay_waiting:
            self._relay = True
        if (due or relay_waiting) and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._wake())

    async def _wake(self) -> None:
        try:
            while self._relay or self._due_at is not None:
                relay, self._relay = self._relay, False
                due_at, self._due_at = self._due_at, None
                if relay:
                    await self._store.wake_relay()
                if due_at is not None:
                    await self._store.wake_recovery(due_at)
        except Transient as problem:
            self._log.debug("wake_failed", reason=str(problem))

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
