"""Connections of a service: time-outs, so that a frozen client holds nobody up, and a role that cannot edit history.

`idle_in_transaction_session_timeout` and friends are the server's, so that they also hold when the client is stopped,
swapped out or cut off. The role is part of the connection's start and checked once: a pooler that drops start-up
settings must not leave us with the owner's rights.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg

from holdfast.core.errors import Refused
from holdfast.store.failures import translated
from holdfast.store.pack_tables import WIRE_TYPES

ROLE = "holdfast_service"

# Generic in the stubs only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 5.0
    idle_in_transaction_s: float = 2.0
    lock_s: float = 5.0
    statement_s: float = 15.0
    tcp_user_s: float = 10.0

    def server_settings(self) -> dict[str, str]:
        def ms(seconds: float) -> str:
            return str(int(seconds * 1000))

        return {
            "idle_in_transaction_session_timeout": ms(self.idle_in_transaction_s),
            "lock_timeout": ms(self.lock_s),
            "statement_timeout": ms(self.statement_s),
            "tcp_user_timeout": ms(self.tcp_user_s),
            "tcp_keepalives_idle": "10",
            "tcp_keepalives_interval": "3",
            "tcp_keepalives_count": "3",
        }


class Database:
    """A pool whose connections are a service's. Statements are single and autocommitted: no transaction stays open."""

    def __init__(self, dsn: str, service: str, pool: "asyncpg.Pool[asyncpg.Record]", timeouts: Timeouts) -> None:
        self.dsn = dsn
        self.service = service
        self.timeouts = timeouts
        self._pool = pool

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self._pool.acquire() as connection:
            return await connection.fetch(statement, *arguments)

    async def fetchrow(self, statement: str, *arguments: Any) -> asyncpg.Record | None:
        async with self._pool.acquire() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def fetchval(self, statement: str, *arguments: Any) -> Any:
        async with self._pool.acquire() as connection:
            return await connection.fetchval(statement, *arguments)

    async def execute(self, statement: str, *arguments: Any) -> str:
        async with self._pool.acquire() as connection:
            return await connection.execute(statement, *arguments)

    async def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        async with self._pool.acquire() as connection:
            await connection.executemany(statement, rows)

    def acquire(self) -> "asyncpg.pool.PoolAcquireContext[asyncpg.Record]":
        return self._pool.acquire()

    async def connect(self) -> Connection:
        """A connection outside the pool, with the same role and time-outs (LISTEN needs one of its own)."""
        with translated(), _role_explained():
            connection: Connection = await asyncpg.connect(self.dsn, **_options(self.service, self.timeouts))
            await _prepare(connection)
        return connection

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self.timeouts.connect_s):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


async def open_database(
    dsn: str, service: str, *, connections_max: int = 4, timeouts: Timeouts | None = None, prepared: bool = True
) -> Database:
    """`prepared=False` for a PgBouncer that cannot keep prepared statements apart (before 1.21)."""
    chosen = timeouts or Timeouts()
    with translated(), _role_explained():
        pool = await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=connections_max,
            max_inactive_connection_lifetime=300,
            init=_prepare,
            reset=_nothing_to_reset,
            statement_cache_size=100 if prepared else 0,
            **_options(service, chosen),
        )
    return Database(dsn, service, pool, chosen)


@contextlib.contextmanager
def _role_explained() -> Iterator[None]:
    try:
        yield
    except asyncpg.InvalidParameterValueError as error:
        raise Refused("schema_behind", f"{error}: run `holdfast migrate`") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise Refused("database_role", f"{error}; as an administrator: GRANT {ROLE} TO <login>") from error


def _options(service: str, timeouts: Timeouts) -> dict[str, Any]:
    return {
        "timeout": timeouts.connect_s,
        # The server's time-out comes first; this one is for a server or a network that is gone.
        "command_timeout": timeouts.statement_s + 5,
        "server_settings": {
            "application_name": f"holdfast {service}"[:63],
            "role": ROLE,
            "jit": "off",
            "TimeZone": "UTC",
            **timeouts.server_settings(),
        },
    }


async def _prepare(connection: Any) -> None:
    names = [f"holdfast.{name}" for name in WIRE_TYPES]
    role, *oids = await connection.fetchrow(
        "SELECT current_user, " + ", ".join(f"to_regtype('{name}')::oid" for name in names)
    )
    if role != ROLE:
        raise Refused(
            "database_role",
            f"the connection did not take the role {ROLE}; a pooler that drops start-up settings (PgBouncer's "
            f"ignore_startup_parameters) needs a login whose default role it is: ALTER ROLE <login> SET role = {ROLE}",
        )
    # What `set_type_codec` does, which refuses domains because results do not name them; we only send them.
    settings = connection._protocol.get_settings()
    for name, oid in zip(WIRE_TYPES, oids, strict=True):
        if oid is not None:  # Else the schema is behind, and `check_schema` says so in better words.
            settings.add_python_codec(oid, name, "holdfast", [], "scalar", bytes, bytes, "binary")


async def _nothing_to_reset(_: Any) -> None:
    """Our statements leave no session state behind; the default would cost a round trip for each of them."""
