"""Where Kafka and Postgres are, for commands: options, environment, then `.holdfast/dev.env`."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import Refused

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.client.reads import PostgresReads
    from holdfast.log.kafka_admin import KafkaAdmin
    from holdfast.log.kafka_config import KafkaConfig

T = TypeVar("T")


def prepare() -> None:
    """Before a command that talks to a running system."""
    from holdfast.kit.settings import load_dev_env

    load_dev_env()
    quiet()


def quiet() -> None:
    """What a command has to say about Kafka it says itself, once, in its error."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)


def run(work: Coroutine[Any, Any, T]) -> T:
    prepare()
    return asyncio.run(work)


def kafka_config() -> "KafkaConfig":
    from holdfast.kit.settings import kafka_from_env

    return kafka_from_env()


def postgres_dsn() -> str:
    dsn = os.environ.get("HOLDFAST_POSTGRES")
    if not dsn:
        raise Refused(
            "postgres_not_configured",
            "HOLDFAST_POSTGRES is not set and there is no .holdfast/dev.env: start `holdfast dev`, or set it to a DSN "
            "like postgresql://user:password@host:5432/database",
        )
    return dsn


@asynccontextmanager
async def client() -> "AsyncIterator[Client]":
    from holdfast.client import Client

    async with Client.connect(source="/holdfast/cli", ack_timeout_s=10) as opened:
        yield opened


@asynccontextmanager
async def reads() -> "AsyncIterator[PostgresReads]":
    from holdfast.client.reads import PostgresReads

    opened = await PostgresReads.open(postgres_dsn())
    try:
        yield opened
    finally:
        await opened.close()


@asynccontextmanager
async def admin() -> "AsyncIterator[KafkaAdmin]":
    from holdfast.log.kafka_admin import KafkaAdmin

    opened = KafkaAdmin(kafka_config())
    try:
        yield opened
    finally:
        await opened.close()
