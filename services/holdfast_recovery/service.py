"""Recovery as a process: assembled here, driven by `holdfast.kit.service`."""

import functools

from holdfast.contracts.definitions import compile_definition
from holdfast.kit.patience import patiently
from holdfast.kit.service import Runtime, run_service
from holdfast.log.kafka_admin import KafkaAdmin
from holdfast.log.kafka_producer import KafkaProducer
from holdfast.log.protocol import Admin
from holdfast.store.protocol import DefinitionStore
from holdfast.store.stores import Stores, open_stores
from holdfast_recovery.backlog import Scanner
from holdfast_recovery.dispatches import LostDispatches
from holdfast_recovery.kafka_scanner import KafkaScanner
from holdfast_recovery.leases import Leases
from holdfast_recovery.loops import Loops, Note
from holdfast_recovery.sender import TickSender
from holdfast_recovery.settings import RecoverySettings
from holdfast_recovery.ticks import UnansweredTicks
from holdfast_recovery.timers import Timers
from holdfast_recovery.trim import Trim


def run() -> int:
    settings = RecoverySettings()
    return run_service("recovery", settings, lambda runtime: serve(runtime, settings))


async def serve(runtime: Runtime, settings: RecoverySettings) -> None:
    name = f"recovery/{runtime.instance_id}"
    stores = await patiently("postgres", runtime, lambda: open_stores(settings.postgres_dsn, name))
    if stores is None:
        return
    kafka = settings.kafka_client("holdfast-recovery")
    admin = KafkaAdmin(kafka, timeout_s=settings.kafka_timeout_s)
    sender = TickSender(lambda: KafkaProducer(kafka), name, timeout_s=settings.ticks_timeout_s)
    loops = assemble(settings, stores, admin, KafkaScanner(kafka), sender, functools.partial(_note, runtime))
    runtime.health.started()
    try:
        await loops.run(runtime.stopping)
    finally:
        await sender.close()
        await admin.close()
        await stores.close()


def assemble(
    settings: RecoverySettings, stores: Stores, admin: Admin, scanner: Scanner, sender: TickSender, note: Note
) -> Loops:
    store = stores.recovery
    timers = Timers(
        store,
        sender,
        claim_s=settings.timers_claim_s,
        page_rows=settings.timers_page,
        poll_s=settings.timers_poll_s,
    )
    leases = Leases(store, admin, sender, ask_s=settings.leases_ask_s, survey_s=settings.leases_survey_s)
    dispatches = LostDispatches(
        store,
        stores.outbox,
        admin,
        scanner,
        sender,
        every_s=settings.dispatches_every_s,
        patience_s=settings.dispatches_patience_s,
        backlog_records_max=settings.dispatches_backlog_max,
    )
    ticks = UnansweredTicks(store, sender, every_s=settings.ticks_every_s)
    queues = functools.partial(defined_queues, stores.definitions)
    trim = Trim(queues, admin, every_s=settings.trim_every_s, records_min=settings.trim_records_min)
    return Loops(
        {
            "timers": timers.step,
            "leases": leases.step,
            "dispatches": dispatches.step,
            "ticks": ticks.step,
            "trim": trim.step,
        },
        note,
    )


async def defined_queues(definitions: DefinitionStore) -> set[str]:
    """Every queue that a stored definition names."""
    queues: set[str] = set()
    for stored in await definitions.definitions():
        queues |= {task.queue for task in compile_definition(stored.body).tasks.values() if task.queue}
    return queues


def _note(runtime: Runtime, loop: str, reason: str | None) -> None:
    if reason is None:
        runtime.health.passes(loop)
    else:
        runtime.health.fails(loop, reason)
