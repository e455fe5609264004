"""Folders for stacks under test."""

import tempfile
from pathlib import Path


def open_folder(prefix: str) -> Path:
    """A new temporary folder that other users may enter: as root, Postgres runs as somebody else."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    return folder
