"""The settings tables of docs/operations.md, made from the settings classes: `python -m holdfast.cli.settings_doc`.

Writes them between the two marks in the file that is named; a test holds that the file is what this would write.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from holdfast.kit.settings import ServiceSettings
from holdfast.worker.service import WorkerSettings
from holdfast_coordinator.settings import CoordinatorSettings
from holdfast_recovery.settings import RecoverySettings
from holdfast_relay.settings import RelaySettings

BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"

_TABLES: dict[str, type[BaseSettings]] = {
    "Every service": ServiceSettings,
    "The coordinator": CoordinatorSettings,
    "The relay": RelaySettings,
    "Recovery": RecoverySettings,
    "A worker (it needs no Postgres)": WorkerSettings,
}


def tables() -> str:
    return "\n".join(_lines())


def replaced(text: str) -> str:
    """The document with its tables as they should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _lines() -> Iterator[str]:
    common = {name: _row(name, field) for name, field in ServiceSettings.model_fields.items()}
    for title, kind in _TABLES.items():
        yield f"\n**{title}**\n"
        yield "| variable | default | meaning |"
        yield "|---|---|---|"
        for name, field in kind.model_fields.items():
            row = _row(name, field)
            if kind is ServiceSettings or row != common.get(name):
                yield row


def _row(name: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    shown = f"`{default}`" if default not in (None, {}, "") else ""
    return f"| `HOLDFAST_{name.upper()}` | {shown} | {field.description} |"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(replaced(document.read_text()))
