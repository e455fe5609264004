"""More coordinators than partitions: the spare one is ready, and takes over when another one dies."""

import json
from pathlib import Path

from holdfast.cli.local import LocalSystem


def _holders(system: LocalSystem) -> list[str]:
    """The coordinators whose newest assignment has a partition in it."""
    holders = []
    for process in system.processes:
        lines = [
            json.loads(line) for line in process.log_file.read_text().splitlines() if "partitions_assigned" in line
        ]
        if process.kind == "coordinator" and process.running and lines and lines[-1]["partitions"]:
            holders.append(process.name)
    return holders


def test_a_spare_coordinator_is_ready_and_takes_over(tmp_path: Path) -> None:
    env = {"HOLDFAST_SESSION_TIMEOUT_S": "6"}
    with LocalSystem(tmp_path / "system", coordinators=2, relays=0, recoveries=0, partitions=1, env=env) as system:
        # Both passed /readyz, though there is work for one only.
        system.wait_until(lambda: len(_holders(system)) == 1, "one holder", 30)
        [first] = _holders(system)
        system.kill(first)
        system.wait_until(lambda: _holders(system) not in ([], [first]), "the other one", 60)
