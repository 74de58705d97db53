"""Menus: what a worker can do for a task, as time against accuracy, and what device time is worth.

*Menu.* Of the ready variants of a task on a worker, those on the upper concave hull of accuracy
over the time of one row. Whatever a millisecond of the worker costs, one of them is the best there.

*Price range.* Below the least gain of accuracy per ms that any menu offers, a price changes no
choice; above the largest, every query takes the quickest variant. Prices run between the two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import exp, inf, log, sqrt
from typing import NamedTuple

from planner.selection.eligibility import answers
from planner.selection.load_balancing import COMPARED, SPREAD, FirstFree, WorkerSet, stale
from planner.types import Candidate, Snapshot, TaskView, WorkerView
from planner.upper_hull import upper_hull
from variants.types import DeviceKindName, TaskName, WorkerId

ALIKE = 1.05
"""Times this, a variant takes as long as another one that is more accurate: profiles of the same
variant differ by as much, and a gain over no time would be the top of all prices."""
LEAST_RATIO = 2.0
"""Of the highest price to the lowest. With one gain only, a price that never moves would either
change every choice or none."""
NEIGHBOURS = 8
"""Workers of a group that are compared, from one drawn at random on."""
HIGHEST_FILL = 4.0
"""Beyond this multiple of its room a backlog does not raise the price any more."""
FEW_GROUPS = 16
"""Where there are at most so many groups of few workers each, all of these are looked at."""
LOOKED_AT = 16
"""Of many workers, so many are looked at together before a query is refused."""
LOOKS = 16
"""So often, the next ones each time, until one completes in time."""
ORDERED_PER_LOOK = 32
"""Workers are put in order anew when this times the looks since then are as many as they."""
MOST_FLOORS = 256
"""Floors for which the least cost is remembered."""


class PriceRange(NamedTuple):
    """Accuracy that a millisecond of a worker is worth, from when it is idle to when it is full."""

    least: float
    growth: float
    """``log`` of the largest over the least."""

    def at(self, fill: float) -> float:
        """The price at a backlog of ``fill`` times the worker's room.

        It grows exponentially, as in online knapsack problems, where that loses least against an
        optimum that knows the future (Zhou, Chakrabarty, Lukose, WINE'08).
        """
        return self.least * exp(self.growth * min(fill, HIGHEST_FILL))


class Menu:
    """The variants of a task on a worker that are the best at some price, the quickest first."""

    __slots__ = ("accuracies", "candidates", "gains", "held", "ms", "quickest_ms")

    def __init__(self, candidates: Sequence[Candidate], held: Sequence[Candidate] = ()) -> None:
        """
        Args:
            candidates: on the hull, ascending by time and accuracy, at least one.
            held: all that they were taken from.
        """
        self.candidates = tuple(candidates)
        self.held = held
        self.accuracies = [c.accuracy for c in candidates]
        self.ms = [c.table.ms[1] for c in candidates]
        self.quickest_ms = self.ms[0]
        steps = pairwise(zip(self.ms, self.accuracies, self.candidates, strict=True))
        self.gains = [-_gain(one, two) for one, two in steps]
        """Accuracy per ms of each step up, negative and so ascending."""

    def best(
        self, price: float, left_ms: float, rows: int, floor: float | None, ceiling: float | None
    ) -> Candidate | None:
        """The variant that is worth most at a price per ms, within a time and the query's limits.

        None when none of the menu is quick enough, or meets the limits.
        """
        at = bisect_right(self.gains, -price)
        if floor is not None:
            at = max(at, bisect_left(self.accuracies, floor))
            if at == len(self.ms):
                return None
        if self.ms[at] > left_ms:
            at = bisect_right(self.ms, left_ms, 0, at) - 1
        if rows == 1 and ceiling is None and floor is None:
            return self.candidates[at] if at >= 0 else None
        while at >= 0:
            candidate = self.candidates[at]
            if floor is not None and candidate.accuracy < floor:
                return None
            table = candidate.table
            if (
                rows <= table.max_batch
                and table.ms[rows] <= left_ms
                and (ceiling is None or candidate.price_usd_per_1k <= ceiling)
            ):
                return candidate
            at -= 1
        return None


class MenuGroup:
    """Workers of one kind that have the same menu for a task.

    It remembers the runner-up of its last comparison: with it, eight neighbours find less busy
    workers than sixteen without, however many there are (Mitzenmacher, Prabhakar, Shah, *Load
    Balancing with Memory*, FOCS 2002).
    """

    __slots__ = ("_circle", "_runner_up", "_span", "menu", "workers")

    def __init__(self, menu: Menu, workers: tuple[WorkerView, ...]) -> None:
        """``workers``: at least one."""
        self.menu = menu
        self.workers = workers
        self._runner_up = workers[0]
        self._circle = workers + workers[: NEIGHBOURS - 1]
        """The workers, and the first of them again: neighbours from one on are one slice."""
        self._span = min(NEIGHBOURS, len(workers))

    def idlest(self, draw: int, now_ms: float, avoid: WorkerId | None) -> WorkerView | None:
        """The worker that is free first, of ``NEIGHBOURS`` and the last runner-up.

        An idle one that is drawn first is taken at once. None where there is none but ``avoid``.
        """
        workers = self.workers
        count = len(workers)
        if count == 1:
            return None if workers[0].id == avoid else workers[0]
        first = draw % count
        drawn = workers[first]
        if drawn.busy_until_ms <= now_ms and drawn.id != avoid:
            return drawn
        some: Sequence[WorkerView] = self._circle[first : first + self._span]
        known = self._runner_up
        found: WorkerView | None = known
        found_ms = known.busy_until_ms
        if avoid is not None:
            some = [worker for worker in some if worker.id != avoid]
            if known.id == avoid:
                found, found_ms = None, inf
        second: WorkerView | None = None
        second_ms = inf
        for worker in some:
            busy_ms = worker.busy_until_ms
            if busy_ms < second_ms and worker is not known:
                if busy_ms < found_ms:
                    second, second_ms = found, found_ms
                    found, found_ms = worker, busy_ms
                else:
                    second, second_ms = worker, busy_ms
        if second is not None:
            self._runner_up = second
        return found


WorkerMenu = tuple[WorkerView, Menu]
"""A worker with what it can do."""


class Menus:
    """All that can be done for a task, by groups of workers, and who could answer first.

    Few groups of many workers have a heap each. Of many groups a look at some finds little: there
    workers are kept in the order in which they could answer with their quickest variant, and sorted
    anew only after so many looks as are a part of their number. Who gets work meanwhile stands too
    far in front until then, and is seen to be busy.
    """

    __slots__ = ("_least_usd", "_looks", "_sorted_ms", "_workers", "few", "first_free", "groups")

    def __init__(
        self, groups: Sequence[MenuGroup], shared: dict[WorkerSet, FirstFree] | None = None
    ) -> None:
        """``shared`` has who is free first of the sets of workers of other tasks, by identity; what
        is new is added."""
        shared = {} if shared is None else shared
        self.groups = tuple(groups)
        self.few = len(groups) <= FEW_GROUPS and all(len(g.workers) <= COMPARED for g in groups)
        """Whether all workers are looked at rather than the first ones."""
        self.first_free: tuple[FirstFree, ...] = ()
        """One for each group, where there are few groups of many workers."""
        if not self.few and len(groups) <= FEW_GROUPS:
            keyed = [(g.workers, tuple(map(id, g.workers))) for g in groups]
            self.first_free = tuple(
                shared.setdefault(key, FirstFree(workers, key)) for workers, key in keyed
            )
        self._workers: list[WorkerMenu] = []
        self._looks, self._sorted_ms = 0, -inf
        self._least_usd: dict[float | None, float] = {}

    def least_usd(self, floor: float | None) -> float:
        """Of device time for a row, where it costs least, in full batches: 3.6e9 for 1 USD."""
        known = self._least_usd.get(floor)
        if known is None:
            if len(self._least_usd) > MOST_FLOORS:
                self._least_usd.clear()
            known = self._least_usd[floor] = min(
                [
                    candidate.table.row_ms * candidate.usd_per_hour
                    for group in self.groups
                    for candidate in group.menu.candidates
                    if floor is None or candidate.accuracy >= floor
                ],
                default=0.0,
            )
        return known

    def shared(self) -> dict[WorkerSet, FirstFree]:
        """Who is free first of each group's workers, for other tasks."""
        return {free.key: free for free in self.first_free}

    def first(
        self, now_ms: float, draw: int, avoid: WorkerId | None
    ) -> Iterator[Sequence[WorkerMenu]]:
        """Workers that could answer first, some at a time; gateways that know the same begin at
        different ones of them."""
        if self.first_free:
            pairs = zip(self.groups, self.first_free, strict=True)
            looks = [(group.menu, *free.look(now_ms, draw, avoid)) for group, free in pairs]
            yield [(some, menu) for menu, _, some in looks]
            yield [(first, menu) for menu, first, _ in looks]
            return
        if not self._workers or self._looks * ORDERED_PER_LOOK >= len(self._workers):
            self._sort(now_ms)
        self._looks += 1
        begin = draw % SPREAD if len(self._workers) > SPREAD else 0
        ordered = self._workers[begin : LOOKS * LOOKED_AT] + self._workers[:begin]
        for at in range(0, len(ordered), LOOKED_AT):
            yield ordered[at : at + LOOKED_AT]

    def renewed(self, now_ms: float) -> bool:
        """Put the workers in order anew, unless that was done a moment ago."""
        if self.first_free:
            renewed = [free.renewed(now_ms) for free in self.first_free]
            return any(renewed)
        if not stale(len(self._workers), self._looks, now_ms - self._sorted_ms):
            return False
        self._sort(now_ms)
        return True

    def _sort(self, now_ms: float) -> None:
        def answered_ms(one: WorkerMenu) -> float:
            return max(one[0].busy_until_ms, now_ms) + one[1].quickest_ms

        if not self._workers:
            self._workers = [(w, group.menu) for group in self.groups for w in group.workers]
        self._workers.sort(key=answered_ms)
        self._looks, self._sorted_ms = 0, now_ms


def hull(points: Iterable[tuple[float, float, Candidate]]) -> list[tuple[float, float, Candidate]]:
    """Of (time, accuracy, candidate), those on the upper concave hull, ascending in both."""
    return upper_hull(sorted(points, key=lambda p: (p[0], -p[1], p[2].variant)))


def menu_groups(view: TaskView, before: Iterable[MenuGroup] = ()) -> tuple[MenuGroup, ...]:
    """The workers that hold variants of a task, by what they can do for it, in a fixed order.

    Menus of the groups ``before`` are taken over where they are of the same candidates: a load
    changes those of few workers.
    """
    sets: dict[int, tuple[tuple[WorkerView, ...], list[int]]] = {}
    """By identity, since equal sets of workers are the same tuple: who holds which candidates."""
    candidates = view.by_accuracy
    for number, candidate in enumerate(candidates):
        if answers(candidate, None) and candidate.ready:
            sets.setdefault(id(candidate.ready), (candidate.ready, []))[1].append(number)
    held: dict[WorkerId, int] = {}
    """In which of these sets a worker is, a bit for each."""
    views: dict[WorkerId, WorkerView] = {}
    for at, (workers, _) in enumerate(sets.values()):
        bit = 1 << at
        for worker in workers:
            id_ = worker.id
            if id_ in held:
                held[id_] |= bit
            else:
                held[id_], views[id_] = bit, worker
    alike: dict[int, list[WorkerView]] = {}
    for id_ in sorted(held):
        alike.setdefault(held[id_], []).append(views[id_])
    known = {tuple(map(id, group.menu.held)): group.menu for group in before}
    numbers = [those for _, those in sets.values()]
    found: list[MenuGroup] = []
    for bits, those in alike.items():
        able = [
            candidates[number]
            for at, some in enumerate(numbers)
            if bits >> at & 1
            for number in some
        ]
        menu = known.get(tuple(map(id, able)))
        found.append(MenuGroup(_menu(able) if menu is None else menu, tuple(those)))
    return tuple(found)


def _menu(held: Sequence[Candidate]) -> Menu:
    """Of the candidates that workers hold, at least one."""
    if len(held) == 1:
        return Menu(held, held)
    return Menu([c for *_, c in hull([(c.table.ms[1], c.accuracy, c) for c in held])], held)


Gains = tuple[float, ...]
"""The least and the largest of some gains of accuracy per ms; empty where there are none."""
KnownGains = dict[TaskName, Gains]
"""Those between the variants of a task on each of its kinds, where they were asked for."""


def price_range(
    snapshot: Snapshot, tasks: Iterable[TaskName], known: KnownGains | None = None
) -> PriceRange:
    """The prices that make a difference for some tasks, on the device kinds of the catalog.

    The least gain is that of single rows, the largest that of rows in full batches. Where no kind
    has variants to choose from, they are those between kinds; where all variants are as accurate,
    time has no price.

    Args:
        known: of the same catalog; what is found is added.
    """
    tasks = list(tasks)
    known = {} if known is None else known
    for task in tasks:
        if task not in known:
            known[task] = _ends([g for c in _by_kind(snapshot, task) for g in _gains(c)])
    gains = [gain for task in tasks for gain in known[task]] or [
        gain for task in tasks for gain in _gains_between(_by_kind(snapshot, task))
    ]
    if not gains:
        return PriceRange(0.0, 0.0)
    least, most = min(gains), max(gains)
    if most < LEAST_RATIO * least:
        middle, half = sqrt(least * most), sqrt(LEAST_RATIO)
        least, most = middle / half, middle * half
    return PriceRange(least, log(most / least))


def _by_kind(snapshot: Snapshot, task: TaskName) -> list[list[Candidate]]:
    """The candidates of a task that queries may be given, of each kind."""
    view = snapshot.tasks.get(task)
    kinds: dict[DeviceKindName, list[Candidate]] = {}
    for candidate in view.by_accuracy if view is not None else ():
        if answers(candidate, None):
            kinds.setdefault(candidate.device_kind, []).append(candidate)
    return list(kinds.values())


def _ends(gains: Sequence[float]) -> Gains:
    return (min(gains), max(gains)) if gains else ()


def _gains_between(kinds: Sequence[Sequence[Candidate]]) -> list[float]:
    return _gains([c for candidates in kinds for c in candidates]) if len(kinds) > 1 else []


def _gains(candidates: Sequence[Candidate]) -> list[float]:
    """Accuracy per ms of every step up, of single rows and of rows in full batches."""
    single = hull(_distinct([(c.table.ms[1], c.accuracy, c) for c in candidates]))
    shared = hull(_distinct([(c.table.row_ms, c.accuracy, c) for c in candidates]))
    return [_gain(*step) for step in (*pairwise(single), *pairwise(shared))]


def _distinct(points: list[tuple[float, float, Candidate]]) -> list[tuple[float, float, Candidate]]:
    """Those than which no other that takes as long, by ``ALIKE``, is more accurate."""
    points.sort(key=lambda p: p[0])
    found, best, ahead = [], 0.0, 0
    for point in points:
        while ahead < len(points) and points[ahead][0] <= point[0] * ALIKE:
            best = max(best, points[ahead][1])
            ahead += 1
        if point[1] >= best:
            found.append(point)
    return found


def _gain(one: tuple[float, float, Candidate], two: tuple[float, float, Candidate]) -> float:
    """Accuracy per ms between two points."""
    return (two[1] - one[1]) / max(two[0] - one[0], 1e-9)
