"""Anything goes: random definitions, and random inputs in any order, true, stale, repeated and invented.

Whatever comes, the harness's invariants hold at every step; and once the faults stop, every dispatch is answered and
due timers fire, the instance finishes, and the saga is what its events say that it should be.
"""

from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings

from holdfast.core import events as e
from holdfast.core.definition import Definition
from holdfast.core.inputs import Error, HandBackReason
from holdfast.core.outcomes import NotAccepted
from holdfast.core.transitions import FINISHED, IN_FLIGHT
from holdfast.core.transitions import WorkflowState as W
from tests.unit.core.definitions import definitions, scripts
from tests.unit.core.harness import Play, names
from tests.unit.core.saga_check import check_finished

WORKERS = ["w1", "w2"]
Move = tuple[int, ...]


def fence_of(play: Play, path: str, choice: int) -> int:
    """Mostly the newest; else an older one, one that never was, or one of another task."""
    newest = play.fence(path)
    return [newest, newest, newest, newest, newest, max(newest - 1, 0), play.state.fence + 1, play.state.fence][
        choice % 8
    ]


def started(play: Play, path: str, n: int) -> None:
    play.started(path, by=WORKERS[n % 2], fence=fence_of(play, path, n // 2))


def heartbeat(play: Play, path: str, n: int) -> None:
    play.heartbeat(path, by=WORKERS[n % 2], fence=fence_of(play, path, n // 2))


def completed(play: Play, path: str, n: int) -> None:
    play.completed(path, n, by=WORKERS[n % 2], fence=fence_of(play, path, n // 2))


def failed(play: Play, path: str, n: int) -> None:
    fence = fence_of(play, path, n // 2)
    play.failed(path, Error("E", str(n)), by=WORKERS[n % 2], fence=fence, retryable=n % 12 > 0)


def stopped(play: Play, path: str, n: int) -> None:
    play.stopped(path, ran=n % 3 > 0, by=WORKERS[n % 2], fence=fence_of(play, path, n // 2))


def handed_back(play: Play, path: str, n: int) -> None:
    reason = list(HandBackReason)[n % 3]
    delay_s = [None, 0.0, 70.0][n // 3 % 3]
    play.handed_back(path, reason, delay_s, by=WORKERS[n % 2], fence=fence_of(play, path, n // 2))


def lease_expired(play: Play, path: str, n: int) -> None:
    renewals = play.task(path).renewals if n % 4 else n
    play.lease_expired(path, fence=fence_of(play, path, n // 2), renewals=renewals)


def timed_out(play: Play, path: str, n: int) -> None:
    play.timed_out(path, fence=fence_of(play, path, n // 2), renewals=n)


def dispatch_lost(play: Play, path: str, n: int) -> None:
    play.dispatch_lost(path, fence=fence_of(play, path, n // 2))


def timer(play: Play, path: str, n: int) -> None:
    keys = sorted(play.rows.timers)
    if keys and n % 4:
        play.fire(keys[n // 4 % len(keys)])
    else:
        stale = play.of(e.TimerScheduled)
        if stale:
            chosen = stale[n % len(stale)]
            play.fire(chosen.key, token=None if chosen.key in play.rows.timers else chosen.token)


def command(play: Play, path: str, n: int) -> None:
    """Rare, since a cancel ends the fun."""
    commands: list[Callable[[], object]] = [
        play.start,
        play.resume,
        lambda: play.cancel(compensate=True),
        lambda: play.cancel(force=n % 2 == 0),
    ]
    commands[n // 2 % 4]() if n % 3 == 0 else play.wait(n)


MOVES = [started, started, heartbeat, completed, completed, completed, failed, failed, stopped, handed_back]
MOVES += [lease_expired, timed_out, dispatch_lost, timer, timer, timer, command, command]
CURRENT_ONLY = {started, heartbeat, completed, failed, stopped, handed_back, lease_expired, timed_out, dispatch_lost}


def play_one(play: Play, move: Move, seen: Counter[str]) -> None:
    paths = sorted(play.definition.tasks)
    open_paths = [path for path in paths if play.task(path).open]
    what = MOVES[move[0] % len(MOVES)]
    chosen = open_paths if open_paths and move[1] % 4 else paths
    path = chosen[move[1] // 4 % len(chosen)]
    before = len(play.events)
    fence = fence_of(play, path, move[2] // 2)
    counts = fence != 0 and play.task(path).fence == fence and play.task(path).status in IN_FLIGHT
    try:
        what(play, path, move[2])
    except NotAccepted as answer:
        seen[f"{answer.outcome}: {answer.reason}"] += 1
    if what in CURRENT_ONLY and not counts:
        new = play.events[before:]
        assert all(isinstance(event, e.ReportRejected) for event in new), "a void fence was applied"


def settle(play: Play, seen: Counter[str]) -> None:
    """No more faults: what is out is answered, what is due fires, a person resumes once."""
    resumed = False
    for _ in range(300):
        flying = [path for path, task in play.state.tasks.items() if task.fence]
        if flying:
            play.completed(flying[0], by=play.task(flying[0]).holder or "w9")
        elif play.rows.timers:
            play.fire(min(play.rows.timers, key=lambda key: (play.rows.timers[key].due_at, key)))
        elif play.status is W.COMPENSATION_FAILED and not resumed:
            seen["settled: COMPENSATION_FAILED"] += 1
            check_finished(play)
            play.resume()
            resumed = True
        else:
            return
    raise AssertionError("it does not come to an end")


def test_whatever_comes_the_instance_stays_whole_and_finishes_once_the_faults_stop() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=700, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(definitions(), scripts(3))
    def run(definition: Definition, script: list[Move]) -> None:
        play = Play(definition, history_every=10)
        play.start()
        after_the_end = 0
        for move in script:
            play_one(play, move, seen)
            after_the_end += play.state.finished
            if after_the_end > 5:
                break
        settle(play, seen)
        check_finished(play)
        seen[f"ended: {play.status}"] += 1
        seen.update(names(play.events))

    run()
    check_seen(seen)


def check_seen(seen: Counter[str]) -> None:
    """A test in which nothing happened would pass too."""
    ends = {f"ended: {state}" for state in FINISHED}
    answers = {"duplicate: exists", "ignored: finished", "refused: failing", "refused: compensating"}
    events = {name for name, _ in e.EVENT_TYPES.values()}
    assert {*ends, *answers, *events} <= set(seen), {*ends, *answers, *events} - set(seen)
