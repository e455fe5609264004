"""Task messages that are no tasks: to `holdfast.dlq`, byte for byte, and only then past them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from holdfast.contracts.dlq import dlq_message
from holdfast.contracts.topics import queue_of_topic, worker_group
from holdfast.log.protocol import Delivery, Message, Producer, Record

_log = logging.getLogger(__name__)

retry_s = 1.0


class DeadLetters:
    def __init__(self, open_producer: Callable[[], Producer]) -> None:
        self._open = open_producer
        self._producer: Producer | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def put(self, record: Record, problem: str, settle: Callable[[], None]) -> None:
        """`settle` is called when Kafka has it. Until then the tasks behind it run, but their offsets wait."""
        group = worker_group(queue_of_topic(record.topic) or "")
        _log.error("%s-%s at %s is no task: %s", record.topic, record.partition, record.offset, problem)
        message = dlq_message(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=record.headers,
            group=group,
            reason="undecodable",
            message=problem,
            service="worker",
            time=datetime.now(UTC),
        )
        self._send(Message(*message), settle)

    async def close(self) -> None:
        self._closed = True
        if self._producer is not None:
            await self._producer.close(timeout_s=1.0)

    def _send(self, message: Message, settle: Callable[[], None]) -> None:
        if self._closed:
            return
        if self._producer is None or self._producer.fatal is not None:
            self._producer = self._open()
        self._producer.send(message, partial(self._delivered, message, settle))

    def _delivered(self, message: Message, settle: Callable[[], None], delivery: Delivery) -> None:
        error = delivery.error
        if error is None:
            settle()
        elif error.name == "MSG_SIZE_TOO_LARGE":
            _log.error(
                "%s does not take a message of %s bytes: it is dropped", message.topic, len(message.value or b"")
            )
            settle()
        else:
            _log.error("%s does not take a message (%s); trying on", message.topic, error.message)
            self._loop.call_later(retry_s, self._send, message, settle)
