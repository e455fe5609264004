"""What relays ask about each other and about the outbox as a whole. Only the relay service uses it: it has no twin."""

from dataclasses import dataclass

from holdfast.store import queries
from holdfast.store.failures import translated
from holdfast.store.pool import Database

_SQL = queries.load("relays")

RELAY_HOLDER_PREFIX = "relay/"
"""Holders of this kind share what no coordinator publishes itself."""


@dataclass(frozen=True, slots=True)
class Shares:
    free: int  # publisher's leases that nobody holds
    by_relays: int  # held by relays, ourselves included
    relays: int  # alive, ourselves included

    @property
    def fair(self) -> int:
        return -(-(self.free + self.by_relays) // max(1, self.relays))


@dataclass(frozen=True, slots=True)
class OutboxStats:
    rows: int
    oldest_s: float
    parked: int


class PostgresRelays:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def shares(self) -> Shares:
        with translated():
            row = await self._database.fetchrow(_SQL["shares"])
        assert row is not None
        return Shares(row["free"], row["by_relays"], row["relays"])

    async def outbox_stats(self) -> OutboxStats:
        with translated():
            row = await self._database.fetchrow(_SQL["outbox_stats"])
        assert row is not None
        return OutboxStats(row["rows"], row["oldest_s"], row["parked"])
