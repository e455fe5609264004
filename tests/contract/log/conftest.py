"""The two logs that pass the contract: the in-memory twin, and Kafka itself."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.log.harness import Harness, KafkaHarness, MemoryHarness


@pytest.fixture(params=["memory", "kafka"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    make: Callable[[], Harness]
    if request.param == "memory":
        make = MemoryHarness
    else:
        bootstrap = request.getfixturevalue("kafka")
        make = lambda: KafkaHarness(bootstrap)  # noqa: E731
    harness = make()
    yield harness
    await harness.close()
