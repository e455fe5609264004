"""Honest workers, dishonest circumstances: what had an effect in the world is completed, or undone when the saga is.

The world here keeps its own book of effects, which the kernel never sees. Workers freeze, crash before and after their
effect, and reports arrive late or never; recovery then says what it would say. Not in this world: one dispatch
delivered to two workers at once, where a failure of the one is believed although the other may still succeed.
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.changes import Dispatch
from holdfast.core.definition import Definition
from holdfast.core.transitions import FINISHED
from holdfast.core.transitions import TaskStatus as T
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.definitions import definitions, scripts
from tests.unit.core.harness import Play
from tests.unit.core.saga_check import check_finished

Move = tuple[int, ...]


@dataclass
class World:
    play: Play
    effects: Counter[str] = field(default_factory=Counter)
    met: int = 0  # dispatches that were consumed or are gone
    running: list[Dispatch] = field(default_factory=list)  # begun, effect not yet done
    silent: list[Dispatch] = field(default_factory=list)  # the effect is done, the report is on its way
    dropped: int = 0

    def step(self, move: Move, *, faults: bool) -> bool:
        """False when there is nothing left to do."""
        verbs = [self.begin, self.begin, self.work, self.work, self.report, self.report, self.tick]
        if faults:
            verbs += [self.freeze, self.lose, self.fail, self.reject, self.hand_back]
        start = move[0] % len(verbs)
        return any(verb(move[1]) for verb in verbs[start:] + verbs[:start])

    def begin(self, n: int) -> bool:
        waiting = self.play.dispatches[self.met :]
        if not waiting:
            return False
        self.met += 1
        if self._told_to_stop(waiting[0]):
            self.play.stopped(waiting[0].path, ran=False, by=self._name(waiting[0]), fence=waiting[0].fence)
            return True
        if n % 2:  # a slow one says so first
            self.play.started(waiting[0].path, by=self._name(waiting[0]), fence=waiting[0].fence)
        self.running.append(waiting[0])
        return True

    def work(self, n: int) -> bool:
        if not self.running:
            return False
        dispatch = self.running.pop(n % len(self.running))
        self.effects[dispatch.path] += 1
        self.silent.append(dispatch)
        return True

    def report(self, n: int) -> bool:
        if not self.silent:
            return False
        dispatch = self.silent.pop(n % len(self.silent))
        self.play.completed(dispatch.path, by=self._name(dispatch), fence=dispatch.fence)
        return True

    def fail(self, n: int) -> bool:
        """Failed before it had an effect, for good or not."""
        if not self.running:
            return False
        dispatch = self.running.pop(n % len(self.running))
        self.play.failed(dispatch.path, by=self._name(dispatch), fence=dispatch.fence, retryable=n % 3 > 0)
        return True

    def reject(self, n: int) -> bool:
        """Obeyed a cancellation, whether it had its effect or not: the worker cannot know."""
        box = self.silent if n % 2 else self.running
        if not box:
            return False
        dispatch = box.pop(n % len(box))
        self.play.stopped(dispatch.path, ran=True, by=self._name(dispatch), fence=dispatch.fence)
        return True

    def hand_back(self, n: int) -> bool:
        """A draining worker gives back what it has begun, said so, and not finished."""
        begun = [x for x in (*self.running, *self.silent) if self.play.task(x.path).fence == x.fence]
        begun = [x for x in begun if self.play.task(x.path).holder == self._name(x)]
        if not begun:
            return False
        dispatch = begun[n % len(begun)]
        (self.running if dispatch in self.running else self.silent).remove(dispatch)
        self.play.handed_back(dispatch.path, "draining", by=self._name(dispatch), fence=dispatch.fence)
        return True

    def freeze(self, n: int) -> bool:
        """The holder is not heard of for a lease, or for its time-out; it may wake up and report later."""
        held = [path for path, task in self.play.state.tasks.items() if task.holder is not None]
        if not held:
            return False
        path = held[n % len(held)]
        _ = self.play.lease_expired(path) if n % 2 else self.play.timed_out(path)
        return True

    def lose(self, n: int) -> bool:
        """A dispatch vanishes before anybody meets it."""
        waiting = self.play.dispatches[self.met :]
        if not waiting:
            return False
        self.met += 1
        self.dropped += 1
        self.play.dispatch_lost(waiting[0].path, fence=waiting[0].fence)
        return True

    def tick(self, n: int) -> bool:
        rows = sorted(self.play.rows.timers.values(), key=lambda row: (row.due_at, row.key))
        if not rows or (n % 4 and (self.running or self.silent)):
            return False
        self.play.fire(rows[0].key)
        return True

    def _told_to_stop(self, dispatch: Dispatch) -> bool:
        return any(m.fence == dispatch.fence for m in self.play.messages if not isinstance(m, Dispatch))

    def _name(self, dispatch: Dispatch) -> str:
        return f"w{dispatch.fence}"


def check_effects(world: World) -> None:
    play = world.play
    for path in play.definition.forward:
        task = play.definition.tasks[path]
        # A straggler may still act after its fence is void; what counts is what happened before the plan was made.
        if play.task(path).status is T.COMPLETED and task.activity:
            assert world.effects[path] >= 1, "completed without an effect"
        if play.status is W.FAILED and task.compensate and task.compensate_unknown:
            assert world.effects[path] == 0, f"{path} had its effect and nobody undid it"
        if play.status is W.COMPENSATED and task.compensate:
            undone = play.task(task.compensate).status is T.COMPLETED
            assert undone == (path in play.state.plan)
            if world.effects[path] and task.compensate_unknown:
                assert undone, f"{path} had its effect and nobody undid it"
            if undone:
                assert world.effects[task.compensate] >= 1


def test_what_had_an_effect_is_completed_or_undone() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=250, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(definitions(expressions_fail=False), scripts(2), st.booleans())
    def run(definition: Definition, script: list[Move], cancel: bool) -> None:
        world = World(Play(definition, history_every=10))
        world.play.start()
        for move in script:
            world.step(move, faults=True)
        if cancel and world.play.status is W.RUNNING:
            world.play.cancel(compensate=True)
        steps = 0
        while not world.play.state.finished or world.silent:
            assert world.step((steps % 7, 0), faults=False), "it does not come to an end"
            steps += 1
            assert steps < 500
        check_finished(world.play)
        check_effects(world)
        seen[str(world.play.status)] += 1
        seen["undone"] += len(world.play.state.plan)
        seen["lost"] += world.dropped

    run()
    assert {str(state) for state in FINISHED} - set(seen) <= {W.CANCELLED, W.COMPENSATION_FAILED}
    assert min(seen["undone"], seen["lost"], seen[W.COMPLETED], seen[W.COMPENSATED]) > 20, seen
