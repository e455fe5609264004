"""Names for things, as types, so that a run id is never passed where a task path belongs."""

from typing import NewType
from uuid import UUID, uuid5

InstanceKey = NewType("InstanceKey", str)
"""`namespace/workflow/run_id`: the Kafka key on every topic except tasks."""

InstanceId = NewType("InstanceId", UUID)
"""UUIDv5 of the instance key, so that everyone can compute it before the instance exists."""

TaskPath = NewType("TaskPath", str)
"""The id of a task in its definition; later with the for_each index and the loop iteration."""

Payload = NewType("Payload", bytes)
"""UTF-8 JSON that is carried, not looked into, until an expression or an activity needs it."""

NULL = Payload(b"null")

_NAMESPACE = UUID("5b1c6f0e-0d0a-5c55-9a4d-7b0f6c3f2a11")


def instance_key(namespace: str, workflow: str, run_id: str) -> InstanceKey:
    return InstanceKey(f"{namespace}/{workflow}/{run_id}")


def instance_id(key: InstanceKey) -> InstanceId:
    return InstanceId(uuid5(_NAMESPACE, key))


def split_key(key: InstanceKey) -> tuple[str, str, str]:
    """Namespace, workflow and run id. A run id may contain slashes; the other two may not."""
    namespace, workflow, run_id = key.split("/", 2)
    return namespace, workflow, run_id


def idempotency_key(instance: InstanceId, execution: int, path: TaskPath, attempt: int) -> str:
    return f"{instance}:{execution}:{path}:{attempt}"


def effect_key(instance: InstanceId, execution: int, path: TaskPath) -> str:
    """The same for every attempt of a task: what a payment provider should get as its idempotency key."""
    return f"{instance}:{execution}:{path}"
