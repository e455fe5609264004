"""Files beside the code: Kafka's pom and the pins of its jars.

They live in `deploy/kafka` because people look for them there, and travel inside the wheel. A checkout wins: there
the files are the ones being edited.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def kafka_file(name: str) -> Path:
    """The path of one file of `deploy/kafka`, in a checkout or in an installed wheel."""
    checkout = _HERE.parents[2]
    candidates = [_HERE / "_kafka" / name]
    if (checkout / "pyproject.toml").is_file():
        candidates.insert(0, checkout / "deploy" / "kafka" / name)
    for path in candidates:
        if path.is_file():
            return path
    raise FileNotFoundError(f"{name} not found in {' or '.join(map(str, candidates))}; reinstall holdfast")
