"""Every schema ever written stays readable, and none is edited once it has been written."""

from io import BytesIO
from itertools import product
from typing import Any

import fastavro
import orjson
import pytest
from fastavro.schema import parse_schema
from fastavro.utils import generate_one

from holdfast.contracts.avro import fingerprints, load_schemas, schema_fingerprint
from holdfast.contracts.schema_files import schema_dir

_SCHEMAS = load_schemas(schema_dir() / "avro")
_PAIRS = [
    pytest.param(old, new, id=f"{name}: v{written} read as v{read}")
    for name, versions in _SCHEMAS.items()
    for (written, old), (read, new) in product(versions.items(), repeat=2)
]


def test_no_schema_was_edited_after_it_was_written() -> None:
    pinned = orjson.loads((schema_dir() / "avro" / "fingerprints.json").read_bytes())
    assert fingerprints() == pinned, "a change of shape is a new file; see schemas/README.md"


def test_each_fingerprint_belongs_to_one_schema() -> None:
    assert len(set(fingerprints().values())) == len(fingerprints())


def test_the_fingerprint_is_the_one_of_the_avro_specification() -> None:
    # The value for "int" that other implementations test against, as it travels: little-endian.
    assert schema_fingerprint("int") == 0x7275D51A3F395C8F.to_bytes(8, "little")  # type: ignore[arg-type]


@pytest.mark.parametrize(("writer", "reader"), _PAIRS)
def test_every_version_reads_what_every_version_wrote(writer: dict[str, Any], reader: dict[str, Any]) -> None:
    """Both ways: in a rolling upgrade an old worker reads what a new coordinator writes."""
    out = BytesIO()
    fastavro.schemaless_writer(out, parse_schema(writer), generate_one(writer))
    out.seek(0)
    read: Any = fastavro.schemaless_reader(out, parse_schema(writer), parse_schema(reader))
    assert set(read) == {field["name"] for field in reader["fields"]}


def _fields(schema: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if isinstance(schema, dict):
        for field in schema.get("fields", []):
            found += [field, *_fields(field["type"])]
    elif isinstance(schema, list):
        for branch in schema:
            found += _fields(branch)
    return found


@pytest.mark.parametrize("name", _SCHEMAS)
def test_every_field_is_documented_and_every_record_names_its_instance(name: str) -> None:
    for schema in _SCHEMAS[name].values():
        assert schema["doc"]
        assert [field["name"] for field in _fields(schema) if not field.get("doc")] == []
        assert "instance" in [field["name"] for field in schema["fields"]]
