"""The documents in `schemas/` say what the code does."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from holdfast.contracts import topics
from holdfast.contracts.avro import load_schemas
from holdfast.contracts.cloudevents_in import KNOWN_TYPES
from holdfast.contracts.cloudevents_out import OUTCOMES, event_type
from holdfast.contracts.definition_model import DefinitionModel
from holdfast.contracts.definition_schema import definition_schema
from holdfast.contracts.schema_files import schema_dir
from holdfast.core.events import EVENT_TYPES

_ASYNCAPI: dict[str, Any] = yaml.safe_load((schema_dir() / "asyncapi.yaml").read_text())


def test_the_schema_of_definitions_is_current() -> None:
    written = (schema_dir() / "definition.schema.json").read_text()
    assert written == definition_schema(), "run: python -m holdfast.contracts.definition_schema"


def test_every_field_of_a_definition_is_described() -> None:
    schema = json.loads(definition_schema())
    models = [schema, *schema["$defs"].values()]
    assert [name for model in models for name, field in model["properties"].items() if "description" not in field] == []
    assert set(schema["properties"]) == set(DefinitionModel.model_fields)


def test_asyncapi_has_every_topic_and_no_other() -> None:
    described = {channel["address"] for channel in _ASYNCAPI["channels"].values()}
    made = {spec.name for spec in topics.required_topics(8)} | {topics.task_topic("{queue}")}
    assert described == made


def test_asyncapi_has_every_event_command_and_outcome() -> None:
    messages = _ASYNCAPI["components"]["schemas"]
    assert messages["EventType"]["enum"] == [event_type(*named) for named in EVENT_TYPES.values()]
    assert messages["CommandType"]["enum"] == list(KNOWN_TYPES)
    assert messages["OutcomeType"]["enum"] == [f"io.holdfast.command.{outcome}.v1" for outcome in OUTCOMES]


def test_asyncapi_points_at_the_newest_avro_schemas_and_at_nothing_that_is_not_there() -> None:
    text = (schema_dir() / "asyncapi.yaml").read_text()
    files = set(re.findall(r"\./(avro/[\w.]+\.avsc)", text))
    newest = {f"avro/{name}.v{max(versions)}.avsc" for name, versions in load_schemas(schema_dir() / "avro").items()}
    assert files == newest
    for reference in re.findall(r"\$ref: '#/([^']+)'", text):
        place: Any = _ASYNCAPI
        for part in reference.split("/"):
            assert part in place, reference
            place = place[part]


def test_the_schemas_are_found_in_a_checkout() -> None:
    assert schema_dir() == Path(__file__).resolve().parents[3] / "schemas"
