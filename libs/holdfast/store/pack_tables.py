"""The arrays of one batch while they are filled: tables of distinct values, and rows that point into them."""

from datetime import datetime
from typing import Any
from uuid import UUID


class Pack:
    """The tables and sections of one batch; `arguments` are those of the function, in its order."""

    __slots__ = (
        "blobs",
        "commands",
        "created",
        "docs",
        "events",
        "ids",
        "lease_seconds",
        "leases",
        "leases_ended",
        "origins",
        "parking",
        "partitions",
        "rare",
        "renewals",
        "repeats",
        "service",
        "snapshots",
        "tasks",
        "texts",
        "timers",
        "timers_gone",
        "times",
        "updated",
    )

    def __init__(self, service: str) -> None:
        self.service = service
        self.ids: dict[UUID, int] = {}
        # None is looked up like any other text or time, and is 0.
        self.texts: dict[str | None, int] = {None: 0}
        self.times: dict[datetime | None, int] = {None: 0}
        self.docs: list[str] = []
        self.blobs: list[bytes] = []
        self.partitions: list[int] = []
        self.created: list[int] = []
        self.updated: list[int] = []
        self.origins: list[int] = []
        self.events: list[int] = []
        self.tasks: list[int] = []
        self.leases: list[int] = []
        self.lease_seconds: list[float] = []
        self.leases_ended: list[int] = []
        self.renewals: list[int] = []
        self.timers: list[int] = []
        self.timers_gone: list[int] = []
        self.commands: list[int] = []
        self.repeats: list[int] = []
        self.snapshots: list[int] = []
        self.rare: list[int] = []
        self.parking: list[int] = []

    def arguments(self) -> tuple[Any, ...]:
        texts, times = list(self.texts), list(self.times)
        return (
            self.service,
            list(self.ids),
            texts[1:],
            times[1:],
            self.docs,
            self.blobs,
            self.partitions,
            self.created,
            self.updated,
            self.origins,
            self.events,
            self.tasks,
            self.leases,
            self.lease_seconds,
            self.leases_ended,
            self.renewals,
            self.timers,
            self.timers_gone,
            self.commands,
            self.repeats,
            self.snapshots,
            self.rare,
            self.parking,
        )

    def id(self, value: UUID) -> int:
        return self.ids.setdefault(value, len(self.ids) + 1)

    def text(self, value: str | None) -> int:
        return self.texts.setdefault(value, len(self.texts))

    def time(self, value: datetime | None) -> int:
        return self.times.setdefault(value, len(self.times))

    def doc(self, value: str | None) -> int:
        if value is None:
            return 0
        self.docs.append(value)
        return len(self.docs)

    def blob(self, value: bytes | None) -> int:
        if value is None:
            return 0
        self.blobs.append(value)
        return len(self.blobs)
