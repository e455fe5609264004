"""Two hundred sagas, and kill -9 of every kind of process at several points: nothing lost, nothing twice."""

import time
from collections import Counter

import pytest

from holdfast.core.ids import instance_id
from tests.support.invariants import EVERY, check
from tests.support.system import System, order
from tests.support.world import read_world

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

SAGAS = 220
IN_FLIGHT = 50
KINDS = {
    "plain": ({}, "COMPLETED"),
    "no_carrier": ({"ship": {"refuse": True}}, "COMPENSATED"),
    "flaky": ({"charge": {"flaky": 2}}, "COMPLETED"),
    "slow": ({"reserve": {"sleep_s": 1.0}, "ship": {"sleep_s": 0.5}}, "COMPLETED"),
    "no_money": ({"charge": {"refuse": True}, "release": {"flaky": 1}}, "COMPENSATED"),
}
# (finished sagas, who is killed): each of the four, at five points.
POINTS = [(at + 10 * turn, who) for at in (5, 45, 85, 125, 165) for turn, who in enumerate("crwv")]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("relay", ["hosted", "service"])
def test_kill_everything_at_several_points_of_200_sagas(system: System, name: str, relay: str) -> None:
    retry = {"max_attempts": 30, "initial": "PT0.2S", "factor": 1.2, "cap": "PT1S", "jitter": 0.2}
    tasks = {task: {"retry": retry} for task in ("reserve", "charge", "ship", "release", "refund")}
    workflow = system.define(order(name, name, **tasks))
    coordinator = "coordinator-1"
    if relay == "service":
        system.local.stop_service(coordinator)
        coordinator = "coordinator-without-relay"
        system.local.start_service(coordinator, "coordinator", {"HOLDFAST_RELAY": "service"})
    victims = {"c": coordinator, "r": "relay-1", "w": f"{name}-w1", "v": "recovery-1"}
    for worker in ("w1", "w2"):
        system.worker(name, worker)
    try:
        killed, sagas = _run(system, workflow, name, victims)
        assert sagas >= SAGAS
        assert killed == Counter(dict.fromkeys(victims.values(), len(POINTS) // 4))
        states = Counter(row["state"] for row in _rows(system, name))
        wanted = Counter(KINDS[_kind(number)][1] for number in range(sagas))
        assert states == wanted
        evidence = check(read_world(system, name, faults=True), EVERY)
        print(f"\n[{relay}] {evidence}")
        _every_effect_happened(system, workflow, sagas)
    finally:
        for worker in ("w1", "w2"):
            system.local.kill(f"{name}-{worker}")
        if relay == "service":
            system.local.stop_service(coordinator)
            system.local.restart("coordinator-1")


def _run(system: System, workflow: str, namespace: str, victims: dict[str, str]) -> tuple[Counter[str], int]:
    """Keep sagas under way, and kill as the number of finished ones passes each point; how many there were."""
    killed: Counter[str] = Counter()
    points = list(POINTS)
    started = finished = 0
    until = time.monotonic() + 240
    while points or finished < started:
        assert time.monotonic() < until, f"{finished} of {started} sagas finished; {_unfinished(system, namespace)}"
        assert not system.local.crashed(), [one.log_tail() for one in system.local.crashed()]
        finished = sum(row["finished_at"] is not None for row in _rows(system, namespace))
        while started < finished + IN_FLIGHT and (points or started < SAGAS):  # Somebody has to be hurt.
            system.start(workflow, f"saga-{started}", {"do": KINDS[_kind(started)][0]})
            started += 1
        if points and finished >= points[0][0]:
            who = victims[points.pop(0)[1]]
            if who == victims["w"]:
                _until_it_works(system, who)
            system.local.kill(who)
            system.local.restart(who, ready=False)
            killed[who] += 1
        time.sleep(0.05)
    return killed, started


def _until_it_works(system: System, worker: str) -> None:
    """In the middle of something that has begun long enough ago to have a lease, so that the lease must expire."""
    pid = system.local.process(worker).pid

    def at_work() -> bool:
        lines = [line for line in system.ledger.lines() if line.pid == pid]
        done = {(line.effect_key, line.fence) for line in lines if line.what == "done"}
        begun = [line for line in lines if line.what == "began" and (line.effect_key, line.fence) not in done]
        return any(0.3 < time.time() - line.at < 0.9 for line in begun if line.task == "reserve")

    until = time.monotonic() + 3
    while not at_work() and time.monotonic() < until:
        time.sleep(0.02)


def _kind(number: int) -> str:
    return list(KINDS)[number % len(KINDS)]


def _rows(system: System, namespace: str) -> list[dict[str, object]]:
    statement = "SELECT run_id, state, finished_at FROM holdfast.workflow_instances WHERE namespace = $1"
    return [dict(row) for row in system.sql.all(statement, namespace)]


def _unfinished(system: System, namespace: str) -> list[dict[str, object]]:
    return [row for row in _rows(system, namespace) if row["finished_at"] is None][:10]


def _every_effect_happened(system: System, workflow: str, sagas: int) -> None:
    done = {line.effect_key for line in system.ledger.lines(what="done")}
    for number in range(sagas):
        key = f"{workflow}/saga-{number}"
        expected = {
            "COMPLETED": ("reserve", "charge", "ship"),
            "COMPENSATED": ("reserve", "release"),
        }[KINDS[_kind(number)][1]]
        assert {f"{instance_id(key)}:1:{task}" for task in expected} <= done, key
