from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import topics
from holdfast.core.errors import Refused


@dataclass
class _Topic:
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


def _as_required(partitions: int = 8) -> dict[str, _Topic]:
    return {
        spec.name: _Topic(spec.partitions, dict(spec.configs))
        for spec in topics.required_topics(partitions, ["payment"])
    }


def test_what_is_created_is_what_the_check_wants() -> None:
    assert topics.check_topics(topics.required_topics(8, ["payment"]), _as_required()) == []


def test_the_inbox_topics_have_the_same_partition_count() -> None:
    counts = {spec.name: spec.partitions for spec in topics.required_topics(12)}
    assert {counts[name] for name in topics.INBOX} == {12}


def test_names_are_those_of_the_architecture() -> None:
    assert topics.task_topic("payment") == "holdfast.tasks.payment"
    assert topics.queue_of_topic("holdfast.tasks.payment") == "payment"
    assert topics.queue_of_topic("holdfast.events") is None
    assert topics.worker_group("payment") == "holdfast.worker.payment"


@pytest.mark.parametrize(
    ("topic", "change", "says"),
    [
        ("holdfast.reports", {"partitions": 9}, "holdfast.reports: has 9 partitions, must have 8"),
        ("holdfast.events", {"partitions": 4}, "must have at least 8"),
        ("holdfast.commands", {"retention.ms": "3600000"}, "must be at least 604800000 (7 days)"),
        ("holdfast.ticks", {"retention.bytes": "1000"}, "retention.bytes is 1000, must be -1"),
        ("holdfast.tasks.payment", {"retention.ms": "604800000"}, "must be -1: a task must stay"),
        ("holdfast.events", {"cleanup.policy": "compact"}, "cleanup.policy must be delete"),
        ("holdfast.dlq", {"max.message.bytes": "1000"}, "max.message.bytes is 1000, must be at least"),
    ],
)
def test_each_wrong_setting_is_one_problem(topic: str, change: dict[str, object], says: str) -> None:
    described = _as_required()
    described[topic].partitions = int(str(change.pop("partitions", described[topic].partitions)))
    described[topic].configs |= {name: str(value) for name, value in change.items()}
    [problem] = topics.check_topics(topics.required_topics(8, ["payment"]), described)
    assert says in problem


def test_a_missing_topic_says_how_to_make_it() -> None:
    described = _as_required()
    del described["holdfast.dlq"]
    assert topics.check_topics(topics.required_topics(8, ["payment"]), described) == [
        "holdfast.dlq: does not exist; run `holdfast topics create`"
    ]


def test_more_partitions_than_asked_for_are_fine_where_order_does_not_depend_on_them() -> None:
    described = _as_required()
    described["holdfast.events"].partitions = 64
    described["holdfast.tasks.payment"].partitions = 64
    assert topics.check_topics(topics.required_topics(8, ["payment"]), described) == []


@given(st.text(max_size=300))
def test_a_queue_is_a_legal_part_of_a_topic_name_or_refused(queue: str) -> None:
    try:
        topics.check_queue(queue)
    except Refused as refused:
        reason = refused.reason
    else:
        reason = ""
    legal = queue.isascii() and all(c.isalnum() or c in "._-" for c in queue) and 0 < len(queue) <= 234
    assert reason == ("" if legal else "name_invalid")
