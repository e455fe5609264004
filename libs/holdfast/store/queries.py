"""SQL lives in files, each statement under a line `-- name: x` with its why; this reads them once, at import."""

import re
from importlib import resources

_HEADER = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(name: str) -> dict[str, str]:
    """The statements of `sql/<name>.sql` by name."""
    text = resources.files("holdfast.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    parts = _HEADER.split(text)
    names = parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"sql/{name}.sql has two statements of one name")
    return {key: body.strip() for key, body in zip(names, parts[2::2], strict=True)}
