"""Free TCP ports on the loopback interface."""

import json
import socket
from pathlib import Path


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The servers set it too: a port in TIME_WAIT is free for them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Different free ports; all held open until the last is found, so none comes twice."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()


def same_or_free(note: Path, count: int) -> list[int]:
    """The ports used last time, so that addresses people wrote down stay true; others when any is taken."""
    try:
        before = [int(port) for port in json.loads(note.read_text())]
    except (OSError, ValueError):
        before = []
    ports = before if len(before) == count and all(map(is_free, before)) else free_ports(count)
    note.write_text(json.dumps(ports))
    return ports
