"""What an operator sees."""

from prometheus_client import CollectorRegistry

from holdfast.kit.metrics import exposition, without_help
from holdfast.worker.metrics import WorkerCollector
from tests.unit.worker.stage import Stage
from tests.unit.worker.test_offsets import quick
from tests.unit.worker.test_outcomes import failing


async def test_attempts_are_counted_by_activity_and_outcome_and_every_metric_explains_itself() -> None:
    stage = Stage()
    registry = CollectorRegistry()
    async with stage.worker([quick, failing(ValueError("no"))]) as running:
        registry.register(WorkerCollector(running.process))
        await stage.outcome(stage.dispatch("test.quick", 1))
        await stage.outcome(stage.dispatch("test.fail"))
        await stage.outcome(stage.dispatch("test.unknown"))
        text = exposition(registry).decode()
    assert 'holdfast_worker_attempts_total{activity="test.quick",outcome="completed"} 1.0' in text
    assert 'holdfast_worker_attempts_total{activity="test.fail",outcome="failed"} 1.0' in text
    assert "holdfast_worker_no_handler_total 1.0" in text
    assert "holdfast_worker_running 0.0" in text
    assert without_help(registry) == []
