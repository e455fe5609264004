"""Definitions on Postgres: immutable once stored."""

import asyncpg
import orjson

from holdfast.core.errors import Refused
from holdfast.store import queries
from holdfast.store.failures import translated
from holdfast.store.pool import Database
from holdfast.store.rows import StoredDefinition

_SQL = queries.load("definitions")


class PostgresDefinitionStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def define(self, definition: StoredDefinition) -> bool:
        name = (definition.namespace, definition.workflow, definition.version)
        body = orjson.dumps(definition.body).decode()
        with translated():
            if await self._database.fetchval(_SQL["define"], *name, body, definition.defined_at):
                return True
            if await self._database.fetchval(_SQL["same"], *name, body):
                return False
        raise another_body(definition)

    async def definition(self, namespace: str, workflow: str, version: int | None) -> StoredDefinition | None:
        with translated():
            row = await self._database.fetchrow(_SQL["one"], namespace, workflow, version)
        return None if row is None else _stored(row)

    async def definitions(self) -> list[StoredDefinition]:
        with translated():
            rows = await self._database.fetch(_SQL["all"])
        return [_stored(row) for row in rows]


def another_body(definition: StoredDefinition) -> Refused:
    return Refused(
        "version_exists",
        f"{definition.namespace}/{definition.workflow} version {definition.version} is stored with another body; "
        "a stored version never changes: give the change the next version number",
    )


def _stored(row: asyncpg.Record) -> StoredDefinition:
    return StoredDefinition(
        row["namespace"], row["workflow"], row["version"], orjson.loads(row["body"]), row["defined_at"]
    )
