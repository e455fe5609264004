"""The image and the compose file, as far as they can be judged without running them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.embedded import docker, kafka

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()

SERVERS = ("kafka", "postgres")
ONE_SHOT = ("migrate", "topics")
LONG_RUNNING = ("coordinator", "relay", "recovery", "worker")


def test_the_compose_file_has_every_part_of_the_system() -> None:
    assert set(SERVICES) == {*SERVERS, *ONE_SHOT, *LONG_RUNNING}


def test_compose_and_the_embedded_stack_run_the_same_servers() -> None:
    assert SERVICES["kafka"]["image"] == docker.KAFKA_IMAGE
    assert SERVICES["postgres"]["image"] == docker.POSTGRES_IMAGE
    for key, value in kafka.ONE_BROKER.items():
        if "partitions" not in key and "broker." not in key:  # Those only make tests quicker.
            assert SERVICES["kafka"]["environment"]["KAFKA_" + key.upper().replace(".", "_")] == value


@pytest.mark.parametrize("name", [*SERVERS, *LONG_RUNNING])
def test_whatever_keeps_running_has_a_health_check_and_comes_back(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_services_wait_for_the_set_up_and_may_drain(name: str) -> None:
    waits = {what: rule["condition"] for what, rule in SERVICES[name]["depends_on"].items()}
    assert waits == dict.fromkeys(ONE_SHOT, "service_completed_successfully")
    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > 30
    port = SERVICES[name]["environment"]["HOLDFAST_HEALTH_PORT"]
    assert f":{port}/readyz" in SERVICES[name]["healthcheck"]["test"][-1]


def test_the_set_up_waits_for_healthy_servers() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["topics"]["depends_on"] == {
        "kafka": {"condition": "service_healthy"},
        "migrate": {"condition": "service_completed_successfully"},
    }
    assert all(SERVICES[name]["restart"] == "no" for name in ONE_SHOT)


def test_every_holdfast_container_is_the_one_image_with_both_addresses() -> None:
    ours = [SERVICES[name] for name in (*ONE_SHOT, *LONG_RUNNING)]
    assert {one["image"] for one in ours} == {"holdfast:0.1.0"}
    assert {one["build"]["dockerfile"] for one in ours} == {"deploy/Dockerfile"}
    assert all({"HOLDFAST_KAFKA", "HOLDFAST_POSTGRES"} <= set(one["environment"]) for one in ours)
    assert all(one["read_only"] and one["cap_drop"] == ["ALL"] for one in ours)


def test_nothing_is_published_beyond_the_loopback_interface() -> None:
    published = [port for one in SERVICES.values() for port in one.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_image_has_a_version() -> None:
    images = [one["image"] for one in SERVICES.values()] + re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert all(re.search(r":\d", image) for image in images)


def test_the_image_is_built_in_stages_from_hashes_and_is_not_root() -> None:
    assert len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE)) == 2
    installs = [line for line in DOCKERFILE.splitlines() if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    [user] = re.findall(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0


def test_what_the_image_copies_is_here_and_not_ignored() -> None:
    ignored = {line.strip("/") for line in (ROOT / ".dockerignore").read_text().split()}
    for line in re.findall(r"^COPY (?!--from)(.+)", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source not in ignored
