"""What Postgres and asyncpg raise, in the words of `holdfast.store.errors`."""

import asyncio
import contextlib
from collections.abc import Iterator
from uuid import UUID

import asyncpg

from holdfast.core.errors import Fenced, HoldfastError, Refused, Transient
from holdfast.core.ids import InstanceId
from holdfast.store.errors import Conflict, UnknownOutcome, Unstorable

_FENCED = "HF001"
_CONFLICT = "HF002"
_NO_PARTITION = "HF004"

# Connection trouble, too many connections, shutdown, deadlock, serialization, time-outs: the same again later may work.
_TRANSIENT_CLASSES = ("08", "40", "53", "57", "55", "58", "25")
# The data itself: bad text, out of range, a check that fails, larger than Postgres can keep.
_UNSTORABLE_CLASSES = ("22", "54")
_UNSTORABLE = ("23502", "23514")
_SCHEMA = ("42P01", "42883", "42703", "3F000")
# InternalClientError: the server hung up while the connection was idle, and asyncpg has not noticed yet.
_LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncio.TimeoutError)


def _instances(detail: str | None) -> frozenset[InstanceId]:
    return frozenset(InstanceId(UUID(word)) for word in (detail or "").split())


def translate(error: BaseException) -> HoldfastError | None:
    """None: not for us to translate, a bug."""
    if isinstance(error, asyncpg.PostgresError):
        return _of_sqlstate(error)
    if isinstance(error, asyncpg.DataError | UnicodeEncodeError | OverflowError):
        return Unstorable(f"cannot be sent to Postgres: {error}"[:500])
    if isinstance(error, _LOST):
        return Transient(f"Postgres does not answer: {type(error).__name__}: {error}"[:500])
    return None


def _of_sqlstate(error: asyncpg.PostgresError) -> HoldfastError | None:
    state = error.sqlstate or ""
    text = f"{error.message if hasattr(error, 'message') else error} ({state})"
    if state == _FENCED:
        return Fenced(text)
    if state == _CONFLICT:
        return Conflict(text, _instances(getattr(error, "detail", None)))
    if state == _NO_PARTITION:
        return Refused(
            "partition_missing", f"{error}; run `holdfast topics create`, or check that topics and database match"
        )
    if state[:2] in _UNSTORABLE_CLASSES or state in _UNSTORABLE:
        return Unstorable(text)
    if state in _SCHEMA:
        return Refused("schema_behind", f"{text}: run `holdfast migrate`")
    if state[:2] in _TRANSIENT_CLASSES:
        return Transient(text)
    if state[:2] == "28" or state == "3D000":
        return Refused("database_login", text)
    return None


@contextlib.contextmanager
def translated(*, committing: bool = False) -> Iterator[None]:
    """With `committing`, a connection that broke says nothing about what the database did."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        if committing and type(known) is Transient and not _surely_rolled_back(error):
            raise UnknownOutcome(str(known)) from error
        raise known from error


def _surely_rolled_back(error: Exception) -> bool:
    """The server said so, in an answer to this statement. A shutdown or crash (57P0x) may come after the commit."""
    if not isinstance(error, asyncpg.PostgresError):
        return False
    state = error.sqlstate or ""
    return state[:2] not in ("08", "57") or state == "57014"
