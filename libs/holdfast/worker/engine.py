"""Running attempts: from a record off Kafka to a report that Kafka has acknowledged.

    begin ─▶ (claim ─▶ acknowledged) ─▶ run ─▶ finish ─▶ report ─▶ acknowledged

Each of these is a plain function on the event loop; what waits (the user's code, Kafka) calls the next one when it is
done. A record is settled, so that its offset may be committed, when any report about it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.contracts.messages import decode_task
from holdfast.core.changes import Cancellation, Dispatch
from holdfast.core.errors import Corrupt
from holdfast.core.inputs import HandBackReason, Report, TaskReportedStarted
from holdfast.log.protocol import Producer, Record
from holdfast.worker.activity import Activity, RunIn
from holdfast.worker.attempt import Attempt, AttemptKey, Stop
from holdfast.worker.calls import call, run_async
from holdfast.worker.child import ChildLogs
from holdfast.worker.grace import Grace
from holdfast.worker.offsets import Entry, Partition
from holdfast.worker.outcome import Outcome, failure
from holdfast.worker.processes import ChildRunner
from holdfast.worker.pulse import Pulse
from holdfast.worker.recall import Recall
from holdfast.worker.reporter import Reporter
from holdfast.worker.stats import Stats
from holdfast.worker.threads import ThreadPool
from holdfast.worker.words import Words

_log = logging.getLogger(__name__)

LEASE_LOST = "lease_lost"  # the reason in a cancellation that means: say nothing more
had_max = 20_000
told_max = 10_000
_commit_look_s = 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker process does at a time."""

    concurrency: int = 100
    threads: int = 100
    processes: int = 2
    start_grace_s: float = 0.2


class ThreadRunner:
    """Runs a sync activity in the pool's thread."""

    def run(self, attempt: Attempt) -> Outcome:
        assert attempt.activity is not None
        return call(attempt.activity, attempt.context(), attempt.dispatch.input)

    def close(self) -> None:
        """A thread cannot be stopped from outside."""


class Engine:
    """`dead_letter(record, reason, settle)` puts a record aside; `freed` is called when slots became free."""

    def __init__(
        self,
        activities: Mapping[str, Activity[..., Any]],
        limits: Limits,
        words: Words,
        pulse: Pulse,
        open_producer: Callable[[], Producer],
        dead_letter: Callable[[Record, str, Callable[[], None]], None],
        child_logs: ChildLogs,
    ) -> None:
        self._activities = activities
        self._words = words
        self._pulse = pulse
        self._dead_letter = dead_letter
        self._loop = asyncio.get_running_loop()
        self.reporter = Reporter(open_producer, self._acknowledged)
        self._grace = Grace(limits.start_grace_s, self._outlived_grace)
        self._threads = ThreadPool("thread", limits.threads, ThreadRunner, self._finish)
        self._processes = ThreadPool("process", limits.processes, partial(ChildRunner, child_logs), self._finish)
        self._alive: dict[AttemptKey, Attempt] = {}  # until the outcome is acknowledged
        self._had: Recall[AttemptKey, bool] = Recall(had_max)
        self._told: Recall[AttemptKey, Cancellation] = Recall(told_max)
        self._claims: list[Attempt] = []  # acknowledged, and waiting for their offset to be committed
        self._freed_scheduled = False
        self.freed: Callable[[], None] = lambda: None
        self.concurrency = self.free = limits.concurrency
        self.draining = False
        self.closed = False
        self.stats = Stats()

    # In: what Kafka brings.

    def begin(self, partition: Partition, record: Record) -> None:
        """Take one record; it holds a slot until it has ended."""
        try:
            dispatch = decode_task(record[4] or b"")
        except Corrupt as problem:
            self._put_aside(partition, record, str(problem))
            return
        attempt = Attempt(partition, record[2], dispatch, self._pulse.progress)
        partition.entries.append(attempt)
        key = attempt.key
        first = self._alive.get(key)
        if first is not None or key in self._had.items:
            self._delivered_again(attempt, first)
            return
        self._alive[key] = attempt
        self.free -= 1
        if self._told.items and (told := self._told.pop(key)) is not None and _matches(told, dispatch):
            attempt.stop, attempt.cancelled = Stop.CANCELLED, told.reason
            self._finish(attempt, None)
            return
        attempt.activity = self._activities.get(dispatch.activity)
        if attempt.activity is None:
            self.stats.no_handler += 1
            self._end(attempt, self._words.handed_back(attempt, HandBackReason.NO_HANDLER))
        elif attempt.offset < partition.cautious_below:
            attempt.claimed = True
            self.reporter.send(self._words.started(attempt), attempt)
        else:
            self._run(attempt)

    def _put_aside(self, partition: Partition, record: Record, reason: str) -> None:
        entry = Entry(partition, record.offset)
        partition.entries.append(entry)
        self.stats.malformed += 1
        self._dead_letter(record, reason, lambda: partition.settle(entry))

    def _delivered_again(self, attempt: Attempt, first: Attempt | None) -> None:
        """Never run twice here. Its offset may pass as soon as the first one's may."""
        self.stats.delivered_again += 1
        if first is None or first.settled:
            attempt.partition.settle(attempt)
        elif first.followers is None:
            first.followers = [attempt]
        else:
            first.followers.append(attempt)

    # Running.

    def _run(self, attempt: Attempt) -> None:
        attempt.begun_at = self._loop.time()
        if not attempt.claimed:
            self._grace.add(attempt)
        self._pulse.begun(attempt)
        activity = attempt.activity
        assert activity is not None
        if activity.is_async:
            attempt.task = self._loop.create_task(run_async(attempt, activity, self._finish))
        elif activity.run_in is RunIn.THREAD:
            self._threads.submit(attempt)
        elif activity.run_in is RunIn.PROCESS:
            self._processes.submit(attempt)
        else:
            attempt.entered = True
            self._finish(attempt, call(activity, attempt.context(), attempt.dispatch.input))

    def _outlived_grace(self, attempt: Attempt) -> None:
        if attempt.stop is not Stop.LEASE_LOST:
            self.reporter.send(self._words.started(attempt), attempt)

    def _finish(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """The user's code has ended (or, without an outcome, was never called)."""
        if attempt.ended or self.closed:
            return  # Given up in a drain; its thread came home late.
        try:
            report = self._words.ended(attempt, outcome)
        except Exception as problem:
            report = self._words.ended(attempt, failure(problem))
        self.stats.ended(attempt, outcome, self._loop.time())
        self._end(attempt, report)

    def _end(self, attempt: Attempt, report: Report | None) -> None:
        attempt.ended = True
        attempt.task = None
        self.free += 1
        if not self._freed_scheduled:
            self._freed_scheduled = True
            self._loop.call_soon(self._tell_freed)
        if report is not None:
            self.reporter.send(report, attempt)
        else:
            # The coordinator itself said that this fence is void: nobody needs the record any more.
            self._forget(attempt)
            attempt.settle()

    def _tell_freed(self) -> None:
        self._freed_scheduled = False
        self.freed()

    def _forget(self, attempt: Attempt) -> None:
        self._alive.pop(attempt.key, None)
        self._had.put(attempt.key, True)

    def _acknowledged(self, report: Report, attempt: Attempt) -> None:
        if not attempt.settled:
            attempt.settle()
        if report.__class__ is not TaskReportedStarted:
            self._forget(attempt)
        elif attempt.claimed and not attempt.ended and attempt.begun_at < 0:
            if not self._claims:
                self._loop.call_later(_commit_look_s, self._run_committed)
            self._claims.append(attempt)

    def _run_committed(self) -> None:
        """A claim counts once its offset is committed. One that ran before and killed its process would be delivered
        again after every restart, long after its attempts are used up, and take the tasks beside it down each time."""
        claims, self._claims = self._claims, []
        for attempt in claims:
            if attempt.ended or self.closed:
                continue  # Stopped while it waited.
            if attempt.partition.committed > attempt.offset or attempt.partition.lost:
                self._run(attempt)
            else:
                self._claims.append(attempt)
        if self._claims:
            self._loop.call_later(_commit_look_s, self._run_committed)

    # Stopping.

    def cancel(self, told: Cancellation) -> None:
        if told.holder is not None and told.holder != self._words.holder:
            return  # Meant for another process that had this dispatch.
        key = (told.instance, told.fence)
        attempt = self._alive.get(key)
        if attempt is None:
            if key not in self._had:
                self._told.put(key, told)
        elif _matches(told, attempt.dispatch):
            lost = told.holder is not None and told.reason == LEASE_LOST
            self._stop(attempt, Stop.LEASE_LOST if lost else Stop.CANCELLED, told.reason)

    def _stop(self, attempt: Attempt, stop: Stop, reason: str) -> None:
        if attempt.ended or (attempt.stop is not None and stop is not Stop.LEASE_LOST):
            return
        again = attempt.stop is not None  # A lost lease also silences one that was told to stop before.
        attempt.stop = stop
        attempt.cancelled = reason
        self.stats.stopped(stop)
        if attempt.begun_at < 0:
            self._finish(attempt, None)  # Its claim is not acknowledged yet: it never runs.
        elif again:
            return
        elif attempt.task is not None:
            if attempt.entered:
                attempt.task.cancel()
        elif (child := attempt.child) is not None:
            child.cancel(attempt, reason)

    @property
    def running(self) -> int:
        return sum(not attempt.ended for attempt in self._alive.values())

    def stop_all(self, reason: str) -> None:
        for attempt in list(self._alive.values()):
            self._stop(attempt, Stop.DRAINING, reason)

    def give_up(self) -> None:
        """Hand back what did not stop when it was asked to: threads, and coroutines that swallow their cancellation."""
        for attempt in list(self._alive.values()):
            if not attempt.ended:
                _log.warning("%s did not stop in time and is handed back", attempt.dispatch.activity)
                attempt.stop = attempt.stop or Stop.DRAINING
                self._finish(attempt, None)

    async def close(self) -> None:
        self.closed = True
        self._grace.close()
        self._threads.close()
        self._processes.close()
        await self.reporter.close()


def _matches(told: Cancellation, dispatch: Dispatch) -> bool:
    return told.execution == dispatch.execution and told.path == dispatch.path
