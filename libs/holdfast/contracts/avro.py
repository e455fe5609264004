"""Avro single-object encoding: `C3 01`, the fingerprint of the writer's schema, the record.

`schemas/avro` holds every version ever written, as `<name>.v<n>.avsc`; all of them are parsed at import. What an older
version wrote is read with that version's schema and resolved to the newest, which is the only one that we write.
fastavro reports bad bytes with whatever exception it falls over; here that becomes Corrupt.
"""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

from holdfast.contracts.schema_files import schema_dir
from holdfast.core.errors import Corrupt

_MARKER = b"\xc3\x01"
_HEADER_BYTES = 10
_FILE_NAME = re.compile(r"(?P<name>[a-z_]+)\.v(?P<version>[0-9]+)\.avsc").fullmatch


def schema_fingerprint(schema: dict[str, Any]) -> bytes:
    """CRC-64-AVRO of the parsing canonical form, little-endian, as it stands in a message."""
    # fastavro prints the fingerprint's bytes in the order in which they travel.
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


class Codec:
    """One kind of record: writes the newest version, reads every version."""

    def __init__(self, name: str, versions: dict[int, dict[str, Any]]) -> None:
        self.name = name
        self.schema = versions[max(versions)]
        self.fingerprint = schema_fingerprint(self.schema)
        self._header = _MARKER + self.fingerprint
        self._current: Any = parse_schema(self.schema)
        self._writers: dict[bytes, Any] = {schema_fingerprint(old): parse_schema(old) for old in versions.values()}

    def encode(self, record: dict[str, Any]) -> bytes:
        out = BytesIO()
        out.write(self._header)
        schemaless_writer(out, self._current, record)
        return out.getvalue()

    def decode(self, value: bytes) -> dict[str, Any]:
        """Raises Corrupt and nothing else."""
        source = BytesIO(value)
        try:
            if source.read(_HEADER_BYTES) == self._header:
                record: dict[str, Any] = schemaless_reader(source, self._current, None)  # type: ignore[assignment]
            else:
                record = schemaless_reader(source, self._writer_of(value), self._current)  # type: ignore[assignment]
        except Corrupt:
            raise
        except Exception as error:
            raise Corrupt(
                f"{self.name}: {len(value)} bytes are not the Avro record they say: {error!r}"[:300]
            ) from error
        if source.tell() != len(value):
            raise Corrupt(f"{self.name}: {len(value) - source.tell()} bytes follow the Avro record")
        return record

    def _writer_of(self, value: bytes) -> Any:
        if value[:2] != _MARKER:
            raise Corrupt(
                f"{self.name}: {len(value)} bytes do not begin with C3 01, the mark of Avro single-object encoding"
            )
        found = self._writers.get(value[2:_HEADER_BYTES])
        if found is None:
            raise Corrupt(
                f"{self.name}: no schema has the fingerprint {value[2:_HEADER_BYTES].hex()}; a newer service wrote it?"
            )
        return found


def load_schemas(folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """name -> version -> schema, of every file in `schemas/avro`."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.avsc")):
        match = _FILE_NAME(path.name)
        if match is None:
            raise ValueError(f"{path.name}: schema files are called <name>.v<n>.avsc")
        found.setdefault(match["name"], {})[int(match["version"])] = orjson.loads(path.read_bytes())
    return found


_SCHEMAS = load_schemas(schema_dir() / "avro")

TASK = Codec("task", _SCHEMAS["task"])
REPORT = Codec("report", _SCHEMAS["report"])
TICK = Codec("tick", _SCHEMAS["tick"])
CANCELLATION = Codec("cancellation", _SCHEMAS["cancellation"])


def fingerprints() -> dict[str, str]:
    """What `schemas/avro/fingerprints.json` must say: file name without its ending -> fingerprint in hex."""
    return {
        f"{name}.v{version}": schema_fingerprint(schema).hex()
        for name, versions in _SCHEMAS.items()
        for version, schema in versions.items()
    }


if __name__ == "__main__":
    print(orjson.dumps(fingerprints(), None, orjson.OPT_INDENT_2).decode())
