"""The documents say what the code does, as far as a machine can tell."""

import re
from pathlib import Path

import pytest

from holdfast.cli import settings_doc
from holdfast.cli.exits import ExitCode
from holdfast.cli.main import COMMANDS
from holdfast.contracts.definition_model import DefinitionModel, RetryModel, TaskModel
from holdfast.contracts.definitions import parse_definition

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"


def test_every_setting_is_documented_as_it_is() -> None:
    text = (DOCS / "operations.md").read_text()
    assert settings_doc.replaced(text) == text, "run: python -m holdfast.cli.settings_doc docs/operations.md"


def test_every_command_is_documented() -> None:
    text = (DOCS / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in text and f"`holdfast {name}" not in text] == []


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_documented(code: ExitCode) -> None:
    assert f"| {code.value} |" in (DOCS / "cli.md").read_text()


@pytest.mark.parametrize("model", [DefinitionModel, TaskModel, RetryModel])
def test_every_field_of_a_definition_is_documented(model: type[DefinitionModel]) -> None:
    text = (DOCS / "definitions.md").read_text()
    assert [name for name in model.model_fields if f"`{name}`" not in text] == []


def test_the_definition_in_the_document_is_valid() -> None:
    text = (DOCS / "definitions.md").read_text()
    block = re.search(r"^    namespace: orders\n(?:    .*\n)+", text, re.MULTILINE)
    assert block is not None
    _, definition = parse_definition(re.sub(r"^    ", "", block[0], flags=re.MULTILINE))
    assert definition.roots == ("reserve",)


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))], ids=str)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []
