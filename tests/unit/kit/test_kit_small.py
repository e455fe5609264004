"""Backoff, the clock, settings, health and metrics."""

import json
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from holdfast.kit import metrics
from holdfast.kit.backoff import Backoff
from holdfast.kit.clock import DatabaseClock
from holdfast.kit.health import Health, HealthServer
from holdfast.kit.settings import ServiceSettings, kafka_from_env, load_dev_env

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_backoff_grows_to_its_cap_and_starts_over_after_a_success() -> None:
    backoff = Backoff(initial_s=1, factor=2, cap_s=10, chance=lambda: 1.0)
    assert [backoff.next_s() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next_s() == 1


def test_backoff_has_jitter_between_half_and_all() -> None:
    assert Backoff(initial_s=1, chance=lambda: 0.0).next_s() == 0.5
    assert Backoff(initial_s=1, chance=lambda: 0.5).next_s() == 0.75


def test_backoff_survives_days_of_failures() -> None:
    backoff = Backoff()
    backoff.failures = 100_000
    assert backoff.next_s() <= backoff.cap_s


class Monotonic:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_the_clock_is_the_last_reading_plus_the_time_since() -> None:
    monotonic = Monotonic()
    clock = DatabaseClock(monotonic)
    clock.observe(NOON)
    monotonic.seconds += 2.5
    assert clock.now() == NOON + timedelta(seconds=2.5)


def test_the_clock_stands_still_rather_than_go_back() -> None:
    monotonic = Monotonic()
    clock = DatabaseClock(monotonic)
    clock.observe(NOON)
    assert clock.now() == NOON
    clock.observe(NOON - timedelta(seconds=5))
    assert clock.now() == NOON
    monotonic.seconds += 4
    assert clock.now() == NOON
    monotonic.seconds += 4
    assert clock.now() == NOON + timedelta(seconds=3)


def test_the_clock_can_be_told_of_a_moment_that_has_passed() -> None:
    clock = DatabaseClock(Monotonic())
    clock.observe(NOON)
    clock.at_least(NOON + timedelta(seconds=1))
    assert clock.now() == NOON + timedelta(seconds=1)
    clock.at_least(NOON)
    assert clock.now() == NOON + timedelta(seconds=1)


def test_a_clock_that_never_heard_the_database_says_so() -> None:
    clock = DatabaseClock()
    assert not clock.known
    with pytest.raises(RuntimeError):
        clock.now()
    with pytest.raises(ValueError, match="zone"):
        clock.observe(datetime(2026, 1, 1))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    import os

    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_settings_have_defaults_that_work_on_one_machine(bare: pytest.MonkeyPatch) -> None:
    settings = ServiceSettings()
    assert settings.kafka == "127.0.0.1:9092"
    assert settings.postgres_dsn == "postgresql://holdfast:holdfast@127.0.0.1:5432/holdfast"
    assert (settings.health_port, settings.drain_s, settings.log_format) == (0, 30.0, "json")


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in ServiceSettings.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    "text",
    [
        '{"security.protocol": "SASL_SSL", "socket.timeout.ms": 100}',
        "security.protocol=SASL_SSL, socket.timeout.ms=100",
    ],
)
def test_security_settings_reach_every_kafka_client(bare: pytest.MonkeyPatch, text: str) -> None:
    bare.setenv("HOLDFAST_KAFKA", "broker:1")
    bare.setenv("HOLDFAST_KAFKA_CONFIG", text)
    client = kafka_from_env().client(security_protocol="PLAINTEXT", linger_ms=3)
    assert client["bootstrap.servers"] == "broker:1"
    assert client["security.protocol"] == "SASL_SSL"
    assert client["socket.timeout.ms"] == "100"
    assert client["linger.ms"] == 3


def test_settings_that_are_wrong_are_refused(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("HOLDFAST_KAFKA_CONFIG", "nonsense")
    with pytest.raises(ValidationError, match="name=value"):
        ServiceSettings()


def test_no_password_is_printed(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("HOLDFAST_POSTGRES", "postgresql://u:hush@host/db")
    bare.setenv("HOLDFAST_KAFKA_CONFIG", "sasl.password=hush")
    assert "hush" not in repr(ServiceSettings())


def test_dev_env_is_found_above_and_loses_to_what_is_set(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".holdfast").mkdir()
    text = "# made by holdfast dev\nexport HOLDFAST_KAFKA='dev:1'\nHOLDFAST_POSTGRES=postgresql://x/y?a=b\nPATH=/evil\n"
    (tmp_path / ".holdfast" / "dev.env").write_text(text)
    bare.setenv("HOLDFAST_KAFKA", "mine:1")
    bare.setenv("HOLDFAST_POSTGRES", "")
    bare.delenv("HOLDFAST_POSTGRES")
    assert load_dev_env(inner) == tmp_path / ".holdfast" / "dev.env"
    settings = ServiceSettings()
    assert (settings.kafka, settings.postgres_dsn) == ("mine:1", "postgresql://x/y?a=b")
    bare.delenv("HOLDFAST_POSTGRES")


def test_without_dev_env_nothing_is_read(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_dev_env(tmp_path) is None


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def health() -> Health:
    return Health("test")


@pytest.fixture
def server(health: Health):  # type: ignore[no-untyped-def]
    server = HealthServer(health, "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


def test_a_service_is_ready_when_it_started_and_every_check_passes(health: Health, server: HealthServer) -> None:
    assert get(server, "/readyz")[0] == 503
    health.started()
    assert get(server, "/readyz") == (200, '{"ok": true}\n')
    health.fails("kafka", "no broker answers")
    status, body = get(server, "/readyz")
    assert (status, json.loads(body)["failing"]) == (503, {"kafka": "no broker answers"})
    assert get(server, "/healthz")[0] == 200  # restarting would not bring Kafka back
    health.passes("kafka")
    assert get(server, "/readyz")[0] == 200


def test_a_loop_that_does_not_turn_is_not_alive(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    health = Health("test", loop_silent_max_s=0.0)
    assert "has not turned" in (health.not_alive() or "")
    health = Health("test", loop_silent_max_s=60.0)
    health.tick()
    assert health.not_alive() is None


def test_what_is_fatal_is_not_alive_and_not_ready(health: Health, server: HealthServer) -> None:
    health.started()
    health.fatal("poisoned")
    assert get(server, "/healthz")[0] == 503
    assert json.loads(get(server, "/readyz")[1])["failing"] == {"alive": "poisoned"}


def test_metrics_are_prometheus_text_and_each_has_help(server: HealthServer) -> None:
    status, body = get(server, "/metrics")
    assert status == 200
    assert "# HELP holdfast_service_ready " in body
    assert metrics.without_help() == []
    assert get(server, "/nothing")[0] == 404


def test_a_silent_client_does_not_stop_the_others(health: Health, server: HealthServer) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", server.port)):
        answers: list[int] = []
        asking = threading.Thread(target=lambda: answers.append(get(server, "/healthz")[0]))
        asking.start()
        asking.join(4)
        assert answers == [200]
