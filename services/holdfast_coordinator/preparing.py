"""From records to a decided batch: decode, load what is not cached, decide in order, build the commit."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from holdfast.contracts.frame import FramedMessage, encode_frame
from holdfast.contracts.topics import COMMANDS
from holdfast.core import inputs as i
from holdfast.core.changes import Changes
from holdfast.core.definition import Publish
from holdfast.core.errors import Corrupt, Fenced
from holdfast.core.ids import InstanceId, split_key
from holdfast.core.state import State
from holdfast.kit.clock import DatabaseClock
from holdfast.log.protocol import Record
from holdfast.store.errors import Unstorable
from holdfast.store.protocol import CoordinatorStore
from holdfast.store.rows import CommandKey, CommandRow, Commit, Loaded, LoadedInstance, ParkedInput, ParkedTry
from holdfast_coordinator import metrics
from holdfast_coordinator.batch import Batch, Work
from holdfast_coordinator.cache import Entry, StateCache
from holdfast_coordinator.decider import decide_input, rebuild, snapshot_of
from holdfast_coordinator.definitions import DefinitionCache
from holdfast_coordinator.intake import Inbound, Intake, Turned
from holdfast_coordinator.outgoing import messages_of
from holdfast_coordinator.ownership import Owned

WaitForCommit = Callable[[frozenset[InstanceId]], Awaitable[None]]


class Preparer:
    def __init__(
        self,
        store: CoordinatorStore,
        cache: StateCache,
        definitions: DefinitionCache,
        intake: Intake,
        clock: DatabaseClock,
        *,
        service: str,
        snapshot_events_min: int,
    ) -> None:
        self._store = store
        self._cache = cache
        self._definitions = definitions
        self._intake = intake
        self._clock = clock
        self.service = service
        self._snapshot_events_min = snapshot_events_min
        self._number = 0

    def read(self, records: Sequence[Record], generation: int) -> tuple[Batch, list[Inbound]]:
        """Decode a batch, ticks and reports before commands; each topic's order within a partition is kept."""
        self._number += 1
        now = self._clock.now()
        batch = Batch(self._number, generation, now, {})
        first: list[Inbound] = []
        last: list[Inbound] = []
        for record in records:
            nexts = batch.nexts.setdefault(record.partition, {})
            nexts[record.topic] = record.offset + 1
            found = self._intake.decode(record, now)
            if isinstance(found, Turned):
                batch.turned.append(found)
                metrics.turned.labels(found.reason).inc()
                continue
            (last if record.topic == COMMANDS else first).append(found)
            if type(found.input) is i.TimerDue and found.input.due_at is not None:
                self._clock.at_least(found.input.due_at)
        batch.now = self._clock.now()
        batch.inputs = len(records)
        return batch, first + last

    def read_parked(self, rows: Sequence[ParkedInput], generation: int) -> tuple[Batch, list[Inbound]]:
        self._number += 1
        batch = Batch(self._number, generation, self._clock.now(), {rows[0].partition: {}})
        return batch, [self._intake.decode_parked(row) for row in rows]

    def empty(self, partition: int) -> Batch:
        """A batch that reads nothing: its commit is fenced like any other."""
        self._number += 1
        return Batch(self._number, 0, self._clock.now(), {partition: {}})

    async def load(
        self,
        batch: Batch,
        inputs: Sequence[Inbound],
        *,
        skip: frozenset[InstanceId],
        recent: dict[CommandKey, CommandRow],
        committing: WaitForCommit,
        still_ours: Callable[[], bool],
    ) -> tuple[dict[CommandKey, CommandRow], dict[InstanceId, str]]:
        """Fill `batch.work` with states. Returns the commands that are on record and the instances that are broken."""
        misses: dict[InstanceId, int] = {}
        keys: list[CommandKey] = []
        workflows: set[tuple[str, str]] = set()
        for inbound in inputs:
            instance = inbound.instance_id
            if instance in skip:
                continue
            if instance not in batch.work and instance not in misses:
                entry = self._cache.get(inbound.record.partition, instance)
                if entry is None:
                    misses[instance] = inbound.record.partition
                else:
                    entry.batch = batch.number
                    batch.work[instance] = Work(entry, inbound.record.partition)
            header = inbound.header
            if header is not None:
                keys.append(CommandKey(instance, header.source, header.id))
                if type(inbound.input) is i.StartWorkflow and inbound.input.version is None:
                    workflows.add(split_key(inbound.instance)[:2])
        if not misses and not keys:
            return {}, {}
        await committing(frozenset(misses))
        loaded, broken = await self._load(list(misses), keys, sorted(workflows))
        found = await self._entries(inputs, misses, loaded, broken)
        if not still_ours():
            # What was loaded belongs to an assignment that is gone; a stale state must never be cached.
            raise Fenced("the assignment changed while states were loaded")
        self._place(batch, misses, found)
        return loaded.commands | {key: recent[key] for key in keys if key in recent}, broken

    async def _load(
        self, misses: list[InstanceId], keys: list[CommandKey], workflows: list[tuple[str, str]]
    ) -> tuple[Loaded, dict[InstanceId, str]]:
        try:
            return await self._store.load(misses, keys, workflows), {}
        except Corrupt:
            pass
        # One history among them does not decode: find out whose, so that the others go on.
        broken: dict[InstanceId, str] = {}
        loaded = await self._store.load([], keys, workflows)
        for instance in misses:
            try:
                loaded.instances.update((await self._store.load([instance])).instances)
            except Corrupt as problem:
                broken[instance] = str(problem)
        return loaded, broken

    def _place(self, batch: Batch, misses: dict[InstanceId, int], found: dict[InstanceId, Entry | None]) -> None:
        for instance, entry in found.items():
            partition = misses[instance]
            if entry is not None:
                entry.batch = batch.number
                self._cache.put(partition, entry)
            batch.work[instance] = Work(entry, partition)

    async def _entries(
        self,
        inputs: Sequence[Inbound],
        misses: dict[InstanceId, int],
        loaded: Loaded,
        broken: dict[InstanceId, str],
    ) -> dict[InstanceId, Entry | None]:
        """The state of every instance that was not cached; None where there is none."""
        entries: dict[InstanceId, Entry | None] = {}
        starting = {inbound.instance_id for inbound in inputs if type(inbound.input) is i.StartWorkflow}
        for inbound in inputs:
            instance = inbound.instance_id
            if instance not in misses or instance in entries or instance in broken:
                continue
            try:
                found = loaded.instances.get(instance)
                entry = await self._rebuild(found) if found is not None else await self._new(inbound, loaded)
            except Corrupt as problem:
                broken[instance] = str(problem)
                continue
            # If its start comes later in this batch, that one decides which definition it gets.
            if entry is not None or type(inbound.input) is i.StartWorkflow or instance not in starting:
                entries[instance] = entry
        return entries

    async def _rebuild(self, found: LoadedInstance) -> Entry:
        namespace, workflow, _ = split_key(found.key)
        definition = await self._definitions.load(namespace, workflow, found.version)
        if definition is None:
            raise Corrupt(f"{found.key}: the definition of version {found.version} is gone")
        return rebuild(found, definition)

    async def _new(self, inbound: Inbound, loaded: Loaded) -> Entry | None:
        command = inbound.input
        if type(command) is not i.StartWorkflow:
            return None
        namespace, workflow, _ = split_key(inbound.instance)
        version = command.version or loaded.newest.get((namespace, workflow))
        definition = None if version is None else await self._definitions.load(namespace, workflow, version)
        return None if definition is None else Entry(State.empty(inbound.instance, definition, inbound.instance_id))

    def decide(
        self,
        batch: Batch,
        inputs: Sequence[Inbound],
        known: dict[CommandKey, CommandRow],
        parked: frozenset[InstanceId],
        broken: dict[InstanceId, str],
    ) -> dict[InstanceId, str]:
        """Returns what could not be decided, with the reason; all inputs of such an instance are parked."""
        failed = dict(broken)
        for inbound in inputs:
            instance = inbound.instance_id
            if instance in parked or instance in failed:
                continue
            work = batch.work[instance]
            work.inputs.append(inbound)
            try:
                decide_input(work, inbound, batch, self._known(batch, inbound, known))
            except Exception as problem:
                metrics.decisions_failed.inc()
                failed[instance] = f"{type(problem).__name__}: {problem}"
                self.forget(batch, instance)
        for inbound in inputs:
            if inbound.parked_number is None and (inbound.instance_id in parked or inbound.instance_id in failed):
                batch.parked.append(_parked(inbound, failed.get(inbound.instance_id, "waits its turn"), batch.now))
        batch.parked_now = set(failed) - parked  # Those that were parked before keep their tries.
        for instance, work in batch.work.items():
            if work.entry is not None and work.entry.state.state is None:
                self._cache.discard(work.partition, instance)  # Not started after all: the next start looks anew.
        return failed

    def _known(self, batch: Batch, inbound: Inbound, known: dict[CommandKey, CommandRow]) -> CommandRow | None:
        header = inbound.header
        if header is None:
            return None
        key = CommandKey(inbound.instance_id, header.source, header.id)
        return known.get(key) or batch.commands.get(key)

    def forget(self, batch: Batch, instance: InstanceId) -> None:
        """Throw away what the batch did to an instance: its state may be ahead of what is stored."""
        work = batch.work.pop(instance, None)
        if work is not None:
            self._cache.discard(work.partition, instance)
            for row in work.commands:
                batch.commands.pop(row.key, None)

    def build(self, batch: Batch, owned: dict[int, Owned]) -> Commit:
        """Everything of the batch as one commit; offsets and outbox numbers move on for the batch after it."""
        commit = Commit([], batch.now, self.service, parked=batch.parked)
        for turned in batch.turned:
            batch.frames[turned.record.partition].append(turned.message)
        for instance, work in batch.work.items():
            self._add(commit, batch, instance, work)
        commit.parked_tries = batch.tries + [
            ParkedTry(instance, 0, batch.now + timedelta(seconds=batch.first_try_s), error)
            for instance, error in _newly_parked(batch).items()
        ]
        for partition in batch.partitions:
            mine = owned[partition]
            advance = mine.advance(batch.nexts[partition])
            messages = batch.frames.get(partition)
            if messages:
                mine.outbox_last += 1
                advance.outbox_number = mine.outbox_last
                advance.outbox_body = encode_frame(messages)
            commit.partitions.append(advance)
        batch.commit = commit
        return commit

    def _add(self, commit: Commit, batch: Batch, instance: InstanceId, work: Work) -> None:
        frame = batch.frames[work.partition]
        entry, changes = work.entry, work.changes
        if changes is not None and entry is not None:
            commit.changes.append(changes)
            if changes.expected_sequence == 0:
                commit.homes[instance] = work.partition
            frame.extend(_messages(changes, entry.state.definition.publish))
            if entry.wants_snapshot(self._snapshot_events_min):
                commit.snapshots.append(snapshot_of(entry))
        commit.renewals.extend(work.renewals.values())
        commit.commands.extend(work.commands)
        frame.extend(work.outcomes)
        commit.rejections.extend(work.rejections)
        commit.unparked.extend(
            (instance, inbound.parked_number) for inbound in work.inputs if inbound.parked_number is not None
        )


def _messages(changes: Changes, publish: Publish) -> list[FramedMessage]:
    try:
        return messages_of(changes, publish)
    except Unstorable:
        raise
    except Exception as problem:
        # What cannot be sent is as bad as what cannot be stored, and as much its instance's own matter.
        instances = frozenset([changes.row.instance_id])
        raise Unstorable(f"cannot be sent: {type(problem).__name__}: {problem}", instances) from problem


def _newly_parked(batch: Batch) -> dict[InstanceId, str]:
    return {row.instance_id: row.error for row in batch.parked if row.instance_id in batch.parked_now}


def _parked(inbound: Inbound, error: str, now: datetime) -> ParkedInput:
    record = inbound.record
    return ParkedInput(
        0,
        record.partition,
        inbound.instance_id,
        inbound.instance,
        record.topic,
        record.offset,
        record.key,
        record.value,
        tuple(record.headers),
        error,
        now,
    )
