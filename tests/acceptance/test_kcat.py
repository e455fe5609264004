"""Anyone can start a workflow with a plain Kafka client, and anyone can read what happened with a plain library."""

import shutil
import subprocess
from collections.abc import Callable

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat

from tests.support.invariants import check
from tests.support.system import System, order
from tests.support.world import read_world

pytestmark = pytest.mark.slow


def test_kcat_starts_a_workflow_and_cloudevents_reads_what_happened(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    system.define({**order(name, name), "workflow": "order-fulfillment"})
    system.worker(name, "w1")
    key = f"{name}/order-fulfillment/order-123"
    # Section 9, but for the namespace and in one line: kcat takes every line for a message.
    text = (
        '{"specversion":"1.0","id":"c-1","source":"/shop","type":"io.holdfast.command.start.v1",'
        f'"subject":"{key}","data":{{"input":{{"amount":99}}}}}}'
    )
    _publish(system, key, text)

    assert system.command(key, "c-1")["outcome"] == "accepted"
    assert system.finished(key).state == "COMPLETED"

    world = read_world(system, name)
    evidence = check(world)
    parsed = [_parse(record) for record in system.topics.read("holdfast.events")]
    mine = [event for event in parsed if event.get_subject() == key and event.get_extension("sequence")]
    assert [int(event.get_extension("sequence")) for event in mine] == list(range(1, len(mine) + 1))
    assert len(mine) == evidence["published_in_order"]["sequences"]
    assert mine[-1].get_type() == "io.holdfast.workflow.completed.v1"
    assert mine[0].get_data()["input"] == {"amount": 99}
    outcomes = [event for event in parsed if event.get_type() == "io.holdfast.command.accepted.v1"]
    assert any(event.get_data()["command"]["id"] == "c-1" for event in outcomes), "the sender is told"


def _publish(system: System, key: str, text: str) -> None:
    """With kcat where it is installed; else the very same bytes with another plain client."""
    if shutil.which("kcat"):
        command = ["kcat", "-P", "-b", system.local.info.kafka, "-t", "holdfast.commands", "-k", key]
        subprocess.run(command, input=text + "\n", text=True, check=True, timeout=30)
    else:
        system.topics.send("holdfast.commands", key, text)


def _parse(record):  # type: ignore[no-untyped-def]
    return from_kafka(KafkaMessage(dict(record.headers), record.key, record.value), JSONFormat())
