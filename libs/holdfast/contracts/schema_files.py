"""Where the files of `schemas/` are.

They live at the top of the repository because people look for them there, and travel inside the wheel as
`holdfast/_schemas`. A checkout wins: there the files are the ones being edited.
"""

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def schema_dir() -> Path:
    """The folder with every schema version ever written, in a checkout or in an installed wheel."""
    checkout = _PACKAGE.parents[1]
    candidates = (_PACKAGE / "_schemas", checkout / "schemas")
    for folder in reversed(candidates):
        # site-packages may hold somebody else's `schemas`; ours is only the one beside our pyproject.toml.
        if folder.is_dir() and (folder.name == "_schemas" or (checkout / "pyproject.toml").is_file()):
            return folder
    raise FileNotFoundError(f"no schemas found in {' or '.join(map(str, candidates))}; reinstall holdfast")
