"""Everything that a namespace left behind in Postgres and on the topics, read once so that checks look at one thing."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from holdfast.client.reads import PostgresReads
from holdfast.client.verify import Difference, Verifier
from holdfast.contracts.definitions import compile_definition
from holdfast.contracts.event_codec import decode_event
from holdfast.contracts.messages import decode_cancellation, decode_report, decode_task
from holdfast.contracts.topics import CANCELLATIONS, COMMANDS, DLQ, EVENTS, REPORTS, TICKS, task_topic
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.definition import Definition
from holdfast.core.errors import Corrupt
from holdfast.core.events import Recorded
from holdfast.core.ids import InstanceKey, split_key
from holdfast.core.inputs import ActorType, Origin, Report
from holdfast.store.rows import InstanceView
from tests.support.system import System
from tests.support.topics import Found


@dataclass(frozen=True)
class Row:
    """An event as it is stored."""

    key: str
    recorded: Recorded
    type: str
    payload: str


@dataclass
class World:
    namespace: str
    faults: bool  # there were crashes or takeovers, which explain a duplicate
    instances: dict[str, InstanceView]
    definitions: dict[str, Definition]  # by instance key
    rows: dict[str, list[Row]]  # by instance key, in sequence order
    commands: list[Any]  # command_log
    parked: set[str]  # places of inputs that wait
    rejections: set[tuple[str, str, int]]  # (instance key, path, fence)
    inbox: dict[str, list[Found]]  # topic -> records of this namespace
    reports: list[tuple[Found, Report]]
    published: list[Found]  # holdfast.events
    dispatches: list[tuple[Found, Dispatch]]
    cancellations: list[tuple[Found, Cancellation]]
    dead: dict[str, Found]  # by the place of the original
    positions: dict[str, tuple[dict[int, int], dict[int, int]]]  # topic -> (decided up to, ends)
    left: dict[str, int]  # rows in the tables that must end empty
    differences: list[Difference] = field(default_factory=list)
    verified: int = 0

    def events(self, key: str) -> list[Any]:
        return [row.recorded.event for row in self.rows[key]]


def read_world(system: System, namespace: str, *, faults: bool = False) -> World:
    system.quiet()
    prefix = f"{namespace}/"
    views, differences, verified = system.sql.run(_verify(system.sql.dsn, namespace))
    keys = {view.instance_id: str(view.key) for view in views}
    topics = system.topics
    reports = [(one, report) for one in topics.read(REPORTS) if (report := _report(one)) is not None]
    definitions = _definitions(system, views)
    queues = {task.queue for definition in definitions.values() for task in definition.tasks.values() if task.queue}
    tasks = [one for queue in sorted(queues) for one in topics.read(task_topic(queue))]
    inbox = {topic: [one for one in topics.read(topic) if _of(one, prefix)] for topic in (COMMANDS, TICKS)}
    inbox[REPORTS] = [one for one, report in reports if report.instance.startswith(prefix)]
    return World(
        namespace=namespace,
        faults=faults,
        instances={str(view.key): view for view in views},
        definitions=definitions,
        rows=_rows(system, namespace, keys),
        commands=system.sql.all("SELECT * FROM holdfast.command_log WHERE starts_with(instance, $1)", prefix),
        parked=_parked(system),
        rejections={
            (keys[row["instance_id"]], row["path"], row["fence"])
            for row in system.sql.all("SELECT * FROM holdfast.report_rejections")
            if row["instance_id"] in keys
        },
        inbox=inbox,
        reports=[(one, report) for one, report in reports if report.instance.startswith(prefix)],
        published=[one for one in topics.read(EVENTS) if _of(one, prefix)],
        dispatches=[
            (one, dispatch) for one in tasks if (dispatch := decode_task(one.value)).instance.startswith(prefix)
        ],
        cancellations=[
            (one, told)
            for one in topics.read(CANCELLATIONS)
            if (told := decode_cancellation(one.value)).instance.startswith(prefix)
        ],
        dead={f"{e['topic']}/{e['partition']}/{e['offset']}": one for one in topics.read(DLQ) for e in [one.errors]},
        positions=_positions(system),
        left=_left(system, namespace),
        differences=differences,
        verified=verified,
    )


async def _verify(dsn: str, namespace: str) -> tuple[list[InstanceView], list[Difference], int]:
    reads = await PostgresReads.open(dsn)
    try:
        views: list[InstanceView] = []
        while page := await reads.list_instances(namespace=namespace, limit=500, before=views[-1] if views else None):
            views += page
        verifier = Verifier(reads, reads.definitions)
        found = [await verifier.one(view.instance_id, view.key) for view in views]
        return views, [difference for some in found for difference in some], verifier.report.instances
    finally:
        await reads.close()


def _definitions(system: System, views: list[InstanceView]) -> dict[str, Definition]:
    stored = {
        (row["namespace"], row["workflow"], row["version"]): compile_definition(json.loads(row["body"]))
        for row in system.sql.all("SELECT * FROM holdfast.workflow_definitions")
    }
    return {str(view.key): stored[(*split_key(view.key)[:2], view.version)] for view in views}


def _rows(system: System, namespace: str, keys: dict[Any, str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    statement = """SELECT e.* FROM holdfast.events e JOIN holdfast.workflow_instances i USING (instance_id)
                    WHERE i.namespace = $1 ORDER BY e.instance_id, e.sequence"""
    for row in system.sql.all(statement, namespace):
        event = decode_event(row["type"], row["schema_version"], row["payload"])
        origin = Origin(ActorType(row["actor_type"]), row["actor_id"], row["caused_by"])
        recorded = Recorded(row["sequence"], row["execution"], event, row["occurred_at"], origin)
        key = keys[row["instance_id"]]
        found[key].append(Row(key, recorded, row["type"], row["payload"]))
    return dict(found)


def _parked(system: System) -> set[str]:
    rows = system.sql.all('SELECT topic, partition, "offset" FROM holdfast.parked_inputs')
    return {f"{row['topic']}/{row['partition']}/{row['offset']}" for row in rows}


def _positions(system: System) -> dict[str, tuple[dict[int, int], dict[int, int]]]:
    rows = system.sql.all("SELECT * FROM holdfast.inbox_partitions")
    columns = {COMMANDS: "commands_next", REPORTS: "reports_next", TICKS: "ticks_next"}
    return {
        topic: ({row["partition"]: row[column] for row in rows}, system.topics.ends(topic))
        for topic, column in columns.items()
    }


def _left(system: System, namespace: str) -> dict[str, int]:
    """The outbox is everybody's; the others are counted for this namespace."""
    mine = "WHERE instance_id IN (SELECT instance_id FROM holdfast.workflow_instances WHERE namespace = $1)"
    left = {
        table: system.sql.one(f"SELECT count(*) FROM holdfast.{table} {mine}", namespace)
        for table in ("execution_leases", "timers", "parked_inputs", "parked_instances")
    }
    for table in ("outbox", "outbox_parked"):
        left[table] = system.sql.one(f"SELECT count(*) FROM holdfast.{table}")
    return left


def _report(found: Found) -> Report | None:
    try:
        return decode_report(found.value or b"", found.place)
    except Corrupt:
        return None


def _of(found: Found, prefix: str) -> bool:
    return InstanceKey((found.key or b"").decode(errors="replace")).startswith(prefix)
