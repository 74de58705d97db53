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
those that wait here. Going through the
queue takes time in proportion to it, so room is made for a few at once, and who is refused is told
so for a moment without another look.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest

from planner.batching.fairness import entitled
from planner.batching.variant_queues import Item, TaskShare

AT_ONCE = 32
"""Room is made for so many queries."""
MOST_REFUSED = 1_000
"""Clients and tasks whose refusals are kept."""
STANDS_MS = 50.0
"""For so long newcomers that rank no better than one that was refused are refused unseen."""

Rank = tuple[bool, bool, int, float]
"""Whether its client is over its share; its task; its priority, 1 is the highest; its deadline."""
Excess = dict[str, float]
"""Who holds more of a queue than his share, and how much more."""


def one(_: Item) -> int:
    """The size of a query where queries are counted."""
    return 1


class QueueRoom:
    """Finds who has to leave a full queue. Deterministic; knows no clock."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], tuple[float, tuple[int, float]]] = {}
        """By client and task: until when newcomers are refused that rank no better than this."""

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
        who = (newcomer.client.name, newcomer.queue.task)
        own = (newcomer.priority, newcomer.deadline_ms)
        until_ms, mark = self._refused.get(who, (now_ms, own))
        if now_ms < until_ms and own >= mark:
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
        if room < needed:
            if len(self._refused) >= MOST_REFUSED:
                self._refused.clear()
            self._refused[who] = (now_ms + STANDS_MS, own)
            return []
        self._refused.pop(who, None)
        return left


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


def _rank(item: Item, clients: Excess, tasks: Excess) -> Rank:
    return (
        item.client.name in clients,
        item.queue.task in tasks,
        item.priority,
        item.deadline_ms,
    )
