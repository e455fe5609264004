"""Free TCP ports on the loopback interface."""

import json
import random
import socket
from pathlib import Path

from holdfast.embedded.errors import EmbeddedError

_LOWEST = 20000
_TRIES_MAX = 1000


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # The servers set it too: a port in TIME_WAIT is free for them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def listens(port: int) -> bool:
    """Whether somebody accepts connections there. Asked by connecting: a trial bind could take the server's place."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Different free ports, below those the kernel gives to outgoing connections.

    A server that is restarted must get its port back; from the kernel's own range any client could hold it by then.
    """
    below = _first_ephemeral()
    found: set[int] = set()
    for _ in range(_TRIES_MAX):
        port = random.randrange(_LOWEST, below)
        if is_free(port):
            found.add(port)
        if len(found) == count:
            return sorted(found)
    raise EmbeddedError(f"no {count} free ports between {_LOWEST} and {below} on this machine")


def _first_ephemeral() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32768
    return first if first > _LOWEST + 1000 else 65535


def same_or_free(note: Path, count: int) -> list[int]:
    """The ports used last time, so that addresses people wrote down stay true; others when any is taken."""
    try:
        before = [int(port) for port in json.loads(note.read_text())]
    except (OSError, ValueError):
        before = []
    ports = before if len(before) == count and all(map(is_free, before)) else free_ports(count)
    note.write_text(json.dumps(ports))
    return ports
