"""Kafka's jars: fetched once into a cache, and never used unless every checksum is the pinned one.

The cache keeps the layout of a Maven repository, so Maven and the plain HTTPS download fill it alike.
`python -m holdfast.embedded.jars` fetches by Maven and prints new pins, for when the version in the pom changes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from holdfast.embedded.errors import EmbeddedError
from holdfast.embedded.resources import kafka_file
from holdfast.embedded.server import Say

KAFKA_VERSION = "4.3.1"
REPOSITORY_SETTING = "HOLDFAST_MAVEN_REPOSITORY"
_MAVEN_S = 900
_DOWNLOAD_S = 120


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "holdfast" / f"kafka-{KAFKA_VERSION}"


def pins() -> dict[str, str]:
    """Path in a Maven repository -> sha256, for every jar."""
    lines = kafka_file("jars.sha256").read_text().splitlines()
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines if line)}


def route() -> str | None:
    """How missing jars would be had: `cache`, `maven`, `https`, or None for not at all."""
    if not _wrong(cache_folder(), pins()):
        return "cache"
    if shutil.which("mvn"):
        return "maven"
    return "https" if os.environ.get(REPOSITORY_SETTING) else None


def ensure_jars(say: Say) -> list[Path]:
    """The verified jars, fetched first if need be; one process fetches, others wait for it."""
    folder, wanted = cache_folder(), pins()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _wrong(folder, wanted):
            _fetch(folder, wanted, say)
            if bad := _wrong(folder, wanted):
                raise EmbeddedError(
                    f"{len(bad)} of Kafka's jars are missing or do not have their pinned checksum: {bad[0]}; "
                    f"remove {folder} and try again"
                )
    return [folder / path for path in wanted]


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _wrong(folder: Path, wanted: dict[str, str]) -> list[str]:
    return [path for path, digest in wanted.items() if _digest(folder / path) != digest]


def _fetch(folder: Path, wanted: dict[str, str], say: Say) -> None:
    base = os.environ.get(REPOSITORY_SETTING)
    if shutil.which("mvn"):
        say(f"Kafka: fetching {len(wanted)} jars (44 MB) by Maven, once, into {folder}")
        _by_maven(folder)
    elif base:
        say(f"Kafka: downloading {len(wanted)} jars (44 MB), once, into {folder}")
        _by_https(base, folder, wanted)
    else:
        raise EmbeddedError(how_to_get_jars())


def how_to_get_jars() -> str:
    return (
        "Kafka's jars are not here and there is no Maven to fetch them: install Maven (Debian: apt-get install maven), "
        f"or set {REPOSITORY_SETTING} to the https address of a Maven repository such as Maven Central"
    )


def _by_maven(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        # A copy, because Maven writes beside the pom and an installed one may be read-only.
        pom = shutil.copy(kafka_file("pom.xml"), Path(scratch) / "pom.xml")
        command = ["mvn", "--quiet", "--batch-mode", f"--file={pom}", "dependency:copy-dependencies"]
        options = ["-DincludeScope=runtime", "-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={target}"]
        try:
            done = subprocess.run(command + options, capture_output=True, text=True, check=False, timeout=_MAVEN_S)
        except subprocess.TimeoutExpired:
            raise EmbeddedError(f"Maven did not finish within {_MAVEN_S} s; is its repository reachable?") from None
    if done.returncode != 0:
        raise EmbeddedError(f"Maven could not fetch Kafka's jars:\n{(done.stdout + done.stderr)[-2000:]}")


def _by_https(base: str, target: Path, wanted: dict[str, str]) -> None:
    if urlsplit(base).scheme != "https":
        raise EmbeddedError(f"{REPOSITORY_SETTING} must be an https address, not {base}")

    def one(path: str) -> None:
        with urlopen(f"{base.rstrip('/')}/{path}", timeout=_DOWNLOAD_S) as response:
            content = response.read()
        if hashlib.sha256(content).hexdigest() != wanted[path]:
            raise EmbeddedError(f"{path} from {base} does not have its pinned checksum; it was not kept")
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_suffix(".draft")
        draft.write_bytes(content)
        draft.replace(place)

    with ThreadPoolExecutor(4) as pool:
        try:
            list(pool.map(one, _wrong(target, wanted)))
        except OSError as error:
            raise EmbeddedError(f"could not download Kafka's jars from {base}: {error}") from error


def _print_pins() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _by_maven(Path(scratch))
        for jar in sorted(Path(scratch).rglob("*.jar")):
            print(f"{_digest(jar)}  {jar.relative_to(scratch)}")


if __name__ == "__main__":
    _print_pins()
