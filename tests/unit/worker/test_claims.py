"""A claim counts once its offset is committed: only then does a task that kills its process kill it once."""

from holdfast.worker import activity
from tests.unit.worker.stage import Stage


async def test_a_claimed_task_runs_after_its_offset_is_committed() -> None:
    stage = Stage()
    committed: list[int] = []

    @activity("test.look")
    async def look() -> None:
        committed.append(stage.committed())

    sent = [stage.dispatch("test.look") for _ in range(3)]
    async with stage.worker([look]):
        for dispatch in sent:
            await stage.outcome(dispatch)
    assert len(committed) == 3
    assert all(offset > number for number, offset in enumerate(committed)), committed
