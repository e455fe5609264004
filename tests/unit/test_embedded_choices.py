"""What the embedded stack chooses, and what it says when there is nothing to choose. Starts nothing."""

import hashlib
import io
from pathlib import Path

import pytest

from holdfast.embedded import choices, docker, jars, java, ports
from holdfast.embedded.errors import EmbeddedError, NothingFound
from holdfast.embedded.resources import kafka_file


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with neither servers, Java, Maven nor Docker."""
    for name in (choices.POSTGRES_SETTING, choices.KAFKA_SETTING, jars.REPOSITORY_SETTING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choices, "postgres_on_machine", lambda: None)
    monkeypatch.setattr(choices, "postgres_in_wheel", lambda: None)
    monkeypatch.setattr(choices, "find_java", lambda: None)
    monkeypatch.setattr(docker, "no_daemon", lambda: "no docker command")
    return monkeypatch


def test_nothing_to_run_says_what_to_install(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(NothingFound, match="apt-get install postgresql") as postgres:
        choices.choose_postgres(print)
    assert "holdfast[embedded]" in str(postgres.value)
    with pytest.raises(NothingFound, match=r"Java 17\+") as kafka:
        choices.choose_kafka(print)
    assert "apt-get install maven" in str(kafka.value)
    assert jars.REPOSITORY_SETTING in str(kafka.value)
    assert choices.needs_wheels()


def test_a_setting_wins_over_everything(bare: pytest.MonkeyPatch) -> None:
    bare.setenv(choices.POSTGRES_SETTING, "postgresql://somewhere/else")
    bare.setenv(choices.KAFKA_SETTING, "somewhere:9092")
    assert (choices.choose_postgres(print).kind, choices.choose_postgres(print).address) == (
        "external",
        "postgresql://somewhere/else",
    )
    assert (choices.choose_kafka(print).kind, choices.choose_kafka(print).address) == ("external", "somewhere:9092")
    assert not choices.needs_wheels()


def test_docker_is_preferred_for_kafka_and_last_for_postgres(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(docker, "no_daemon", lambda: None)
    bare.setattr(docker, "no_image", lambda image, say: None)
    assert choices.choose_kafka(print).kind == "docker"
    assert choices.choose_postgres(print).kind == "docker"
    bare.setattr(choices, "postgres_on_machine", lambda: Path("/pg/bin"))
    assert choices.choose_postgres(print).kind == "machine"


def test_an_image_that_cannot_be_had_falls_back_to_the_jars(bare: pytest.MonkeyPatch) -> None:
    bare.setattr(docker, "no_daemon", lambda: None)
    bare.setattr(docker, "no_image", lambda image, say: f"{image} cannot be pulled")
    bare.setattr(choices, "find_java", lambda: java.Java(Path("java"), 21, "of the machine"))
    bare.setenv(jars.REPOSITORY_SETTING, "https://repository.invalid")
    choice = choices.choose_kafka(print)
    assert choice.kind == "jars"
    assert "cannot be pulled" in choice.why


def test_every_pin_is_a_jar_with_a_sha256() -> None:
    pins = jars.pins()
    assert any(f"kafka_2.13-{jars.KAFKA_VERSION}.jar" in path for path in pins)
    assert all(path.endswith(".jar") and len(digest) == 64 for path, digest in pins.items())
    assert f"<version>{jars.KAFKA_VERSION}</version>" in kafka_file("pom.xml").read_text()


def test_downloaded_jars_are_kept_only_with_their_pinned_checksum(bare: pytest.MonkeyPatch) -> None:
    good = {"a/good.jar": hashlib.sha256(b"good.jar").hexdigest()}
    bare.setenv(jars.REPOSITORY_SETTING, "https://repository.invalid/maven2/")
    asked: list[str] = []

    def serve(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        return io.BytesIO(url.rsplit("/", 1)[1].encode())

    bare.setattr(jars, "urlopen", serve)
    bare.setattr(jars, "pins", lambda: good)
    assert [path.read_bytes() for path in jars.ensure_jars(lambda _: None)] == [b"good.jar"]
    assert asked == ["https://repository.invalid/maven2/a/good.jar"]
    jars.ensure_jars(lambda _: None)
    assert len(asked) == 1, "the cache is used"

    bare.setattr(jars, "pins", lambda: {**good, "a/bad.jar": "0" * 64})
    with pytest.raises(EmbeddedError, match="pinned checksum"):
        jars.ensure_jars(lambda _: None)
    assert not (jars.cache_folder() / "a" / "bad.jar").exists()


def test_jars_come_over_https_only(bare: pytest.MonkeyPatch) -> None:
    bare.setenv(jars.REPOSITORY_SETTING, "http://repository.invalid")
    with pytest.raises(EmbeddedError, match="https"):
        jars.ensure_jars(lambda _: None)


@pytest.mark.parametrize(
    ("told", "major"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_412"', 8), ('openjdk version "25"', 25)],
)
def test_the_java_version_is_read(told: str, major: int, tmp_path: Path) -> None:
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    fake.chmod(0o755)
    assert java.major_of(fake) == major


def test_ports_stay_the_same_while_they_are_free(tmp_path: Path) -> None:
    note = tmp_path / "ports.json"
    first = ports.same_or_free(note, 2)
    assert len(set(first)) == 2
    assert ports.same_or_free(note, 2) == first
    note.write_text("damaged")
    assert len(ports.same_or_free(note, 2)) == 2
