"""Bring a database to this version's schema: forward only, each file once, all of it or nothing.

`holdfast migrate` may run twice, and in two processes at once: an advisory lock lets the second one find everything
done. A file that was applied is never edited (the database remembers its checksum); a change is a new file.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources

import asyncpg

from holdfast.core.errors import Refused
from holdfast.store.failures import translated
from holdfast.store.pool import Connection, Database

_LOCK = 5_204_113_779  # Arbitrary; the advisory lock of Holdfast's migrations within one database.

_BOOKKEEPING = """
CREATE SCHEMA IF NOT EXISTS holdfast;
CREATE TABLE IF NOT EXISTS holdfast.migrations (
    name text PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def migrations() -> list[Migration]:
    folder = resources.files("holdfast.store").joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in files]


async def migrate(dsn: str, known: list[Migration] | None = None) -> list[str]:
    """Apply what is missing and return its names. Runs as the login user, who must own the schema."""
    with translated():
        connection = await asyncpg.connect(dsn, timeout=10, server_settings={"application_name": "holdfast migrate"})
        try:
            async with connection.transaction():
                return await _apply(connection, migrations() if known is None else known)
        finally:
            await connection.close()


async def _apply(connection: Connection, known: list[Migration]) -> list[str]:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    await connection.execute(_BOOKKEEPING)
    rows = await connection.fetch("SELECT name, checksum FROM holdfast.migrations")
    applied = {row["name"]: row["checksum"] for row in rows}
    done = []
    for migration in known:
        if migration.name not in applied:
            await _run(connection, migration)
            done.append(migration.name)
        elif applied[migration.name] != migration.checksum:
            raise Refused(
                "migration_edited",
                f"migration {migration.name} was applied to this database with another text; an applied migration is "
                "never edited: restore the file, and put the change into a new one",
            )
    return done


async def _run(connection: Connection, migration: Migration) -> None:
    try:
        await connection.execute(migration.text)
    except asyncpg.PostgresError as error:
        if error.sqlstate == "HF003":
            raise Refused("database_role", f"{error.message}; {error.hint}") from error
        raise
    await connection.execute(
        "INSERT INTO holdfast.migrations (name, checksum) VALUES ($1, $2)", migration.name, migration.checksum
    )


async def check_schema(database: Database) -> None:
    """Refused when the database lacks a migration that this version needs; Transient when it does not answer.

    A database that is ahead is fine: migrations only add, so that services of two versions can run side by side.
    """
    with translated():
        row = await database.fetchrow("SELECT to_regclass('holdfast.migrations') IS NOT NULL AS there")
        there = row is not None and row["there"]
        rows = await database.fetch("SELECT name FROM holdfast.migrations") if there else []
    applied = {row["name"] for row in rows}
    missing = [migration.name for migration in migrations() if migration.name not in applied]
    if missing:
        raise Refused("schema_behind", f"the database lacks {', '.join(missing)}: run `holdfast migrate`")


async def ensure_partitions(dsn: str, count: int) -> None:
    """Record how many partitions the inbox topics have and make their rows; the number never changes afterwards."""
    if count < 1:
        raise Refused("partition_count", f"there must be at least one partition, not {count}")
    with translated():
        connection = await asyncpg.connect(dsn, timeout=10, server_settings={"application_name": "holdfast topics"})
        try:
            async with connection.transaction():
                await _make_partitions(connection, count)
        except asyncpg.UndefinedTableError as error:
            raise Refused("schema_behind", "the database has no Holdfast schema: run `holdfast migrate`") from error
        finally:
            await connection.close()


async def _make_partitions(connection: Connection, count: int) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    recorded = await connection.fetchval("SELECT partitions FROM holdfast.cluster")
    if recorded is not None:
        if recorded != count:
            raise Refused(
                "partition_count",
                f"this database was set up for {recorded} partitions, not {count}; the number is fixed at creation",
            )
        return
    await connection.execute("INSERT INTO holdfast.cluster (partitions) VALUES ($1)", count)
    for table in ("inbox_partitions", "outbox_partitions"):
        await connection.execute(
            f"INSERT INTO holdfast.{table} (partition) SELECT generate_series(0, $1::integer - 1)", count
        )
