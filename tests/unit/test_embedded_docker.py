"""The container route against a `docker` command that only writes down what it was asked. No daemon is needed."""

from pathlib import Path

import pytest

from holdfast.embedded import docker
from holdfast.embedded.errors import EmbeddedError
from holdfast.embedded.kafka import DockerKafka, container_settings

FAKE = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2" in
  "inspect --format") [ -e {made} ] && cat {made} || exit 1 ;;
  "create "*) for a in "$@"; do case "$a" in --label=holdfast.port=*)
      echo "{{\\"holdfast.port\\": \\"${{a##*=}}\\"}}" > {made} ;; esac; done ;;
  "kill "*) echo "no such container" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "asked"
    fake = tmp_path / "docker"
    fake.write_text(FAKE.format(log=log, made=tmp_path / "made"))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("holdfast.embedded.kafka.answers", lambda address: True)
    return log


def test_a_container_is_made_once_on_loopback_and_kept_with_its_port(asked: Path, tmp_path: Path) -> None:
    first = DockerKafka(tmp_path, print)
    first.start()
    first.stop()
    second = DockerKafka(tmp_path, print)
    second.start()

    assert second.bootstrap == first.bootstrap == f"127.0.0.1:{first.port}"
    lines = asked.read_text().splitlines()
    [create] = [line for line in lines if line.startswith("create")]
    assert f"--publish=127.0.0.1:{first.port}:19092" in create
    assert create.endswith(docker.KAFKA_IMAGE)
    assert lines.count(f"start {first.container}") == 2
    assert lines[-2:] == [f"stop {first.container}", f"start {first.container}"], "a leftover is stopped first"


def test_a_docker_error_is_told(asked: Path, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="no such container"):
        DockerKafka(tmp_path, print).kill()


def test_the_broker_in_a_container_tells_clients_the_published_port() -> None:
    settings = container_settings(12345)
    assert settings["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:12345"
    assert settings["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
