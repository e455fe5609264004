"""From a record to an input: decoded, at home on its partition, or sent where it belongs.

Three things can be wrong with a record, and each has its own way out. It does not decode: it goes to the DLQ with
its reason. It lies on a partition that is not its instance's home (a strange key): it is forwarded there through
the outbox, at most three times. It is a command that asks for something wrong: its sender is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from asyncpg.pgproto.pgproto import UUID

from holdfast.contracts.cloudevents_in import CommandHeader, RefusedCommand, decode_command
from holdfast.contracts.dlq import dlq_message
from holdfast.contracts.frame import FramedMessage
from holdfast.contracts.messages import decode_report, decode_tick
from holdfast.contracts.topics import COMMANDS, COORDINATOR_GROUP, REPORTS, TICKS
from holdfast.core.errors import Corrupt
from holdfast.core.ids import InstanceId, InstanceKey, instance_id
from holdfast.core.inputs import Input
from holdfast.log.murmur2 import partition_for
from holdfast.log.protocol import Record
from holdfast.store.rows import ParkedInput

FORWARDED = "hf_forwarded"
forwards_max = 3


@dataclass(slots=True)
class Inbound:
    """A decoded input together with the record it came in, in case it has to be parked."""

    record: Record
    instance: InstanceKey
    instance_id: InstanceId
    input: Input | None  # None: a command that is refused as it stands
    header: CommandHeader | None = None  # of a command
    refused: RefusedCommand | None = None
    parked_number: int | None = None

    @property
    def delivery(self) -> str:
        return f"{self.record.topic}/{self.record.partition}/{self.record.offset}"


@dataclass(slots=True)
class Turned:
    """A record that is not decided here: the message that takes it elsewhere."""

    record: Record
    message: FramedMessage
    reason: str


class Intake:
    def __init__(self, partitions: int, service: str) -> None:
        self._partitions = partitions
        self._service = service
        self._ids: dict[InstanceKey, InstanceId] = {}

    def decode(self, record: Record, now: datetime) -> Inbound | Turned:
        try:
            inbound = self._decode(record)
        except Corrupt as problem:
            return self._dead_letter(record, now, "undecodable", str(problem))
        home = partition_for(inbound.instance.encode(), self._partitions)
        return inbound if home == record.partition else self._forward(record, inbound.instance, now)

    def decode_parked(self, parked: ParkedInput) -> Inbound:
        """It decoded once; if it does not now (a deploy took a command type away), it stays parked."""
        record = Record(parked.topic, parked.partition, parked.offset, parked.key, parked.value, parked.headers, 0)
        inbound = self._decode(record)
        inbound.parked_number = parked.number
        return inbound

    def _decode(self, record: Record) -> Inbound:
        topic, value = record.topic, record.value
        cause = f"{topic}/{record.partition}/{record.offset}"
        if topic == COMMANDS:
            return self._decode_command(record)
        if value is None:
            raise Corrupt(f"a record of {topic} without a value")
        if topic == REPORTS:
            report = decode_report(value, cause)
            return Inbound(record, report.instance, self._id(report.instance), report)
        if topic == TICKS:
            tick = decode_tick(value, cause)
            return Inbound(record, tick.instance, self._id(tick.instance), tick)
        raise Corrupt(f"nobody reads {topic} here")

    def _decode_command(self, record: Record) -> Inbound:
        try:
            envelope = decode_command(record.headers, record.key, record.value)
        except RefusedCommand as problem:
            instance = problem.header.instance
            return Inbound(record, instance, self._id(instance), None, problem.header, problem)
        command = envelope.command
        return Inbound(record, command.instance, self._id(command.instance), command, envelope)

    def _id(self, key: InstanceKey) -> InstanceId:
        """A UUIDv5 costs a SHA-1; an instance is heard of several times."""
        found = self._ids.get(key)
        if found is None:
            if len(self._ids) > 100_000:
                self._ids.clear()
            # asyncpg's UUID is equal to the standard one and hashes in C; ids are looked up twenty times per input.
            found = self._ids[key] = InstanceId(UUID(instance_id(key).bytes))
        return found

    def _forward(self, record: Record, instance: InstanceKey, now: datetime) -> Turned:
        times = _times_forwarded(record.headers)
        if times >= forwards_max:
            text = f"{instance} is at home on another partition, and {times} forwards did not get it there"
            return self._dead_letter(record, now, "cannot_forward", text)
        kept = [header for header in record.headers if header[0] != FORWARDED]
        headers = [*kept, (FORWARDED, str(times + 1).encode())]
        return Turned(record, (record.topic, instance.encode(), record.value, headers), "forwarded")

    def _dead_letter(self, record: Record, now: datetime, reason: str, text: str) -> Turned:
        message = dead_letter(record, now, reason, text, self._service)
        return Turned(record, message, reason)


def dead_letter(record: Record, now: datetime, reason: str, text: str, service: str) -> FramedMessage:
    return dlq_message(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        group=COORDINATOR_GROUP,
        reason=reason,
        message=text,
        service=service,
        time=now,
    )


def _times_forwarded(headers: Sequence[tuple[str, bytes | None]]) -> int:
    for name, value in headers:
        if name == FORWARDED:
            try:
                return int(value or b"0")
            except ValueError:
                return forwards_max
    return 0
