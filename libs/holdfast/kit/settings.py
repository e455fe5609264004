"""Settings that every service shares. One class per service, read only where it starts; each setting says what it is.

The environment is the only source: HOLDFAST_KAFKA is `kafka` here. `holdfast dev` writes `.holdfast/dev.env`, which the
command line reads before anything else, for whatever the environment does not say.
"""

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from holdfast.log.kafka_config import KafkaConfig

DEV_ENV = Path(".holdfast") / "dev.env"


class ServiceSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", extra="ignore")

    kafka: str = Field("127.0.0.1:9092", description="Kafka's bootstrap servers")
    kafka_config: str = Field(
        "", description="More librdkafka settings for every client, as JSON or `name=value,...` (TLS, SASL)"
    )
    postgres: str = Field(
        "postgresql://holdfast:holdfast@127.0.0.1:5432/holdfast", description="Where the event store is"
    )
    health_host: str = Field(
        "127.0.0.1", description="Where /healthz, /readyz and /metrics listen; 0.0.0.0 in a container"
    )
    health_port: int = Field(0, ge=0, le=65535, description="Port of /healthz, /readyz and /metrics; 0 is none")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    log_format: Literal["json", "console"] = Field("json", description="json for machines, console for people")
    drain_s: float = Field(30.0, ge=0, description="How long a service may take to finish after SIGTERM")

    def kafka_client(self, client_id: str) -> KafkaConfig:
        return KafkaConfig(self.kafka, parse_kafka_config(self.kafka_config), client_id)


def parse_kafka_config(text: str) -> dict[str, str]:
    text = text.strip()
    if not text:
        return {}
    if text.startswith("{"):
        return {str(name): str(value) for name, value in json.loads(text).items()}
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, equals, _ in pairs:
        if not equals:
            raise ValueError(f"HOLDFAST_KAFKA_CONFIG: {name!r} has no value; write name=value,name=value or JSON")
    return {name.strip(): value.strip() for name, _, value in pairs}


def kafka_from_env() -> str:
    return ServiceSettings().kafka


def load_dev_env(path: Path = DEV_ENV) -> bool:
    """Take what `holdfast dev` wrote for everything that the environment does not say; True if there was such a file."""
    if not path.is_file():
        return False
    for line in path.read_text().splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            os.environ.setdefault(name.removeprefix("export ").strip(), value.strip().strip("'\""))
    return True
