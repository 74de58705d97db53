"""A queue in which clients take turns, so that one with much in it does not hold up the others."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items of clients: of each in the order in which they came, and one of each in turn."""

    def __init__(self) -> None:
        self._items: dict[str, deque[Item]] = {}
        """By client, in the order of their turns; none is empty."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, client: str) -> int:
        """How many of a client's are in it."""
        return len(self._items.get(client, ()))

    def append(self, client: str, item: Item) -> None:
        self._items.setdefault(client, deque()).append(item)
        self._count += 1

    def first(self) -> Item:
        """The next one, which stays the next whatever is appended. There has to be one."""
        return next(iter(self._items.values()))[0]

    def popleft(self) -> Item:
        """Take the next one out; then it is another client's turn. There has to be one."""
        client, own = next(iter(self._items.items()))
        item = own.popleft()
        del self._items[client]
        if own:
            self._items[client] = own
        self._count -= 1
        return item

    def clear(self) -> None:
        self._items.clear()
        self._count = 0
