"""Settings that every service has; read once, in `__main__`, from variables named HOLDFAST_...

Each has a default that works on one machine and a description that the documentation is generated from.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from holdfast.log.kafka_config import KafkaConfig

DEV_ENV = Path(".holdfast") / "dev.env"


class KafkaSettings(BaseSettings):
    """Where Kafka is."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", extra="ignore")

    kafka: str = Field("127.0.0.1:9092", description="Kafka's bootstrap servers, host:port separated by commas")
    kafka_config: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        repr=False,
        description="More librdkafka settings for every client (TLS, SASL), as JSON or as name=value,name=value",
    )

    @field_validator("kafka_config", mode="before")
    @classmethod
    def _parse_kafka_config(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        text = given.strip()
        if text.startswith("{"):
            return {
                name: value if isinstance(value, str) else json.dumps(value) for name, value in json.loads(text).items()
            }
        pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
        if any(not separator for _, separator, _ in pairs):
            raise ValueError("expected JSON, or name=value,name=value (values with a comma need the JSON form)")
        return {name.strip(): value.strip() for name, _, value in pairs}

    def kafka_client(self, client_id: str = "holdfast") -> KafkaConfig:
        return KafkaConfig(self.kafka, self.kafka_config, client_id)


class PostgresSettings(BaseSettings):
    """Where Postgres is."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", extra="ignore")

    # A secret: the DSN carries a password, and settings are logged at the start.
    postgres: SecretStr = Field(
        SecretStr("postgresql://holdfast:holdfast@127.0.0.1:5432/holdfast"),
        description="The DSN of Holdfast's database",
    )

    @property
    def postgres_dsn(self) -> str:
        return self.postgres.get_secret_value()


class ProcessSettings(BaseSettings):
    """How a process shows itself and stops."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", extra="ignore")

    health_host: str = Field(
        "127.0.0.1", description="Address of /healthz, /readyz and /metrics; 0.0.0.0 in containers"
    )
    health_port: int = Field(0, ge=0, le=65535, description="Port of /healthz, /readyz and /metrics; 0 turns them off")
    loop_silent_max_s: float = Field(30.0, gt=0, description="/healthz fails when the event loop is stuck for longer")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="The least that is logged")
    log_format: Literal["json", "console"] = Field("json", description="Log lines for machines or for people")
    drain_s: float = Field(30.0, ge=0, description="How long a process may take to finish after SIGTERM")

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, given: object) -> object:
        return given.upper() if isinstance(given, str) else given


class ServiceSettings(KafkaSettings, PostgresSettings, ProcessSettings):
    """What a service on Kafka and Postgres needs; subclass it and add your own."""


def kafka_from_env() -> KafkaConfig:
    return KafkaSettings().kafka_client()


def load_dev_env(folder: Path | None = None) -> Path | None:
    """Take what `holdfast dev` wrote for the other commands, from this folder or the nearest one above.

    For the command line only. Variables that are set already win. Returns the file that was read.
    """
    here = (folder or Path.cwd()).resolve()
    for where in (here, *here.parents):
        file = where / DEV_ENV
        if file.is_file():
            for name, value in _variables(file.read_text()):
                os.environ.setdefault(name, value)
            return file
    return None


def _variables(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.splitlines():
        name, separator, value = line.strip().removeprefix("export ").partition("=")
        if separator and name.startswith("HOLDFAST_"):
            found.append((name, value.strip().strip("\"'")))
    return found
