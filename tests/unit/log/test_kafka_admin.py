"""What the admin makes of the binding's odder answers."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.errors import Transient
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.protocol import TopicPartition


async def test_an_offset_below_zero_is_a_question_that_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for an end, it would be one that everybody has reached: leases would expire because the broker is away."""
    admin = KafkaAdmin(KafkaConfig("127.0.0.1:1"))

    def list_offsets(wanted: dict[Any, Any], **_: Any) -> dict[Any, "Future[Any]"]:
        answers = {}
        for partition in wanted:
            answers[partition] = answer = Future()
            answer.set_result(SimpleNamespace(offset=-1001))
        return answers

    monkeypatch.setattr(admin, "_handle", SimpleNamespace(list_offsets=list_offsets))
    with pytest.raises(Transient, match="not answered"):
        await admin.end_offsets([TopicPartition("holdfast.reports", 0)])
