"""`holdfast worker shop.worker:worker`: what is found, and what is said about what is not."""

import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.core.errors import Refused
from holdfast.worker import Worker, WorkerSettings, load_worker

SHOP = """
from holdfast import Worker, activity

@activity("shop.sell")
async def sell(): ...

class Deployment:
    worker = Worker([sell], concurrency=7)

main = Deployment.worker
number = 3
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "little_shop.py").write_text(SHOP)
    (tmp_path / "broken_shop.py").write_text("import this_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("little_shop", "broken_shop"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("target", ["little_shop:main", "little_shop:Deployment.worker"])
def test_a_worker_is_found_by_its_name(target: str) -> None:
    worker = load_worker(target)
    assert isinstance(worker, Worker)
    assert (worker.queues, worker.concurrency) == (("shop",), 7)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("little_shop", "package.module:attribute"),
        (":main", "package.module:attribute"),
        ("little_shop:", "package.module:attribute"),
        ("no_shop.at_all:main", "no module 'no_shop.at_all'"),
        ("..relative:main", "no name of a module"),
        ("little_shop:cellar", "no 'cellar'; it has main"),
        ("little_shop:number", "is a int, not a holdfast.Worker"),
    ],
)
def test_what_is_not_found_is_explained(target: str, says: str) -> None:
    with pytest.raises(Refused) as refused:
        load_worker(target)
    assert says in str(refused.value)


@pytest.mark.usefixtures("shop")
def test_an_error_inside_the_users_module_goes_out_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="this_is_nowhere"):
        load_worker("broken_shop:worker")


def test_every_setting_of_a_worker_says_what_it_is_for() -> None:
    assert not [name for name, field in WorkerSettings.model_fields.items() if not field.description]


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KAFKA", "kafka:1234")
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "12")
    settings = WorkerSettings()
    assert (settings.kafka, settings.concurrency, settings.start_grace_s, settings.drain_s) == (
        "kafka:1234",
        12,
        0.2,
        30.0,
    )


def test_the_public_names_are_there_and_an_unknown_one_is_not() -> None:
    for name in ("ActivityContext", "NonRetryable", "RetryLater", "Worker", "activity"):
        assert getattr(holdfast, name) is getattr(holdfast.worker, name)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        holdfast.nothing_like_it  # noqa: B018
