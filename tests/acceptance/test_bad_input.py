"""Bad input, whoever sends it: the sender sees why, nothing stops, nothing is lost."""

import json
from collections.abc import Callable

import pytest

from holdfast.client import WorkflowFailed
from holdfast.contracts.reports import encode_report
from holdfast.contracts.topics import INBOX
from holdfast.core import events as e
from holdfast.core.errors import Refused
from holdfast.core.ids import InstanceKey, Payload, TaskPath
from holdfast.core.inputs import ActorType, Origin, TaskReportedCompleted
from holdfast.log.murmur2 import partition_for
from tests.support.invariants import ALWAYS, check
from tests.support.system import System, one_task
from tests.support.topics import Found
from tests.support.world import read_world

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("topic", INBOX)
@pytest.mark.parametrize("value", [b"\xff\xfe\x00 no Avro, no JSON", b"", None])
def test_undecodable_bytes_go_to_the_dlq_as_they_are(
    system: System, name: str, topic: str, value: bytes | None
) -> None:
    sent = system.topics.send(topic, name, value, [("trace", b"\x01\x02")])
    dead = _dead(system, sent)
    assert dead.value == value
    assert dead.key == name.encode()
    assert ("trace", b"\x01\x02") in dead.headers
    assert dead.errors["reason"] == "undecodable"
    assert dead.errors["message"], "it says what is wrong"
    assert dead.errors["group"] == "holdfast.coordinator"


def test_an_unknown_command_type_is_refused(system: System, name: str) -> None:
    key = f"{name}/single/r1"
    _command(system, key, "c-1", {"x": 1}, type="io.holdfast.command.dance.v1")
    row = system.command(key, "c-1")
    assert row["outcome"] == "refused"
    assert row["reason"].startswith("unknown_command_type")
    assert _told(system, key, "c-1") == [("refused", "unknown_command_type")]
    assert system.row(key) is None


def test_an_unknown_workflow_is_refused(system: System, name: str) -> None:
    run = system.start(f"{name}/nobody-defined-this", "r1")
    with pytest.raises(Refused) as refused:
        run.accepted(30)
    assert refused.value.reason == "unknown_workflow"
    assert system.row(run.key) is None


def test_an_oversized_payload_is_refused_at_the_edge_and_from_a_plain_producer(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(one_task(name, name))
    large = "x" * (1024 * 1024 + 1)
    ends = system.topics.ends("holdfast.commands")
    with pytest.raises(Refused) as refused:
        system.start(workflow, "edge", {"text": large})
    assert refused.value.reason == "payload_too_large"
    assert system.topics.ends("holdfast.commands") == ends, "nothing was sent"

    key = f"{workflow}/raw"
    _command(system, key, "c-1", {"input": {"text": large}})
    row = system.command(key, "c-1")
    assert (row["outcome"], row["reason"].split(":")[0]) == ("refused", "payload_too_large")
    assert _told(system, key, "c-1") == [("refused", "payload_too_large")]
    assert system.row(key) is None
    _the_line_goes_on(system, name, workflow)


def test_an_input_that_does_not_fit_the_activity_is_not_retried(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(one_task(name, name, activity="shop.pack"))
    system.worker(name, "w1")
    run = system.start(workflow, "r1", {"weight": "heavy", "address": "here"})
    with pytest.raises(WorkflowFailed) as failed:
        run.result(60)
    assert failed.value.error is not None
    assert "weight" in failed.value.error.message
    (one,) = system.of(run.key, e.TaskFailed, "work")
    assert (one.attempt, one.final) == (1, True)
    assert system.ledger.lines(run.key) == [], "the activity was not even called"
    assert system.start(workflow, "r2", {"weight": 3, "address": "here"}).result(60) == {"weight": 3}
    check(read_world(system, name))


def test_a_duplicate_start_is_one_instance(system: System, name: str, stop_workers: Callable[[], None]) -> None:
    workflow = system.define(one_task(name, name))
    key = f"{workflow}/r1"
    _command(system, key, "c-1", {"input": {"amount": 1}})
    _command(system, key, "c-1", {"input": {"amount": 1}})  # the same again
    _command(system, key, "c-1", {"input": {"amount": 2}})  # the same id with other content
    _command(system, key, "c-2", {"input": {"amount": 3}})  # another start of the same run
    assert system.command(key, "c-1")["outcome"] == "accepted"
    assert system.command(key, "c-2")["outcome"] == "duplicate"
    wanted = [("accepted", ""), ("duplicate", "same_id"), ("refused", "id_reused")]
    system.eventually(lambda: _told(system, key, "c-1") == wanted, "each sender to be told")
    system.worker(name, "w1")
    assert system.finished(key).state == "COMPLETED"
    (created,) = system.of(key, e.WorkflowCreated)
    assert json.loads(created.input) == {"amount": 1}
    assert len(system.ledger.lines(key, "work", "began")) == 1
    check(read_world(system, name))


def test_nul_in_json_is_refused_wherever_it_comes_from(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(one_task(name, name))
    with pytest.raises(Refused) as refused:
        system.start(workflow, "edge", {"text": "a\0b"})
    assert refused.value.reason == "payload_invalid"

    key = f"{workflow}/raw"
    _command(system, key, "c-1", {"input": {"text": "a\0b"}})
    row = system.command(key, "c-1")
    assert (row["outcome"], row["reason"].split(":")[0]) == ("refused", "payload_invalid")
    assert "NUL" in row["reason"]

    system.worker(name, "w1")
    run = system.start(workflow, "output", {"do": {"work": {"output": {"text": "a\\0b"}}}})
    assert run.result(60) == {"text": "a\\0b"}, "a backslash and a zero are fine"
    run = system.start(workflow, "nul", {"do": {"work": {"nul": True}}})
    with pytest.raises(WorkflowFailed) as failed:
        run.result(60)
    assert failed.value.error is not None
    assert "NUL" in failed.value.error.message
    (one,) = system.of(run.key, e.TaskFailed, "work")
    assert one.final, "it would be the same again"

    origin = Origin(ActorType.WORKER, "somebody", "")
    forged = TaskReportedCompleted(
        InstanceKey(run.key), origin, TaskPath("work"), 1, 1, "somebody", Payload(rb'{"text":"\u0000"}')
    )
    sent = system.topics.send("holdfast.reports", run.key, encode_report(forged))
    assert "NUL" in _dead(system, sent).errors["message"]
    check(read_world(system, name), ALWAYS)


def test_a_message_with_a_strange_key_is_forwarded_and_decided_once(
    system: System, name: str, stop_workers: Callable[[], None]
) -> None:
    workflow = system.define(one_task(name, name))
    key = f"{workflow}/r1"
    home = partition_for(key.encode(), 4)
    sent = _command(system, key, "c-1", {"input": {"amount": 1}}, kafka_key="strange", partition=(home + 1) % 4)
    assert system.command(key, "c-1")["outcome"] == "accepted"
    system.worker(name, "w1")
    assert system.finished(key).state == "COMPLETED"
    (forwarded,) = [one for one in system.topics.read("holdfast.commands") if one.key == key.encode()]
    assert forwarded.partition == home
    assert forwarded.value == sent.value
    assert forwarded.header("hf_forwarded") == "1"
    assert _told(system, key, "c-1") == [("accepted", "")]
    assert len(system.of(key, e.WorkflowCreated)) == 1
    check(read_world(system, name))


def test_a_definition_with_five_mistakes_gets_all_five(system: System, name: str) -> None:
    body = {
        "namespace": name,
        "workflow": "wrong",
        "version": 1,
        "tasks": {
            "a": {"activity": "shop.do", "after": ["b"], "tiemout": "PT1S"},  # 1: a field that is none
            "b": {"activity": "shop.do", "after": ["a"]},  # 2: a cycle
            "c": {"activity": "shop.do", "after": ["nobody"]},  # 3: no such task
            "d": {"activity": "shop.do", "compensate": "nothing"},  # 4: no such compensation
            "f": {"activity": "shop.do", "when": "input.amount >"},  # 5: no expression
        },
    }
    file = system.local.folder / f"{name}.json"
    file.write_text(json.dumps(body))
    done = system.cli("define", str(file), "--json")
    assert done.returncode == 3, done.stderr
    problems = json.loads(done.stdout)["problems"][str(file)]
    assert len(problems) == 5, problems
    for word in ("tiemout", "circle", "nobody", "nothing", "when"):
        assert any(word in one["path"] + one["problem"] for one in problems), f"{word}: {problems}"
    assert all(one["path"] for one in problems), "each with its path"
    assert system.sql.one("SELECT count(*) FROM holdfast.workflow_definitions WHERE namespace = $1", name) == 0


# --- a plain producer, and what its owner sees


def _command(
    system: System,
    key: str,
    id: str,
    data: object,
    *,
    type: str = "io.holdfast.command.start.v1",
    kafka_key: str | None = None,
    partition: int = -1,
) -> Found:
    body = {"specversion": "1.0", "id": id, "source": "/shop", "type": type, "subject": key, "data": data}
    where = partition_for(key.encode(), 4) if partition < 0 else partition
    return system.topics.send("holdfast.commands", kafka_key or key, json.dumps(body), partition=where)


def _told(system: System, key: str, id: str) -> list[tuple[str, str]]:
    """(outcome, reason) of every answer to a command on holdfast.events, in order."""
    system.quiet()
    found = []
    for record in system.topics.read("holdfast.events"):
        if record.key == key.encode() and (record.header("ce_type") or "").startswith("io.holdfast.command."):
            body = json.loads(record.value or b"{}")
            if body["command"]["id"] == id:
                found.append((body["outcome"], body["reason"]))
    return found


def _dead(system: System, sent: Found) -> Found:
    where = {"topic": sent.topic, "partition": str(sent.partition), "offset": str(sent.offset)}
    (dead,) = system.eventually(lambda: system.dead_letters(**where), f"{sent.place} in the DLQ")
    return dead


def _the_line_goes_on(system: System, name: str, workflow: str) -> None:
    system.worker(name, "w1")
    assert system.start(workflow, "good").result(60) == {"by": 1}
    check(read_world(system, name))
