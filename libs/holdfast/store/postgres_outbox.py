"""The relay's side of the store on Postgres."""

import asyncio
import uuid
from collections.abc import Sequence

from holdfast.store import queries
from holdfast.store.failures import translated
from holdfast.store.listen import Listener
from holdfast.store.pack_rare import printable
from holdfast.store.pool import Database
from holdfast.store.rows import OutboxRow, Publisher

_SQL = queries.load("outbox")

_LOOK_AGAIN_S = 0.05
_POLL_S = 0.1


class PostgresOutboxStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._listener = Listener(database, "holdfast_outbox")
        self._name = uuid.uuid4().hex
        self._seen: dict[int, int] = {}  # what the relay has read up to; `wait_for_outbox` looks beyond it

    async def claim_publishers(self, holder: str, *, lease_s: float, most: int) -> list[Publisher]:
        with translated():
            rows = await self._database.fetch(_SQL["claim_publishers"], holder, lease_s, most)
        return sorted((Publisher(*row) for row in rows), key=lambda publisher: publisher.partition)

    async def renew_publishers(self, holder: str, publishers: Sequence[Publisher], *, lease_s: float) -> frozenset[int]:
        with translated():
            rows = await self._database.fetch(_SQL["renew_publishers"], holder, *_columns(publishers), lease_s)
        return frozenset(row[0] for row in rows)

    async def release_publishers(self, holder: str, publishers: Sequence[Publisher]) -> None:
        with translated():
            await self._database.execute(_SQL["release_publishers"], holder, *_columns(publishers))

    async def read_outbox(self, positions: Sequence[tuple[int, int]], *, rows_max: int) -> list[OutboxRow]:
        self._seen = dict(positions)
        each = max(1, rows_max // max(1, len(positions)))
        with translated():
            rows = await self._database.fetch(
                _SQL["read_outbox"], [partition for partition, _ in positions], [after for _, after in positions], each
            )
        return [OutboxRow(*row) for row in rows]

    async def advance(self, positions: Sequence[Publisher]) -> frozenset[int]:
        with translated():
            rows = await self._database.fetch(
                _SQL["advance"], *_columns(positions), [position.done for position in positions]
            )
        return frozenset(row[0] for row in rows)

    async def park_outbox(
        self, partition: int, number: int, position: int, topic: str, instance: str, body: bytes, error: str
    ) -> None:
        with translated():
            await self._database.execute(
                _SQL["park_outbox"], partition, number, position, topic, instance, body, printable(error)
            )

    async def parked_instances(self, partitions: Sequence[int]) -> set[str]:
        with translated():
            rows = await self._database.fetch(_SQL["parked_instances"], list(partitions))
        return {row[0] for row in rows}

    async def wait_for_outbox(self, timeout_s: float) -> None:
        listening = await self._listener.ready()
        # Only what was read since the last wait: of partitions that we have lost there would always be something new.
        seen, self._seen = self._seen, {}
        if not seen:
            # Nothing is ours to publish, so no commit has to wake us: a mark would cost every one of them a NOTIFY.
            await asyncio.sleep(timeout_s)
            return
        with translated():
            await self._database.execute(_SQL["mark_waiting"], self._name, timeout_s + 1)
            try:
                await self._wait_for_rows(seen, timeout_s, listening)
            finally:
                await self._database.execute(_SQL["unmark_waiting"], self._name)

    async def close(self) -> None:
        await self._listener.close()

    async def _wait_for_rows(self, seen: dict[int, int], timeout_s: float, listening: bool) -> None:
        """A commit that was under way when the mark was set has not seen it: look now, and once more soon after."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        pause_s = _LOOK_AGAIN_S
        while not await self._anything_new(seen):
            left_s = end - loop.time()
            if left_s <= 0:
                return
            if not listening:
                await asyncio.sleep(min(_POLL_S, left_s))
            else:
                await self._listener.wait(min(pause_s, left_s))
                pause_s = timeout_s

    async def _anything_new(self, seen: dict[int, int]) -> bool:
        return bool(await self._database.fetchval(_SQL["anything_new"], list(seen.keys()), list(seen.values())))


def _columns(publishers: Sequence[Publisher]) -> tuple[list[int], list[int]]:
    return [publisher.partition for publisher in publishers], [publisher.epoch for publisher in publishers]
