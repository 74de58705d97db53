"""Who is refused when a queue is full: room for a query at the cost of those that come after it.

A queue holds so many queries, and so many bytes of them. While it has room, a task may fill all of
it. When it is full, those are refused first

1. whose client holds more of the queue than the share of its key,
2. then whose task holds more than its share,
3. then those of the lowest priority,
4. then those with the latest deadline,

whether they wait or are the newcomer. So what waits without hurry, of whomever, never keeps out a
client and a task that are within their shares.

Shares are those of ``planner.batching.refusal_order`` and ``planner.batching.fairness``, among
those that wait here. Going through the queue takes time in proportion to it, so room is made for a
few at once, and for a moment whoever ranks no better than the last who waits is refused without
another look, whoever it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple

from planner.batching.fairness import entitled
from planner.batching.variant_queues import Item, TaskShare

AT_ONCE = 32
"""Room is made for so many queries."""
STANDS_MS = 50.0
"""For so long newcomers that rank no better than the last of a look are refused unseen."""

Rank = tuple[bool, bool, int, float]
"""Whether its client is over its share; its task; its priority, 1 is the highest; its deadline."""
Excess = dict[str, float]
"""Who holds more of a queue than his share, and how much more."""


def one(_: Item) -> int:
    """The size of a query where queries are counted."""
    return 1


class Look(NamedTuple):
    """What was found when all that waited was looked through."""

    until_ms: float
    clients: frozenset[str]
    """Names of the clients that are over their share; ``tasks`` likewise."""
    tasks: frozenset[str]
    mark: Rank
    """Who ranks no better is refused, ..."""
    needed: int
    """... if it needs as much room as this."""


class QueueRoom:
    """Finds who has to leave a full queue. Deterministic; knows no clock."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: dict[Callable[[Item], int], Look] = {}
        """The last ones, by what was counted."""

    def leaving(
        self,
        newcomer: Item,
        waiting: Callable[[], Iterable[Item]],
        now_ms: float,
        needed: int,
        size_of: Callable[[Item], int],
    ) -> list[Item]:
        """Those that are refused in the place of a newcomer; none if it is refused itself.

        Args:
            waiting: gives all that wait.
            needed: so much room there has to be, in the unit of ``size_of``.
            size_of: what a query takes of the queue.
        """
        last = self._looks.get(size_of)
        if (
            last is not None
            and now_ms < last.until_ms
            and needed >= last.needed
            and _rank(newcomer, last.clients, last.tasks) >= last.mark
        ):
            return []
        items = list(waiting())
        everybody = [*items, newcomer]
        over = clients_over(everybody, size_of), tasks_over(everybody, size_of)
        rank = _rank(newcomer, *over)
        after = [item for item in items if _rank(item, *over) > rank]
        spare_clients, spare_tasks = map(dict, over)
        left: list[Item] = []
        room = 0
        order = nlargest(AT_ONCE, after, key=lambda item: _rank(item, *over))
        if sum(map(size_of, order)) < needed:
            order = sorted(after, key=lambda item: _rank(item, *over), reverse=True)
        for item in order:
            if len(left) >= AT_ONCE and room >= needed:
                break
            name, task = item.client.name, item.queue.task
            spare, holder = (spare_clients, name) if name in spare_clients else (spare_tasks, task)
            excess = spare.get(holder)
            if excess is not None and room >= needed:
                if excess <= 0:
                    continue  # it has come down to its share
                spare[holder] = excess - size_of(item)
            left.append(item)
            room += size_of(item)
        until_ms, clients, tasks = now_ms + STANDS_MS, frozenset(over[0]), frozenset(over[1])
        if room < needed and after:
            self._looks[size_of] = Look(until_ms, clients, tasks, rank, needed)
            return []
        if room < needed:
            left = []
        gone = set(left)
        worst = max((_rank(item, *over) for item in items if item not in gone), default=rank)
        self._looks[size_of] = Look(until_ms, clients, tasks, worst, 0)
        return left


class LeavableQueue(ABC):
    """A queue that queries may leave before they run."""

    def __init__(self) -> None:
        self._room = QueueRoom()

    def make_room(
        self, item: Item, now_ms: float, needed: int = 1, size_of: Callable[[Item], int] = one
    ) -> list[Item]:
        """Take out those that are refused so that a query can be queued (``QueueRoom``)."""
        left = self._room.leaving(item, self._items, now_ms, needed, size_of)
        self._take_out(left, now_ms)
        return left

    def withdraw(self, gone: Callable[[Item], bool], now_ms: float) -> list[Item]:
        """Take out queries that nobody waits for any more."""
        left = [item for item in self._items() if gone(item)]
        self._take_out(left, now_ms)
        return left

    @abstractmethod
    def _items(self) -> list[Item]:
        """All that wait."""

    @abstractmethod
    def _take_out(self, left: Sequence[Item], now_ms: float) -> None:
        """Take these out."""


def clients_over(items: Sequence[Item], size_of: Callable[[Item], int]) -> Excess:
    """The clients that hold more of a queue than their share."""
    if all(item.client is items[0].client for item in items):
        return {}
    held: dict[str, float] = {}
    weights: dict[str, float] = {}
    for item in items:
        name = item.client.name
        held[name] = held.get(name, 0.0) + size_of(item)
        weights[name] = item.client.weight
    unit = sum(held.values()) / sum(weights.values())
    excess = {name: held[name] - weights[name] * unit for name in held}
    return {name: more for name, more in excess.items() if more > 0.0}


def tasks_over(items: Sequence[Item], size_of: Callable[[Item], int]) -> Excess:
    """The tasks that hold more of a queue than their share."""
    held: dict[str, float] = {}
    shares: dict[str, TaskShare] = {}
    for item in items:
        task = item.queue.task
        held[task] = held.get(task, 0.0) + size_of(item)
        shares[task] = item.queue.task_share
    if len(held) < 2:
        return {}
    total = sum(held.values())
    active = list(shares.values())
    excess = {task: held[task] - total * entitled(shares[task], active) for task in held}
    return {task: more for task, more in excess.items() if more > 0.0}


def _rank(item: Item, clients: Container[str], tasks: Container[str]) -> Rank:
    return (
        item.client.name in clients,
        item.queue.task in tasks,
        item.priority,
        item.deadline_ms,
    )
