"""Holding a process inside its transaction.

A trigger on `inbox_partitions` makes the backends that are named in a table wait: BEFORE the rows are locked, that is
before the fence is looked at, or AFTER, that is with the rows locked and everything else still to be written. Nothing
else knows of it.
"""

from collections.abc import Callable

import psutil

from holdfast.cli.local_process import LocalProcess
from tests.support.system import System

_MAKE = """
CREATE TABLE IF NOT EXISTS public.held (pid integer, moment text);
GRANT SELECT ON public.held TO PUBLIC;
CREATE OR REPLACE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM public.held WHERE pid = pg_backend_pid() AND moment = TG_WHEN) LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER hold_before BEFORE UPDATE ON holdfast.inbox_partitions
    FOR EACH STATEMENT EXECUTE FUNCTION public.hold();
CREATE OR REPLACE TRIGGER hold_after AFTER UPDATE ON holdfast.inbox_partitions
    FOR EACH STATEMENT EXECUTE FUNCTION public.hold();
"""
_REMOVE = """
DROP TRIGGER IF EXISTS hold_before ON holdfast.inbox_partitions;
DROP TRIGGER IF EXISTS hold_after ON holdfast.inbox_partitions;
"""


def let_go(system: System) -> None:
    system.sql.do("DELETE FROM public.held")


def remove(system: System) -> None:
    system.sql.do(_REMOVE)


def backends(system: System, process: LocalProcess) -> list[int]:
    """The Postgres backends that serve this process, by the ports of its connections."""
    ports = [c.laddr.port for c in psutil.Process(process.pid).net_connections(kind="tcp") if c.raddr]
    statement = "SELECT pid FROM pg_stat_activity WHERE client_port = ANY($1::int[])"
    return [row["pid"] for row in system.sql.all(statement, ports)]


def inside(system: System, process: LocalProcess) -> bool:
    statement = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1::int[]) AND wait_event = 'PgSleep'"
    return bool(system.sql.one(statement, backends(system, process)))


def catch(system: System, process: LocalProcess, moment: str, start: Callable[[int], str]) -> str:
    """Start instances until the commit of one is held: the coordinator may take a connection we do not know yet.

    `start(number)` starts one on a partition of this coordinator. Returns its key; it is not in the database.
    """
    system.sql.do(_MAKE)
    for number in range(20):
        let_go(system)
        for pid in backends(system, process):
            system.sql.do("INSERT INTO public.held VALUES ($1, $2)", pid, moment)
        key = start(number)
        system.eventually(lambda key=key: inside(system, process) or system.row(key), "a commit")
        if system.row(key) is None:
            return key
    raise AssertionError(f"no commit of {process.name} could be held")
