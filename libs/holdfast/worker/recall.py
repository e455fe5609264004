"""Bounded memories: which dispatches this process has had, and which it was told to drop before they came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recall(Generic[K, V]):
    """A dict that forgets what was put in first. Insertion order is all the order it needs: a dispatch that is
    delivered twice comes twice within one rebalance, not within days.

    An OrderedDict, because finding the first key of a plain dict walks over all the deleted ones before it. `items` is
    for the hot path, which only asks and should not pay for a call."""

    __slots__ = ("_max", "items")

    def __init__(self, items_max: int) -> None:
        self.items: OrderedDict[K, V] = OrderedDict()
        self._max = items_max

    def put(self, key: K, value: V) -> None:
        items = self.items
        items[key] = value
        if len(items) > self._max:
            items.popitem(last=False)

    def get(self, key: K) -> V | None:
        return self.items.get(key)

    def pop(self, key: K) -> V | None:
        return self.items.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self.items

    def __len__(self) -> int:
        return len(self.items)
