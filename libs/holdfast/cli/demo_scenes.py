"""The four scenes of the demo. Each does something to the system and then checks, from the history, the tables and the
shop's own ledger, that what should have happened did.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.demo_stage import Stage
from holdfast.cli.local import LocalSystem
from holdfast.client import Client, Run
from holdfast.client.reads import PostgresReads, Status
from holdfast.core import events as e
from holdfast.core.errors import HoldfastError
from holdfast.core.events import Recorded
from holdfast.core.transitions import FINISHED, WorkflowState

WORKFLOW = "orders/order-fulfillment"
_FORWARD = ["inventory.reserve", "payment.charge", "shipping.create"]
_SCENE_S = 60.0
_SLOW_S = 5.0
_REFUSAL_S = 8.0
_FREEZES_MAX = 3


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    ok: bool
    seen: str


@dataclass(slots=True)
class Scene:
    name: str
    title: str
    took_s: float = 0.0
    checks: list[Check] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def check(self, what: str, ok: bool, seen: object) -> None:
        self.checks.append(Check(what, ok, str(seen)))


@dataclass(frozen=True, slots=True)
class Frozen:
    """What happened to an order whose worker was frozen and thawed."""

    run: Run
    started: Recorded
    lapsed: Recorded
    output: Any
    refused: Recorded | None  # the frozen worker's own completion, refused


@dataclass(slots=True)
class Scenes:
    """Everything a scene needs, and what all of them have started."""

    system: LocalSystem
    holdfast: Client
    reads: PostgresReads
    ledger: Any  # examples.orders.ledger.Ledger: the example is not part of the package
    stage: Stage
    workers: tuple[str, ...]
    runs: list[Run] = field(default_factory=list)

    async def play(self) -> list[Scene]:
        played = []
        for name, title, scene in (
            ("a", "ten orders complete", self.ten_orders),
            ("b", "no carrier: refund, then release", self.no_carrier),
            ("c", "a worker freezes in the middle of a task", self.frozen_worker),
            ("d", "the coordinator is killed with -9", self.killed_coordinator),
        ):
            self.stage.tell(f"\n[bold]({name}) {title}[/bold]")
            result, began = Scene(name, title), time.monotonic()
            try:
                await scene(result)
            except HoldfastError as problem:
                result.check("the scene ends", False, problem)
            result.took_s = time.monotonic() - began
            played.append(result)
        return played

    # --- the scenes

    async def ten_orders(self, scene: Scene) -> None:
        runs = [await self._order(f"order-{n:02}", payment_flaky=1 if n == 7 else 0) for n in range(1, 11)]
        statuses = await self._finished(runs)
        states = Counter(status.state for status in statuses)
        scene.check("exactly ten complete", states == {WorkflowState.COMPLETED: 10}, _counted(states))
        effects = [self.ledger.effects(run.run_id) for run in runs]
        scene.check("each was reserved, charged and shipped once", all(e == _FORWARD for e in effects), _same(effects))

    async def no_carrier(self, scene: Scene) -> None:
        run = await self._order("no-carrier", shipping_fails=True)
        (status,) = await self._finished([run])
        scene.check("it ends COMPENSATED", status.state is WorkflowState.COMPENSATED, status.state)
        effects = self.ledger.effects(run.run_id)
        wanted = [*_FORWARD[:2], "payment.refund", "inventory.release"]
        scene.check("refund before release, and nothing shipped", effects == wanted, " → ".join(effects))
        undone = [one.event.path for one in await self._history(run) if isinstance(one.event, e.TaskCompleted)][-2:]
        scene.check("the history has the same order", undone == ["refund", "release"], ", ".join(undone))

    async def frozen_worker(self, scene: Scene) -> None:
        for number in range(1, _FREEZES_MAX + 1):
            frozen = await self._freeze(f"slow-carrier-{number}")
            if frozen.refused is not None:
                break
            # Also right, but not what is to be shown: it heard in time that its lease was lost and kept silent, or its
            # dispatch was delivered again and that worker's `started` was the one refusal that is recorded by name.
            self.stage.tell("  its completion is not on record as refused; once more")
        run, times = frozen.run, f" (freeze {number})" if number > 1 else ""
        scene.check("its lease expired", frozen.lapsed.sequence > frozen.started.sequence, _event_text(frozen.lapsed))
        pids = {call.pid for call in self.ledger.calls(run.run_id) if call.action == "shipping.create"}
        scene.check("another worker finished it", len(pids) == 2, f"{frozen.output}, by {len(pids)} processes")
        seen = f"{_event_text(frozen.refused)}{times}" if frozen.refused else f"no such event in {number} freezes"
        scene.check("the frozen worker's completion was refused by its fence", frozen.refused is not None, seen)
        history = await self._history(run)
        shipped = sum(isinstance(x.event, e.TaskCompleted) and x.event.path == "ship" for x in history)
        scene.check("one outcome only", shipped == 1, f"{shipped} completion of ship on record")
        parcels = self.ledger.effects(run.run_id).count("shipping.create")
        scene.check("one parcel: both attempts had the same effect key", parcels == 1, f"{parcels} parcel, 2 attempts")

    async def _freeze(self, run_id: str) -> Frozen:
        run = await self._order(run_id, shipping_slow_s=_SLOW_S)
        started = await self._event(run, lambda x: isinstance(x, e.TaskStarted) and x.holder is not None)
        over = time.monotonic() + _SLOW_S
        await asyncio.sleep(_SLOW_S / 4)
        victim = self._worker_of(run)
        self.stage.tell(f"  [cyan]freezing {victim}[/cyan] (SIGSTOP) while it ships {run_id}")
        await asyncio.to_thread(self.system.freeze, victim)
        try:
            lapsed = await self._event(run, lambda x: isinstance(x, e.LeaseLapsed))
            self.stage.tell("  its lease has expired; the task goes to another worker")
            output = await run.result(_SCENE_S)
            # It wakes when its task is over, so that it reports before it can hear that the lease is lost.
            await asyncio.sleep(over - time.monotonic())
        finally:
            self.stage.tell(f"  [cyan]thawing {victim}[/cyan]: it believes that it has just shipped")
            await asyncio.to_thread(self.system.thaw, victim)
        assert isinstance(started.event, e.TaskStarted)
        holder, fence = started.event.holder, started.event.fence
        refused = await self._find(
            run,
            lambda x: isinstance(x, e.ReportRejected) and (x.report, x.holder, x.fence) == ("completed", holder, fence),
            _REFUSAL_S,
        )
        return Frozen(run, started, lapsed, output, refused)

    async def killed_coordinator(self, scene: Scene) -> None:
        runs = [await self._order(f"crash-{n:02}") for n in range(1, 9)]
        await self._until_in_the_middle(runs)
        before = await self._statuses(runs)
        self.stage.tell("  [cyan]kill -9 coordinator-1[/cyan]")
        await asyncio.to_thread(self.system.kill, "coordinator-1")
        dead = [status.sequence for status in await self._statuses(runs)]
        await asyncio.sleep(1.0)
        later = [status.sequence for status in await self._statuses(runs)]
        self.stage.tell("  starting coordinator-1 again")
        await asyncio.to_thread(self.system.restart, "coordinator-1")
        statuses = await self._finished(runs)
        unfinished = sum(status.state not in FINISHED for status in before)
        scene.check("it died in the middle", unfinished > 0, f"{unfinished} of {len(runs)} orders were under way")
        moved = sum(late - early for early, late in zip(dead, later, strict=True))
        scene.check("without it nothing moves", moved == 0, f"{moved} new events in the second after its death")
        states = Counter(status.state for status in statuses)
        scene.check("all complete after it is back", states == {WorkflowState.COMPLETED: len(runs)}, _counted(states))
        effects = [self.ledger.effects(run.run_id) for run in runs]
        scene.check("nothing was done twice or left out", all(e == _FORWARD for e in effects), _same(effects))

    # --- what they are made of

    async def _order(self, run_id: str, **faults: Any) -> Run:
        order = {"order_id": run_id, "amount": 99.5, "faults": faults}
        run = await self.holdfast.start(WORKFLOW, run_id=run_id, input=order)
        self.runs.append(run)
        self.stage.follow([run.id])
        return run

    async def _finished(self, runs: list[Run]) -> list[Status]:
        return list(await asyncio.gather(*(run.finished(_SCENE_S) for run in runs)))

    async def _statuses(self, runs: list[Run]) -> list[Status]:
        found = await self.reads.instances([run.id for run in runs])
        return [found[run.id] for run in runs if run.id in found]

    async def _history(self, run: Run) -> list[Recorded]:
        return [recorded async for recorded in run.events()]

    async def _event(self, run: Run, wanted: Callable[[e.Event], bool]) -> Recorded:
        found = await self._find(run, wanted, _SCENE_S)
        if found is None:
            raise HoldfastError(f"waited {_SCENE_S:.0f} s for an event of {run.key} that did not come")
        return found

    async def _find(self, run: Run, wanted: Callable[[e.Event], bool], timeout_s: float) -> Recorded | None:
        """The first such event, as soon as it is there."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            for recorded in await self._history(run):
                if wanted(recorded.event):
                    return recorded
            await asyncio.sleep(0.05)
        return None

    async def _until_in_the_middle(self, runs: list[Run]) -> None:
        """All known, none finished: the moment at which a crash should hurt most."""
        until = time.monotonic() + _SCENE_S
        while time.monotonic() < until:
            statuses = await self._statuses(runs)
            if len(statuses) == len(runs) and any(status.sequence >= 6 for status in statuses):
                return
            await asyncio.sleep(0.02)

    def _worker_of(self, run: Run) -> str:
        call = self.ledger.calls(run.run_id)[-1]
        for name in self.workers:
            if self.system.process(name).pid == call.pid:
                return name
        raise HoldfastError(f"no worker has the pid {call.pid} that ships {run.key}")


def _counted(states: Counter[WorkflowState]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items())


def _same(effects: list[list[str]]) -> str:
    odd = [some for some in effects if some != _FORWARD]
    return f"{len(effects)} × {' → '.join(_FORWARD)}" if not odd else f"not so: {odd[:3]}"


def _event_text(recorded: Recorded) -> str:
    from holdfast.cli.sentences import sentence, type_name

    return f"{type_name(recorded.event)} {sentence(recorded.event)}"
