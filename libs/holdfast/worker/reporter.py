"""Reports to the coordinator: sent in batches, again and again until Kafka has acknowledged them.

The producer never gives up by itself. What it does report as failed (it broke, or the broker will not take the message)
is sent again here, with a new producer if need be: a completion is lost only if the process ends first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from holdfast.contracts.messages import encode_report
from holdfast.contracts.topics import REPORTS
from holdfast.core.inputs import Report, TaskReportedCompleted, TaskReportedFailed, TaskReportedStarted
from holdfast.log.protocol import Delivery, DeliveryError, Message, Producer
from holdfast.worker.attempt import Attempt
from holdfast.worker.outcome import Failed, refusal

_log = logging.getLogger(__name__)

resend_delay_s = 0.5
_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})


Sent: TypeAlias = tuple[Report, Attempt]
_new = tuple.__new__  # What a NamedTuple does, without its Python-level constructor.


class Reporter:
    """Lives on the event loop. `acknowledged` is called once for every report that Kafka has."""

    def __init__(self, open_producer: Callable[[], Producer], acknowledged: Callable[[Report, Attempt], None]) -> None:
        self._open = open_producer
        self._producer: Producer | None = None
        self._acknowledged = acknowledged
        self._loop = asyncio.get_running_loop()
        self._batch: list[Sent] = []
        self._scheduled = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.unacknowledged = 0
        self.acknowledged_at = self._loop.time()
        self.resent = 0
        self.producers = 0
        self.refused: DeliveryError | None = None  # the last error that only a person can mend

    def send(self, report: Report, attempt: Attempt) -> None:
        if not self.unacknowledged:
            self._idle.clear()
            self.acknowledged_at = self._loop.time()
        self.unacknowledged += 1
        self._batch.append((report, attempt))
        if not self._scheduled:
            # Everything that is said in one turn of the loop goes out together.
            self._scheduled = True
            self._loop.call_soon(self._flush)

    @property
    def stalled_s(self) -> float:
        """For how long Kafka has acknowledged nothing although something is waiting."""
        return self._loop.time() - self.acknowledged_at if self.unacknowledged else 0.0

    async def drained(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged; returns how much is not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            _log.error("%s reports were not acknowledged in %s s and are given up", self.unacknowledged, timeout_s)
        return self.unacknowledged

    async def close(self) -> None:
        self._closed = True
        if self._producer is not None:
            await self._producer.close(timeout_s=1.0)

    def renew_if_broken(self) -> None:
        """A producer that broke while nothing was being sent; what it still held comes back as failed."""
        if self._producer is not None and self._producer.fatal is not None:
            self._drop_producer()

    def _flush(self) -> None:
        self._scheduled = False
        batch, self._batch = self._batch, []
        if self._closed or not batch:
            return
        self.renew_if_broken()
        if self._producer is None:
            self._producer = self._open()
            self.producers += 1
        messages = [
            _new(Message, (REPORTS, report.instance.encode(), _encode(report), (), None)) for report, _ in batch
        ]
        self._producer.publish(messages, partial(self._delivered, batch))

    def _delivered(self, batch: list[Sent], deliveries: list[Delivery]) -> None:
        failed: list[tuple[Sent, DeliveryError]] = []
        for sent, delivery in zip(batch, deliveries, strict=True):
            if delivery[3] is None:
                self._acknowledged(*sent)
            else:
                failed.append((sent, delivery[3]))
        if len(failed) < len(batch):
            self.acknowledged_at = self._loop.time()
            self.refused = None
        self.unacknowledged -= len(batch) - len(failed)
        if failed and not self._closed:
            self._send_again(failed)
        if not self.unacknowledged:
            self._idle.set()

    def _send_again(self, failed: list[tuple[Sent, DeliveryError]]) -> None:
        again: list[Sent] = []
        for sent, error in failed:
            if error.permanent and self.refused != error:
                self.refused = error
                _log.error("kafka does not take reports (%s); trying on", error.message)
            report, attempt = sent
            if error.name in _TOO_LARGE and isinstance(report, TaskReportedCompleted):
                again.append((_too_large(report, error), attempt))
            else:
                again.append(sent)
        self.resent += len(again)
        if any(error.fatal for _, error in failed):
            self._drop_producer()
        if again:
            self._loop.call_later(resend_delay_s, self._requeue, again)

    def _requeue(self, again: list[Sent]) -> None:
        # Not a `started` whose attempt has ended since: its outcome says more, and this would come after it.
        needed = [sent for sent in again if not (sent[1].ended and isinstance(sent[0], TaskReportedStarted))]
        self.unacknowledged -= len(again) - len(needed)
        if not self.unacknowledged:
            self._idle.set()
        self._batch[:0] = needed
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _drop_producer(self) -> None:
        broken, self._producer = self._producer, None
        if broken is not None:
            _log.warning("the producer of reports broke; making a new one")
            broken.purge()
            self._closing = self._loop.create_task(broken.close(timeout_s=1.0))


def _encode(report: Report) -> bytes:
    try:
        return encode_report(report)
    except Exception as problem:
        # A bug, but one attempt's: the others in the batch go out, and this one ends too.
        _log.exception("a report cannot be encoded: %r", report)
        return encode_report(_refused(report, refusal("report_invalid", f"the worker could not encode it: {problem}")))


def _refused(report: Report, failed: Failed) -> TaskReportedFailed:
    return TaskReportedFailed(
        report.instance, report.origin, report.path, report.execution, report.fence, report.holder, failed.error, False
    )


def _too_large(report: TaskReportedCompleted, error: DeliveryError) -> TaskReportedFailed:
    """This broker takes less than our limit: the output will never get through, but the attempt must end."""
    text = f"the result has {len(report.output)} bytes and Kafka refuses it: {error.message}"
    return _refused(report, refusal("output_invalid", text))
