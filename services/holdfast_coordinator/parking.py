"""A bad input never stops the line, and never overtakes.

An instance whose decision raised waits in `parked_inputs` with everything that comes for it, in order. Its first
input is tried again from there, a few times with growing pauses; then the instance is quarantined: rows kept,
copies in the DLQ, timers and leases frozen. Many instances at once are not bad inputs but a bad deploy, so the
coordinator stops.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast.contracts.frame import FramedMessage
from holdfast.core.errors import Corrupt, HoldfastError
from holdfast.core.ids import InstanceId
from holdfast.kit.logging import Logger
from holdfast.log.protocol import Record
from holdfast.store.errors import Unstorable
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.rows import ParkedInput, ParkedTry
from holdfast_coordinator import metrics
from holdfast_coordinator.batch import Batch
from holdfast_coordinator.intake import dead_letter
from holdfast_coordinator.preparing import Preparer
from holdfast_coordinator.settings import CoordinatorSettings

_copies_max = 500  # of one instance in the DLQ, in one commit; all rows stay in the database

CommitBatch = Callable[[Batch], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tools:
    """What a retry needs of the pipeline, under one assignment."""

    preparer: Preparer
    store: CoordinatorStore
    commit: CommitBatch
    still_ours: Callable[[], bool]
    log: Logger


class BadDeploy(HoldfastError):
    """Too many instances cannot be decided: stop before all of them are parked."""


class Parking:
    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        self._parked: dict[int, set[InstanceId]] = {}
        self._look_at = float("inf")
        self._failures: deque[float] = deque()
        self._unconfirmed: dict[InstanceId, int] = {}  # parked by a batch that is not committed yet
        self.instances: frozenset[InstanceId] = frozenset()
        self.one_by_one = False
        self.first_delay_s = settings.parked_first_delay_s

    def take(self, partition: int, parked: frozenset[InstanceId]) -> None:
        self._settled(partition)
        self._parked[partition] = set(parked)
        self._changed()
        if parked:
            self._look_at = 0.0

    def drop(self, partition: int) -> None:
        self._settled(partition)
        self._parked.pop(partition, None)
        self._changed()

    def _settled(self, partition: int) -> None:
        """Whatever a batch of ours wanted to park there, the claim knows better."""
        self._unconfirmed = {instance: home for instance, home in self._unconfirmed.items() if home != partition}

    def add(self, batch: Batch, failed: dict[InstanceId, str], now_s: float) -> None:
        if not failed:
            return
        partitions = {row.instance_id: row.partition for row in batch.parked}
        for instance in failed:
            if instance in partitions:
                self._parked.setdefault(partitions[instance], set()).add(instance)
                self._unconfirmed[instance] = partitions[instance]
        self._changed()
        self._look_at = min(self._look_at, now_s + 0.1)
        if batch.first_try_s:
            self._check_deploy(failed, now_s)

    def committed(self, batch: Batch) -> None:
        for instance in batch.parked_now:
            self._unconfirmed.pop(instance, None)

    async def resync(self, store: CoordinatorStore) -> None:
        """After a failed commit: what it would have parked is parked only if it took effect after all. Believed to be
        parked without a row, an instance would wait for ever; believed not to be, its next input would overtake."""
        for instance, partition in list(self._unconfirmed.items()):
            parked = bool(await store.parked_inputs(instance, 1))
            if self._unconfirmed.pop(instance, None) is not None and not parked:
                self._parked.get(partition, set()).discard(instance)
        self._changed()

    def due(self, now_s: float) -> bool:
        return bool(self.instances) and now_s >= self._look_at

    def looked(self, now_s: float) -> None:
        """Retries are rows with a time of their own; a look per half second finds them."""
        self._look_at = now_s + 0.5 if self.instances else float("inf")

    def _changed(self) -> None:
        self.instances = frozenset().union(*self._parked.values())
        metrics.parked.set(len(self.instances))

    async def retry(self, instance: InstanceId, tools: "Tools") -> None:
        """Decide the parked inputs of an instance in order, each in a transaction of its own, until one fails."""
        while True:
            rows = await tools.store.parked_inputs(instance, 1)
            if not rows:
                for parked in self._parked.values():
                    parked.discard(instance)
                self._changed()
                return
            error = await _try(rows[0], tools)
            if error is not None:
                await self._failed(rows[0], error, tools)
                return

    async def _failed(self, row: ParkedInput, error: str, tools: "Tools") -> None:
        tries = await tools.store.parked_state(row.instance_id) + 1
        batch = tools.preparer.empty(row.partition)
        quarantine = tries >= self._settings.parked_tries_max
        wait = timedelta(seconds=self._settings.parked_first_delay_s * 2 ** (tries - 1))
        next_try_at = None if quarantine else batch.now + wait
        batch.tries = [ParkedTry(row.instance_id, tries, next_try_at, error[:2_000], quarantine)]
        if quarantine:
            for parked in await tools.store.parked_inputs(row.instance_id, _copies_max):
                batch.frames[row.partition].append(_copy_for_dlq(parked, batch, error, tools.preparer.service))
            tools.log.error("instance_quarantined", instance=row.instance, reason=error)
        else:
            tools.log.warning("parked_input_failed", instance=row.instance, tries=tries, reason=error)
        await tools.commit(batch)

    def _check_deploy(self, failed: dict[InstanceId, str], now_s: float) -> None:
        self._failures.extend([now_s] * len(failed))
        while self._failures and self._failures[0] < now_s - 60:
            self._failures.popleft()
        if len(self._failures) > self._settings.poisoned_per_minute_max:
            example = next(iter(failed.values()), "")
            raise BadDeploy(
                f"{len(self._failures)} instances could not be decided within a minute, e.g. {example}: this looks "
                "like a bad deploy, not like bad inputs. Nothing is lost; start a version that can decide them."
            )


async def _try(row: ParkedInput, tools: Tools) -> str | None:
    """What is wrong with the input, or None if it is decided and committed."""
    batch = None
    try:
        batch, inputs = tools.preparer.read_parked([row], 0)
        known, broken = await tools.preparer.load(
            batch, inputs, skip=frozenset(), recent={}, committing=_nobody, still_ours=tools.still_ours
        )
        failed = tools.preparer.decide(batch, inputs, known, frozenset(), broken)
        if row.instance_id in failed:
            return failed[row.instance_id]
        await tools.commit(batch)
    except (Corrupt, Unstorable) as problem:
        if batch is not None:
            tools.preparer.forget(batch, row.instance_id)
        return f"{type(problem).__name__}: {problem}"
    return None


def _copy_for_dlq(parked: ParkedInput, batch: Batch, error: str, service: str) -> FramedMessage:
    record = Record(parked.topic, parked.partition, parked.offset, parked.key, parked.value, parked.headers, 0)
    return dead_letter(record, batch.now, "quarantined", error, service)


async def _nobody(_: frozenset[InstanceId]) -> None:
    """Nothing is under way while parked inputs are tried."""
