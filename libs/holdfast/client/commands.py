"""Commands as the client makes them: checked, turned into CloudEvents, and written to Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.client import payloads
from holdfast.contracts.limits import check_instance_key, check_name, check_text
from holdfast.core.errors import Refused
from holdfast.core.ids import InstanceKey, instance_id, instance_key
from holdfast.core.inputs import ActorType, CancelWorkflow, Command, Origin, ResumeWorkflow, StartWorkflow
from holdfast.store.rows import CommandKey

_REASON_BYTES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command that passed every check at the edge, and the key under which its outcome is recorded."""

    command: Command
    key: CommandKey


@dataclass(frozen=True, slots=True)
class Commands:
    """Makes commands in one sender's name. `source` and the command's id together make it idempotent."""

    source: str
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())

    def start(
        self, workflow: str, run_id: str | None, input: Any, version: int | None, run_at: datetime | None, id: str | None
    ) -> Prepared:
        namespace, _, name = workflow.partition("/")
        if not name or "/" in name:
            raise Refused("name_invalid", f"the workflow is named namespace/workflow, not {workflow[:80]!r}")
        check_name(namespace, "namespace")
        check_name(name, "workflow")
        key = instance_key(namespace, name, self.new_id() if run_id is None else check_text(run_id, "run id"))
        if version is not None and version < 1:
            raise Refused("version_invalid", f"versions begin at 1, not {version}")
        if run_at is not None and run_at.tzinfo is None:
            raise Refused("run_at_invalid", "run_at needs a time zone: datetime.now(UTC) + timedelta(hours=1)")
        payload = payloads.encode(input)
        return self._prepare(key, id, lambda origin: StartWorkflow(key, origin, payload, version, run_at))

    def cancel(self, key: InstanceKey, reason: str, compensate: bool, force: bool, id: str | None) -> Prepared:
        _check_reason(reason)
        return self._prepare(key, id, lambda origin: CancelWorkflow(key, origin, reason, compensate, force))

    def resume(self, key: InstanceKey, reason: str, id: str | None) -> Prepared:
        _check_reason(reason)
        return self._prepare(key, id, lambda origin: ResumeWorkflow(key, origin, reason))

    def _prepare(self, key: InstanceKey, id: str | None, make: Callable[[Origin], Command]) -> Prepared:
        check_instance_key(key)
        command_id = self.new_id() if id is None else check_text(id, "command id")
        origin = Origin(ActorType.CLIENT, self.source, f"{self.source}#{command_id}")
        return Prepared(make(origin), CommandKey(instance_id(key), self.source, command_id))


def _check_reason(reason: str) -> None:
    if reason:
        check_text(reason, "reason", bytes_max=_REASON_BYTES_MAX)
