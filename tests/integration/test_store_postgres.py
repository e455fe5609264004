"""What only Postgres has: roles, migrations, time-outs, transactions, plans, broken connections."""

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.core.errors import Fenced, Refused, Transient
from holdfast.store.errors import UnknownOutcome
from holdfast.store.failures import translated
from holdfast.store.migrate import Migration, ensure_partitions, migrate, migrations
from holdfast.store.pool import Timeouts
from holdfast.store.rows import Commit
from holdfast.store.stores import Stores, open_stores
from tests.contract.store.given import NOW, Coordinator, id_of, more, new
from tests.support.pgproxy import PostgresProxy

PARTITIONS = 4


@pytest.fixture
async def migrated(database: str) -> str:
    await migrate(database)
    await ensure_partitions(database, PARTITIONS)
    return database


@pytest.fixture
async def stores(migrated: str) -> AsyncIterator[Stores]:
    opened = await open_stores(migrated, "test")
    yield opened
    await opened.close()


# --- migrations


async def test_migrations_run_once(database: str) -> None:
    names = [migration.name for migration in migrations()]
    assert await migrate(database) == names
    assert await migrate(database) == []


async def test_migrations_by_several_processes_at_once_run_once(database: str) -> None:
    done = await asyncio.gather(*(migrate(database) for _ in range(4)))
    assert sorted(done, key=len) == [[], [], [], [migration.name for migration in migrations()]]


async def test_partitions_made_by_several_processes_at_once_are_made_once(database: str) -> None:
    await migrate(database)
    await asyncio.gather(*(ensure_partitions(database, 3) for _ in range(4)))
    opened = await open_stores(database, "test")
    assert sorted(await opened.recovery.inbox_positions()) == [0, 1, 2]
    assert await opened.coordinator.partition_count() == 3
    await opened.close()


async def test_an_edited_migration_is_refused(database: str) -> None:
    await migrate(database)
    edited = [Migration(migration.name, migration.text + "\n-- a small improvement") for migration in migrations()]
    with pytest.raises(Refused, match="migration_edited"):
        await migrate(database, edited)


async def test_a_migration_that_fails_leaves_nothing_behind(database: str) -> None:
    broken = [*migrations(), Migration("9999_broken", "CREATE TABLE holdfast.x (); SELECT 1 / 0;")]
    with pytest.raises(Exception, match="division by zero"):
        await migrate(database, broken)
    assert await migrate(database) == [migration.name for migration in migrations()]


async def test_a_service_on_an_older_schema_says_what_to_do(database: str) -> None:
    await migrate(database, migrations()[:1])
    await migrate(database, [Migration("0000_role", next(m.text for m in migrations() if m.name.endswith("role")))])
    with pytest.raises(Refused, match=r"schema_behind.*run `holdfast migrate`"):
        await open_stores(database, "test")


async def test_a_service_on_an_empty_database_says_what_to_do(database: str) -> None:
    with pytest.raises(Refused, match=r"schema_behind.*run `holdfast migrate`"):
        await open_stores(database, "test")


async def test_partitions_without_a_schema_say_what_to_do(database: str) -> None:
    with pytest.raises(Refused, match="run `holdfast migrate`"):
        await ensure_partitions(database, 3)


async def test_the_number_of_partitions_never_changes(migrated: str) -> None:
    await ensure_partitions(migrated, PARTITIONS)
    with pytest.raises(Refused, match="partition_count"):
        await ensure_partitions(migrated, PARTITIONS + 1)


async def test_a_partition_that_moved_is_refused_and_says_where_to(stores: Stores, migrated: str) -> None:
    await _as_owner(migrated, "UPDATE holdfast.inbox_partitions SET moved_to = 'postgres-b' WHERE partition = 2")
    with pytest.raises(Refused, match="2 moved to postgres-b"):
        await stores.coordinator.claim([1, 2], "c", publish=False, publisher_lease_s=1)


# --- the role


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE holdfast.events SET type = 'X'",
        "DELETE FROM holdfast.events",
        "TRUNCATE holdfast.events",
        "INSERT INTO holdfast.inbox_partitions (partition) VALUES (77)",
        "DELETE FROM holdfast.inbox_partitions",
        "UPDATE holdfast.workflow_definitions SET version = 2",
        "DELETE FROM holdfast.workflow_instances",
        "ALTER TABLE holdfast.events ADD COLUMN x integer",
        "UPDATE holdfast.migrations SET checksum = ''",
    ],
)
async def test_a_service_cannot_rewrite_history(stores: Stores, statement: str) -> None:
    owner = await Coordinator.owning(stores)
    await owner.commit(new("a"))
    assert stores.database is not None
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await stores.database.execute(statement)
    assert len(await stores.queries.events(id_of("a"))) == 2


async def test_the_login_owns_the_tables_and_still_cannot(stores: Stores) -> None:
    """The test above means something only if the login itself could have done it."""
    assert stores.database is not None
    row = await stores.database.fetchrow(
        "SELECT session_user AS login, current_user AS role, tableowner FROM pg_tables WHERE tablename = 'events'"
    )
    assert row is not None
    assert row["role"] == "holdfast_service"
    assert row["login"] == row["tableowner"]


# --- one round trip, one transaction


async def test_a_commit_is_one_round_trip_and_one_transaction(migrated: str) -> None:
    async with PostgresProxy(migrated) as proxy:
        stores = await open_stores(proxy.dsn, "test", connections_max=1)
        owner = await Coordinator.owning(stores)
        await owner.commit(new("warm-up"))
        trips, xid = proxy.answered, await _next_xid(migrated)
        await owner.commit(*(new(f"r{number}") for number in range(50)))
        assert proxy.answered == trips + 1
        assert await _next_xid(migrated) == xid + 1
        trips = proxy.answered
        await stores.coordinator.load([id_of("r1")], [], [("orders", "fulfil")])
        assert proxy.answered <= trips + 3  # its statement is prepared and its types are read, once
        trips = proxy.answered
        await stores.coordinator.load([id_of("r2")], [], [("orders", "fulfil")])
        assert proxy.answered == trips + 1
        await stores.close()


async def test_plans_made_for_empty_tables_stay_good_when_they_are_full(stores: Stores, migrated: str) -> None:
    """A sequential scan that is cached while the table is empty would be run with each commit ever after."""
    owner = await Coordinator.owning(stores)
    for number in range(8):
        await owner.commit(new(f"single-{number}"))
        await owner.commit(more(f"single-{number}", 2))
        await stores.coordinator.load([id_of(f"single-{number}")])
    before = await _scans(migrated)
    runs = [f"r{number}" for number in range(500)]
    await owner.commit(*map(new, runs))
    for step in range(5):
        await owner.commit(*(more(run, 2 + step) for run in runs))
        await stores.coordinator.load([id_of(run) for run in runs])
    after = await _scans(migrated, at_least=before["workflow_instances"][1] + 2000)
    for table in ("workflow_instances", "events", "task_executions", "snapshots", "execution_leases"):
        assert after[table][0] == before[table][0], f"{table} was scanned"


# --- nobody frozen stops the others


async def test_a_client_frozen_inside_a_transaction_is_thrown_out(stores: Stores, migrated: str) -> None:
    frozen_stores = await open_stores(migrated, "frozen", timeouts=Timeouts(idle_in_transaction_s=0.5))
    assert frozen_stores.database is not None
    frozen = await frozen_stores.database.connect()
    await frozen.execute("BEGIN")
    await frozen.execute("SELECT * FROM holdfast.inbox_partitions WHERE partition = 0 FOR UPDATE")
    started = time.monotonic()
    await Coordinator.owning(stores, 0)
    assert 0.2 < time.monotonic() - started < 4
    with pytest.raises(Transient), translated():
        await frozen.execute("COMMIT")
    frozen.terminate()
    await frozen_stores.close()


async def test_every_connection_of_a_service_has_the_time_outs(stores: Stores) -> None:
    assert stores.database is not None
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")
    shown = [await stores.database.fetchval("SELECT current_setting($1)", name) for name in names]
    assert shown == ["2s", "5s", "15s"]
    assert await stores.database.fetchval("SELECT current_setting('application_name')") == "holdfast test"


async def test_waiting_too_long_for_a_lock_is_transient(stores: Stores, migrated: str) -> None:
    impatient = await open_stores(migrated, "impatient", timeouts=Timeouts(lock_s=0.2))
    owner = await Coordinator.owning(impatient)
    async with _locked(migrated):
        with pytest.raises(Transient) as failure:
            await owner.commit(new("a"))
    assert not isinstance(failure.value, UnknownOutcome)  # the server said that it rolled back
    await owner.commit(new("a"))
    await impatient.close()


async def test_a_zombie_that_commits_while_its_successor_claims_is_fenced(stores: Stores, migrated: str) -> None:
    zombie = await Coordinator.owning(stores)
    successor = await open_stores(migrated, "successor")
    async with _locked(migrated):
        claiming = asyncio.create_task(Coordinator.owning(successor))
        await asyncio.sleep(0.2)
        committing = asyncio.create_task(zombie.commit(new("a")))
        await asyncio.sleep(0.2)
    await claiming
    with pytest.raises(Fenced):
        await committing
    assert await stores.queries.instances([id_of("a")]) == {}
    await successor.close()


async def test_a_claim_sees_what_was_parked_while_it_waited(stores: Stores, migrated: str) -> None:
    """The one before us is still committing: its offsets and its parked instances belong together."""
    parking = f"""
        UPDATE holdfast.inbox_partitions SET commands_next = 42 WHERE partition = 0;
        INSERT INTO holdfast.parked_instances (instance_id, partition, instance, parked_at)
        VALUES ('{id_of("a")}', 0, 'orders/fulfil/a', clock_timestamp());
    """
    async with _locked(migrated, parking):
        claiming = asyncio.create_task(
            stores.coordinator.claim([0], "coordinator-2", publish=False, publisher_lease_s=30)
        )
        await asyncio.sleep(0.3)
        assert not claiming.done()
    [claim] = await claiming
    assert claim.commands_next == 42
    assert claim.parked == frozenset([id_of("a")])


async def test_a_refused_claim_takes_nothing(stores: Stores) -> None:
    with pytest.raises(Refused):
        await stores.coordinator.claim([0, 99], "c", publish=True, publisher_lease_s=1)
    [settled] = await stores.coordinator.settle([0])
    assert settled.epoch == 0


# --- broken connections


async def test_an_answer_that_is_lost_is_an_unknown_outcome_and_settle_tells(stores: Stores, migrated: str) -> None:
    async with PostgresProxy(migrated) as proxy:
        cut_off = await open_stores(proxy.dsn, "cut off")
        owner = await Coordinator.owning(cut_off)
        await owner.commit(new("a"))
        proxy.cut_answers = True
        with pytest.raises(UnknownOutcome):
            await owner.commit(new("b"))
        proxy.cut_answers = False
        [settled] = await cut_off.coordinator.settle([0])
        assert (settled.epoch, settled.commands_next) == (owner.claims[0].epoch, 2)
        assert len(await stores.queries.instances([id_of("b")])) == 1
        await cut_off.close()


async def test_a_request_that_is_lost_is_an_unknown_outcome_and_settle_tells(stores: Stores, migrated: str) -> None:
    async with PostgresProxy(migrated) as proxy:
        cut_off = await open_stores(proxy.dsn, "cut off")
        owner = await Coordinator.owning(cut_off)
        await owner.commit(new("a"))
        proxy.cut_requests = True
        with pytest.raises(UnknownOutcome):
            await owner.commit(new("b"))
        proxy.cut_requests = False
        [settled] = await cut_off.coordinator.settle([0])
        assert settled.commands_next == 1
        assert await stores.queries.instances([id_of("b")]) == {}
        await cut_off.close()


async def test_settle_waits_for_a_backend_that_is_still_committing(stores: Stores, migrated: str) -> None:
    await Coordinator.owning(stores)
    async with _locked(migrated, "UPDATE holdfast.inbox_partitions SET commands_next = 42 WHERE partition = 0"):
        settling = asyncio.create_task(stores.coordinator.settle([0]))
        await asyncio.sleep(0.3)
        assert not settling.done()
    [settled] = await settling
    assert settled.commands_next == 42


async def test_a_backend_that_is_terminated_in_a_commit_is_an_unknown_outcome(stores: Stores, migrated: str) -> None:
    owner = await Coordinator.owning(stores)
    async with _locked(migrated):
        committing = asyncio.create_task(owner.commit(new("a")))
        await asyncio.sleep(0.2)
        await _as_owner(
            migrated,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()",
        )
        with pytest.raises(UnknownOutcome):
            await committing
    await owner.commit(new("a"))


async def test_a_database_that_is_not_there_is_transient() -> None:
    with pytest.raises(Transient):
        await open_stores("postgresql://holdfast:x@127.0.0.1:1/none", "test")


async def test_a_store_works_again_after_its_connections_were_cut(stores: Stores, migrated: str) -> None:
    owner = await Coordinator.owning(stores)
    await _as_owner(
        migrated,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    await asyncio.sleep(0.1)
    for _ in range(5):
        try:
            await owner.commit(new("a"))
            break
        except Transient:
            await asyncio.sleep(0.05)
    assert len(await stores.queries.instances([id_of("a")])) == 1


# --- without LISTEN


async def test_a_relay_that_cannot_listen_polls(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: object) -> bool:
        return False

    monkeypatch.setattr("holdfast.store.listen.Listener.ready", never)
    owner = await Coordinator.owning(stores)
    await stores.outbox.read_outbox([(0, 0)], rows_max=9)
    waiting = asyncio.create_task(stores.outbox.wait_for_outbox(30))
    await asyncio.sleep(0.3)
    await owner.commit(advance=owner.advance(commands=1, body=b"1"))  # and nobody calls wake_relay
    async with asyncio.timeout(5):
        await waiting


async def test_a_listener_that_hears_nothing_says_so(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.listen._PROOF_S", 0.2)
    monkeypatch.setattr("holdfast.store.listen.Listener._hear", lambda *_: None)
    async with asyncio.timeout(5):
        await stores.recovery.wait_for_timers(0.1)


async def _next_xid(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))
    finally:
        await connection.close()


async def _as_owner(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


class _locked:
    """Somebody else is in a transaction that has locked partition 0."""

    def __init__(
        self, dsn: str, statement: str = "SELECT * FROM holdfast.inbox_partitions WHERE partition = 0 FOR UPDATE"
    ) -> None:
        self._dsn = dsn
        self._statement = statement

    async def __aenter__(self) -> None:
        self._connection = await asyncpg.connect(self._dsn)
        await self._connection.execute("BEGIN")
        await self._connection.execute(self._statement)

    async def __aexit__(self, *_: object) -> None:
        await self._connection.execute("COMMIT")
        await self._connection.close()


async def _scans(dsn: str, at_least: int = 0) -> dict[str, tuple[int, int]]:
    """table -> (sequential scans, index scans); a backend reports them about a second late."""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(1.2)
                rows = await connection.fetch("SELECT relname, seq_scan, idx_scan FROM pg_stat_user_tables")
                scans = {row[0]: (row[1], row[2] or 0) for row in rows}
                if scans["workflow_instances"][1] >= at_least:
                    return scans
    finally:
        await connection.close()


async def test_an_empty_commit_is_still_a_commit(stores: Stores) -> None:
    owner = await Coordinator.owning(stores, 0, 1)
    await stores.coordinator.commit(Commit([owner.advance(0), owner.advance(1)], NOW))
