"""The JSON Schema of definitions, for editors: `python -m holdfast.contracts.definition_schema > schemas/...`."""

import json

from holdfast.contracts.definition_model import DefinitionModel


def definition_schema() -> str:
    """The text of `schemas/definition.schema.json`; a test holds that the file is current."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | DefinitionModel.model_json_schema()
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    print(definition_schema(), end="")
