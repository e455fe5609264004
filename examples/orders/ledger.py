"""The shop's own memory of what really happened: a small SQLite file that all its workers share.

An activity runs at least once. So each effect is booked under `ctx.effect_key`, which is the same for every attempt
of a task: a second attempt finds it booked and changes nothing. `calls` keeps every attempt, `effects` every effect.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast import ActivityContext

LEDGER_SETTING = "ORDERS_LEDGER"

_TABLES = """
CREATE TABLE IF NOT EXISTS calls (
    number INTEGER PRIMARY KEY, order_id TEXT NOT NULL, action TEXT NOT NULL, attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL, pid INTEGER NOT NULL, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);
CREATE TABLE IF NOT EXISTS effects (
    number INTEGER PRIMARY KEY, effect_key TEXT NOT NULL UNIQUE, order_id TEXT NOT NULL, action TEXT NOT NULL,
    attempt INTEGER NOT NULL, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);
"""


class Call(NamedTuple):
    order_id: str
    action: str
    attempt: int
    pid: int


class Ledger:
    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(os.environ.get(LEDGER_SETTING, ".holdfast/orders.sqlite"))

    def called(self, ctx: ActivityContext, order_id: str) -> None:
        """An attempt begins; nothing has happened in the world yet."""
        with self._open() as book:
            book.execute(
                "INSERT INTO calls (order_id, action, attempt, fence, pid) VALUES (?, ?, ?, ?, ?)",
                (order_id, ctx.activity, ctx.attempt, ctx.fence_token, os.getpid()),
            )

    def effect(self, ctx: ActivityContext, order_id: str) -> bool:
        """Do it, once per effect key; False when it had been done before."""
        with self._open() as book:
            done = book.execute(
                "INSERT OR IGNORE INTO effects (effect_key, order_id, action, attempt) VALUES (?, ?, ?, ?)",
                (ctx.effect_key, order_id, ctx.activity, ctx.attempt),
            )
            return done.rowcount == 1

    def calls(self, order_id: str) -> list[Call]:
        with self._open() as book:
            rows = book.execute(
                "SELECT order_id, action, attempt, pid FROM calls WHERE order_id = ? ORDER BY number", (order_id,)
            )
            return [Call(*row) for row in rows]

    def effects(self, order_id: str) -> list[str]:
        """The actions that took effect for an order, in order."""
        with self._open() as book:
            rows = book.execute("SELECT action FROM effects WHERE order_id = ? ORDER BY number", (order_id,))
            return [action for (action,) in rows]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # A connection per use: activities run in several threads, and SQLite's connections belong to one.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        book = sqlite3.connect(self.path, timeout=30)
        try:
            with book:
                if not self._ready(book):
                    book.executescript(_TABLES)
                yield book
        finally:
            book.close()

    @staticmethod
    def _ready(book: sqlite3.Connection) -> bool:
        found = book.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('calls', 'effects')").fetchone()
        return bool(found[0] == 2)
