"""Every topic: its name, how many partitions, which settings. The one place; `holdfast topics` makes and checks them.

The three inbox topics share one partition count, because a partition number means the same instances on each of them.
It is fixed at creation: changing it would move instances away from the offsets that Postgres remembers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.contracts.limits import name_bytes_max, payload_bytes_max
from holdfast.core.errors import Refused

COMMANDS = "holdfast.commands"
REPORTS = "holdfast.reports"
TICKS = "holdfast.ticks"
CANCELLATIONS = "holdfast.cancellations"
EVENTS = "holdfast.events"
DLQ = "holdfast.dlq"
INBOX = (COMMANDS, REPORTS, TICKS)

COORDINATOR_GROUP = "holdfast.coordinator"

partitions_default = 8
inbox_retention_ms_min = 7 * 86_400_000

_TASKS_PREFIX = "holdfast.tasks."
_TOPIC_NAME_MAX = 249  # Kafka's own limit
_QUEUE_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

# A payload at its limit, with the record, headers and another payload (an event may hold an output and an error).
message_bytes_max = 2 * payload_bytes_max + 64 * 1024


def task_topic(queue: str) -> str:
    return _TASKS_PREFIX + queue


def queue_of_topic(topic: str) -> str | None:
    """The queue whose tasks are on the topic; None where it is no task topic."""
    return topic.removeprefix(_TASKS_PREFIX) if topic.startswith(_TASKS_PREFIX) else None


def worker_group(queue: str) -> str:
    """Fixed, because recovery tells a lost dispatch from a backlog by this group's committed offset."""
    return f"holdfast.worker.{queue}"


def check_queue(queue: str, what: str = "queue") -> str:
    """A queue is part of a topic's name, so Kafka's rules for those hold."""
    if not queue or not _QUEUE_CHARS.issuperset(queue):
        raise Refused("name_invalid", f"{what} may have letters, digits, '.', '_' and '-' only: {queue[:80]!r}")
    if len(task_topic(queue)) > min(_TOPIC_NAME_MAX, name_bytes_max):
        raise Refused("name_invalid", f"{what} is too long for a topic name: {len(queue)} characters")
    return queue


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic must be. `holdfast.log` has the same with the replication factor, which is the cluster's matter."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    exact_partitions: bool = False  # inbox: also more partitions than asked for are wrong


class Described(Protocol):
    """A topic as Kafka describes it."""

    @property
    def partitions(self) -> int: ...

    @property
    def configs(self) -> Mapping[str, str]: ...


def required_topics(partitions: int = partitions_default, queues: Iterable[str] = ()) -> list[TopicSpec]:
    common = {"cleanup.policy": "delete", "max.message.bytes": str(message_bytes_max)}
    inbox = common | {"retention.ms": str(2 * inbox_retention_ms_min), "retention.bytes": "-1"}
    # Records of a task topic stay until they are consumed; recovery deletes below the committed offset.
    tasks = common | {"retention.ms": "-1", "retention.bytes": "-1"}
    day_ms = 86_400_000
    return [
        *(TopicSpec(name, partitions, inbox, exact_partitions=True) for name in INBOX),
        # A worker that was away for an hour has lost its leases anyway.
        TopicSpec(CANCELLATIONS, 1, common | {"retention.ms": str(day_ms // 24)}),
        TopicSpec(EVENTS, partitions, common | {"retention.ms": str(7 * day_ms)}),
        TopicSpec(DLQ, 1, common | {"retention.ms": str(30 * day_ms)}),
        *(TopicSpec(task_topic(queue), partitions, tasks) for queue in sorted(set(queues))),
    ]


def check_topics(required: Iterable[TopicSpec], described: Mapping[str, Described]) -> list[str]:
    """What is wrong with the topics as they are, each problem with what to do; [] when all is well."""
    problems: list[str] = []
    for spec in required:
        found = described.get(spec.name)
        if found is None:
            problems.append(f"{spec.name}: does not exist; run `holdfast topics create`")
            continue
        if found.partitions < spec.partitions or (spec.exact_partitions and found.partitions != spec.partitions):
            wanted = f"{spec.partitions}" if spec.exact_partitions else f"at least {spec.partitions}"
            problems.append(f"{spec.name}: has {found.partitions} partitions, must have {wanted}")
        problems.extend(f"{spec.name}: {problem}" for problem in _config_problems(spec, found.configs))
    return problems


def _config_problems(spec: TopicSpec, configs: Mapping[str, str]) -> list[str]:
    problems = []
    if "compact" in configs.get("cleanup.policy", "delete"):
        problems.append("cleanup.policy must be delete: compaction would drop all but the last message of an instance")
    size = _number(configs, "max.message.bytes")
    if size is not None and size < message_bytes_max:
        problems.append(f"max.message.bytes is {size}, must be at least {message_bytes_max}")
    problems.extend(_retention_problems(spec, configs))
    return problems


def _retention_problems(spec: TopicSpec, configs: Mapping[str, str]) -> list[str]:
    problems = []
    kept_ms = _number(configs, "retention.ms")
    if spec.name in INBOX and kept_ms is not None and 0 <= kept_ms < inbox_retention_ms_min:
        problems.append(f"retention.ms is {kept_ms}, must be at least {inbox_retention_ms_min} (7 days) or -1")
    if spec.name.startswith(_TASKS_PREFIX) and kept_ms is not None and kept_ms >= 0:
        problems.append(f"retention.ms is {kept_ms}, must be -1: a task must stay until a worker has taken it")
    kept_bytes = _number(configs, "retention.bytes")
    if spec.configs.get("retention.bytes") == "-1" and kept_bytes is not None and kept_bytes >= 0:
        problems.append(f"retention.bytes is {kept_bytes}, must be -1: size must not delete what nobody has read")
    return problems


def _number(configs: Mapping[str, str], name: str) -> int | None:
    try:
        return int(configs[name])
    except (KeyError, ValueError):
        return None
