"""The client: writes commands to Kafka, and reads Postgres to tell what became of them.

Postgres is opened by the first call that needs it, so that a service that only starts workflows needs Kafka alone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from holdfast.client.commands import Commands, Prepared
from holdfast.client.errors import needs_postgres
from holdfast.client.poller import Poller
from holdfast.client.reads import PostgresReads, Reads, Status
from holdfast.client.run import Run, Sent
from holdfast.contracts import topics
from holdfast.contracts.limits import check_instance_key
from holdfast.core.errors import Refused, Transient
from holdfast.core.ids import InstanceId, InstanceKey, Payload, instance_id
from holdfast.kit.settings import kafka_from_env
from holdfast.log.kafka_config import KafkaConfig
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import Message, Producer
from holdfast.store.rows import CommandKey, CommandRow


class Client:
    """`async with Client.connect() as holdfast:`. One per process is enough; it may be used by many tasks at once."""

    def __init__(
        self,
        make_producer: Callable[[], Producer],
        open_reads: Callable[[], Any] | None,
        *,
        source: str | None = None,
        ack_timeout_s: float = 30.0,
    ) -> None:
        """Mostly for tests; see `connect`. `open_reads` is a coroutine function that returns `Reads`."""
        self.commands = Commands(source or f"/holdfast/client/{socket.gethostname()}")
        self._make_producer = make_producer
        self._open_reads = open_reads
        self._ack_timeout_s = ack_timeout_s
        self._producer: Producer | None = None
        self._reads: Reads | None = None
        self._opening = asyncio.Lock()
        self._outcomes: Poller[CommandKey, CommandRow] = Poller(self._ask_outcomes)
        self._statuses: Poller[InstanceId, Status] = Poller(self._ask_statuses)
        self._outputs: Poller[InstanceId, Payload] = Poller(self._ask_outputs)

    @classmethod
    def connect(
        cls,
        kafka: str | None = None,
        postgres: str | None = None,
        *,
        kafka_options: Mapping[str, str] | None = None,
        source: str | None = None,
        ack_timeout_s: float = 30.0,
    ) -> Client:
        """Where the arguments say, else HOLDFAST_KAFKA (and HOLDFAST_KAFKA_CONFIG) and HOLDFAST_POSTGRES.

        `kafka_options` go to librdkafka as they are (TLS, SASL). `source` names the sender in the CloudEvents and in
        histories. `ack_timeout_s` is how long `start` waits for Kafka before it raises Transient.
        """
        found = kafka_from_env()
        options = dict(found.extra if kafka_options is None else kafka_options)
        config = KafkaConfig(kafka or found.bootstrap, options, "holdfast-client")
        dsn = postgres or os.environ.get("HOLDFAST_POSTGRES")
        # librdkafka gives up a little before we do, so that the error says why.
        timeout_ms = int(ack_timeout_s * 900)
        return cls(
            lambda: KafkaProducer(config, message_timeout_ms=timeout_ms),
            None if dsn is None else lambda: PostgresReads.open(dsn),
            source=source,
            ack_timeout_s=ack_timeout_s,
        )

    async def __aenter__(self) -> Self:
        self._producer = self._make_producer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for poller in (self._outcomes, self._statuses, self._outputs):
            await poller.close()
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()
        reads, self._reads = self._reads, None
        if reads is not None:
            await reads.close()

    # --- what users call

    async def start(
        self,
        workflow: str,
        *,
        run_id: str | None = None,
        input: Any = None,
        version: int | None = None,
        run_at: datetime | None = None,
        command_id: str | None = None,
    ) -> Run:
        """Start `namespace/workflow`; returns when Kafka has acknowledged. The same run id again is the same run.

        Refused before anything is sent: wrong names, an input that is not JSON or is too large. Transient: Kafka did
        not acknowledge in time; it may still get it, and starting again with the same run id does no harm.
        """
        sent = await self.send(self.commands.start(workflow, run_id, input, version, run_at, command_id))
        return Run(self, sent.instance, sent)

    def run(self, key: str) -> Run:
        """A handle on a run that exists (or will): `namespace/workflow/run_id`."""
        check_instance_key(key)
        return Run(self, InstanceKey(key))

    # --- what handles call

    async def send(self, prepared: Prepared) -> Sent:
        if self._producer is None:
            raise Refused("client_closed", "use the client inside `async with Client.connect() as holdfast:`")
        message = Message(topics.COMMANDS, *prepared.message)
        try:
            async with asyncio.timeout(self._ack_timeout_s):
                (delivery,) = await self._producer.send_all([message])
        except TimeoutError:
            raise Transient(f"Kafka did not acknowledge within {self._ack_timeout_s:g} s") from None
        if delivery.error is not None:
            if delivery.error.permanent:
                raise Refused("not_written", f"Kafka refuses {topics.COMMANDS}: {delivery.error.message}")
            raise Transient(f"Kafka did not take the command: {delivery.error.message}")
        return Sent(self, prepared.instance, prepared.key)

    async def reads(self, doing: str) -> Reads:
        if self._reads is None:
            if self._open_reads is None:
                raise needs_postgres(doing)
            async with self._opening:
                if self._reads is None:
                    self._reads = await self._open_reads()
        return self._reads

    async def outcome(self, command: CommandKey, timeout: float | None, what: str) -> CommandRow:
        await self.reads("waiting for an outcome")
        return await self._outcomes.wait(command, lambda row: True, timeout, what)

    async def status_when(
        self, instance: InstanceId, enough: Callable[[Status], bool], timeout: float | None, what: str
    ) -> Status:
        await self.reads("waiting for a run")
        return await self._statuses.wait(instance, enough, timeout, what)

    async def status(self, key: InstanceKey) -> Status:
        reads = await self.reads("asking for a status")
        found = (await reads.instances([instance_id(key)])).get(instance_id(key))
        if found is None:
            raise Refused("unknown_instance", f"{key} does not exist (yet)")
        return found

    async def output(self, instance: InstanceId) -> Payload:
        # Through a poller although it is there by now: a thousand results that come in together cost one query.
        return await self._outputs.wait(instance, lambda output: True, 30.0, f"no output of {instance}")

    async def _ask_outcomes(self, commands: list[CommandKey]) -> dict[CommandKey, CommandRow]:
        return await (await self.reads("waiting")).outcomes(commands)

    async def _ask_statuses(self, instances: list[InstanceId]) -> dict[InstanceId, Status]:
        return await (await self.reads("waiting")).instances(instances)

    async def _ask_outputs(self, instances: list[InstanceId]) -> dict[InstanceId, Payload]:
        return await (await self.reads("waiting")).outputs(instances)
