from collections.abc import AsyncIterator

import pytest

from tests.unit.coordinator.stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    await stage.define()
    yield stage
    await stage.close()
