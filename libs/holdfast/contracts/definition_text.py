"""YAML or JSON text to plain data, suspiciously: keys that appear twice, aliases that unfold without end."""

import json
from typing import Any

import yaml

from holdfast.contracts.limits import definition_bytes_max

_nodes_max = 50_000
_depth_max = 100


class TextInvalid(ValueError):
    """The text cannot be read as a definition at all."""


class _Loader(yaml.SafeLoader):
    """PyYAML lets a later key silently win; a task that is written twice would vanish.

    The slow loader on purpose: the C one overflows its stack on deep nesting and takes the process with it."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.value != "<<":
                raise TextInvalid(f"has the key {key.value!r} twice (line {key.start_mark.line + 1})")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise TextInvalid(f"has the key {key!r} twice")
        found[key] = value
    return found


def read_text(text: str | bytes) -> dict[str, Any]:
    if len(text if isinstance(text, bytes) else text.encode("utf-8", "replace")) > definition_bytes_max:
        raise TextInvalid(f"is longer than {definition_bytes_max // 1024} KiB")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        if decoded.lstrip().startswith("{"):
            try:
                return check_data(json.loads(decoded, object_pairs_hook=_unique))
            except json.JSONDecodeError:
                pass  # YAML's flow style also begins with a brace.
        return check_data(yaml.load(decoded, _Loader))
    except yaml.YAMLError as error:
        raise TextInvalid(f"is neither YAML nor JSON: {' '.join(str(error).split())}"[:500]) from None
    except UnicodeDecodeError as error:
        raise TextInvalid(f"is not UTF-8: {error}") from None
    except RecursionError:
        raise TextInvalid("is nested too deeply") from None


def check_data(data: Any) -> dict[str, Any]:
    """Plain data of limited size: aliases of YAML are shared objects, small in memory and endless when written out."""
    left = _nodes_max

    def walk(value: Any, depth: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise TextInvalid(f"has more than {_nodes_max} parts")
        if depth > _depth_max:
            raise TextInvalid("is nested too deeply")
        if isinstance(value, dict):
            for inner in value.values():
                walk(inner, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, depth + 1)

    walk(data, 0)
    if not isinstance(data, dict):
        raise TextInvalid(f"must be a mapping with namespace, workflow, version and tasks, not {type(data).__name__}")
    return data
