"""The coordinator's parts, put together over any store and any log: real ones in a service, twins in a simulation."""

import asyncio
from collections.abc import Callable

from holdfast.kit.clock import DatabaseClock
from holdfast.kit.health import Health
from holdfast.kit.logging import Logger
from holdfast.log.protocol import Assignments, Consumer, Producer
from holdfast.relay.hosted import HostedLimits, HostedPublisher
from holdfast.store.stores import Stores
from holdfast_coordinator.assignment import Assignment
from holdfast_coordinator.cache import StateCache
from holdfast_coordinator.definitions import DefinitionCache
from holdfast_coordinator.intake import Intake
from holdfast_coordinator.parking import Parking
from holdfast_coordinator.pipeline import Pipeline
from holdfast_coordinator.preparing import Preparer
from holdfast_coordinator.settings import CoordinatorSettings


class Coordinator:
    """Make it inside a running event loop, then `run`."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        stores: Stores,
        partitions: int,
        *,
        holder: str,
        clock: DatabaseClock,
        health: Health,
        log: Logger,
        consumer: Callable[[Assignments], Consumer],
        producer: Callable[[], Producer],
    ) -> None:
        store = stores.coordinator
        cache = StateCache(settings.cache_states_max)
        parking = Parking(settings)
        preparer = Preparer(
            store,
            cache,
            DefinitionCache(store),
            Intake(partitions, holder),
            clock,
            service=holder,
            snapshot_events_min=settings.snapshot_events_min,
        )
        self._publisher: HostedPublisher | None = None
        if settings.relay == "hosted":
            limits = HostedLimits(lease_s=settings.publisher_lease_s)
            self._publisher = HostedPublisher(producer, stores.outbox, holder=holder, limits=limits)
        self.assignment = Assignment(
            settings, store, cache, parking, clock, self._publisher, log, holder=holder, health=health
        )
        self._consumer = consumer(self.assignment)
        self.pipeline = Pipeline(
            store,
            self._consumer,
            self.assignment,
            cache,
            preparer,
            parking,
            clock,
            self._publisher,
            log,
            batch_inputs_max=settings.batch_inputs_max,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        await self._consumer.start()
        try:
            await self.pipeline.run(stopping)
        finally:
            await self._consumer.close()
            if self._publisher is not None:
                await self._publisher.close()
