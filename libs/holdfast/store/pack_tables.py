"""The arrays of one batch while they are filled: tables of distinct values, and rows that point into them.

They are written in Postgres's binary format right here. asyncpg would look at every element of every array twice, with
checks that cost more than all else that we do for an input; so `commit_batch` is called with domains over the array
types (`holdfast.wire_*`), for which asyncpg passes our bytes on as they are.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from struct import Struct
from typing import Generic, TypeVar
from uuid import UUID

Value = TypeVar("Value")

WIRE_TYPES = ("wire_uuids", "wire_texts", "wire_times", "wire_docs", "wire_blobs", "wire_numbers", "wire_floats")

_UUID, _TEXT, _TIME, _JSON, _BYTEA, _INT8, _FLOAT8 = 2950, 25, 1184, 114, 17, 20, 701

_EMPTY = Struct(">iiI").pack  # dimensions, nulls, type of the elements
_HEADER = Struct(">iiIii").pack  # ... and of the one dimension: length, first index
_LENGTH = Struct(">i").pack
_NUMBER = Struct(">iq").pack
_FLOAT = Struct(">id").pack
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def row_packer(columns: int) -> Callable[..., bytes]:
    """A function that packs one row of so many numbers, each with its length before it as an array wants it."""
    names = [f"v{number}" for number in range(columns)]
    source = f"lambda {', '.join(names)}: pack({', '.join(f'8, {name}' for name in names)})"
    packer: Callable[..., bytes] = eval(source, {"pack": Struct(">" + "iq" * columns).pack})
    return packer


class Places(dict[Value | None, int], Generic[Value]):
    """`places[value]` is where a value stands in its table; a new one goes to the end. None is 0, which is NULL.

    A dictionary with `__missing__`: what is there already, nearly all of it, is found without running Python code.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__({None: 0})

    def __missing__(self, value: Value | None) -> int:
        place = self[value] = len(self)
        return place

    def values_in_order(self) -> list[Value]:
        return [value for value in self if value is not None]


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
        "origins_count",
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
        self.ids: Places[UUID] = Places()
        self.texts: Places[str] = Places()
        self.times: Places[datetime] = Places()
        self.docs: list[bytes] = []
        self.blobs: list[bytes] = []
        self.origins_count = 0
        # Rows, packed. `rare` and `parking` are few and stay numbers.
        self.partitions: list[bytes] = []
        self.created: list[bytes] = []
        self.updated: list[bytes] = []
        self.origins: list[bytes] = []
        self.events: list[bytes] = []
        self.tasks: list[bytes] = []
        self.leases: list[bytes] = []
        self.lease_seconds: list[float] = []
        self.leases_ended: list[bytes] = []
        self.renewals: list[bytes] = []
        self.timers: list[bytes] = []
        self.timers_gone: list[bytes] = []
        self.commands: list[int] = []
        self.repeats: list[int] = []
        self.snapshots: list[int] = []
        self.rare: list[int] = []
        self.parking: list[int] = []

    def arguments(self) -> tuple[str | bytes, ...]:
        texts = [text.encode() for text in self.texts.values_in_order()]
        times = [_microseconds(time) for time in self.times.values_in_order()]
        return (
            self.service,
            _array(_UUID, [id.bytes for id in self.ids.values_in_order()]),
            _array(_TEXT, texts),
            _numbers(times, _TIME),
            _array(_JSON, self.docs),
            _array(_BYTEA, self.blobs),
            _rows(self.partitions),
            _rows(self.created),
            _rows(self.updated),
            _rows(self.origins),
            _rows(self.events),
            _rows(self.tasks),
            _rows(self.leases),
            _floats(self.lease_seconds),
            _rows(self.leases_ended),
            _rows(self.renewals),
            _rows(self.timers),
            _rows(self.timers_gone),
            _numbers(self.commands),
            _numbers(self.repeats),
            _numbers(self.snapshots),
            _numbers(self.rare),
            _numbers(self.parking),
        )

    def doc(self, value: bytes | None) -> int:
        if value is None:
            return 0
        self.docs.append(value)
        return len(self.docs)

    def blob(self, value: bytes | None) -> int:
        if value is None:
            return 0
        self.blobs.append(value)
        return len(self.blobs)


def _microseconds(time: datetime) -> int:
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _array(element: int, values: Collection[bytes]) -> bytes:
    if not values:
        return _EMPTY(0, 0, element)
    parts = [_HEADER(1, 0, element, len(values), 1)]
    for value in values:
        parts += (_LENGTH(len(value)), value)
    return b"".join(parts)


def _rows(rows: list[bytes]) -> bytes:
    if not rows:
        return _NO_NUMBERS
    body = b"".join(rows)
    return _HEADER(1, 0, _INT8, len(body) // 12, 1) + body


def _numbers(values: Collection[int], element: int = _INT8) -> bytes:
    if not values:
        return _EMPTY(0, 0, element)
    return _HEADER(1, 0, element, len(values), 1) + _each(_NUMBER(8, value) for value in values)


def _floats(values: Collection[float]) -> bytes:
    if not values:
        return _EMPTY(0, 0, _FLOAT8)
    return _HEADER(1, 0, _FLOAT8, len(values), 1) + _each(_FLOAT(8, value) for value in values)


def _each(parts: Iterable[bytes]) -> bytes:
    return b"".join(parts)


_NO_NUMBERS = _EMPTY(0, 0, _INT8)
