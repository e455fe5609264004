"""Commands as the client makes them: checked at the edge and turned into CloudEvents, ready for Kafka."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.client import payloads
from holdfast.contracts.cloudevents_in import CANCEL, RESUME, START
from holdfast.contracts.commands import CommandMessage, cancel_data, encode_command, resume_data, start_data
from holdfast.contracts.limits import check_instance_key, check_name, check_text
from holdfast.core.errors import Refused
from holdfast.core.ids import InstanceKey, instance_id, instance_key
from holdfast.store.rows import CommandKey

_REASON_BYTES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command that passed every check, and the key under which its outcome is recorded."""

    instance: InstanceKey
    key: CommandKey
    message: CommandMessage


@dataclass(frozen=True, slots=True)
class Commands:
    """Makes commands in one sender's name. `source` and the command's id together make a command idempotent."""

    source: str

    def start(
        self,
        workflow: str,
        run_id: str | None,
        input: Any,
        version: int | None,
        run_at: datetime | None,
        id: str | None,
    ) -> Prepared:
        namespace, _, name = workflow.partition("/")
        if not name or "/" in name:
            raise Refused("name_invalid", f"a workflow is named namespace/workflow, not {workflow[:80]!r}")
        check_name(namespace, "namespace")
        check_name(name, "workflow")
        key = instance_key(namespace, name, _new_id() if run_id is None else check_text(run_id, "run id"))
        if version is not None and not 1 <= version < 2**31:
            raise Refused("version_invalid", f"versions begin at 1, not {version}")
        if run_at is not None and run_at.tzinfo is None:
            raise Refused("run_at_invalid", "run_at needs a time zone: datetime.now(UTC) + timedelta(hours=1)")
        return self._prepare(key, START, start_data(payloads.encode(input), version=version, run_at=run_at), id)

    def cancel(self, key: InstanceKey, reason: str, compensate: bool, force: bool, id: str | None) -> Prepared:
        _check_reason(reason)
        return self._prepare(key, CANCEL, cancel_data(reason=reason, compensate=compensate, force=force), id)

    def resume(self, key: InstanceKey, reason: str, id: str | None) -> Prepared:
        _check_reason(reason)
        return self._prepare(key, RESUME, resume_data(reason=reason), id)

    def _prepare(self, key: InstanceKey, type: str, data: bytes, id: str | None) -> Prepared:
        check_instance_key(key)
        command_id = _new_id() if id is None else id
        message = encode_command(key, type, data, source=self.source, id=command_id, time=datetime.now(UTC))
        return Prepared(key, CommandKey(instance_id(key), self.source, command_id), message)


def _new_id() -> str:
    return str(uuid.uuid4())


def _check_reason(reason: str) -> None:
    if reason:
        check_text(reason, "reason", bytes_max=_REASON_BYTES_MAX)
