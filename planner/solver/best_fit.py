"""Best fit: devices are opened one by one until everything is served.

Each device is the one that serves most worth for its price: a kind, a class to begin with, and
beside it whatever fits, best first (greedy set cover; Chvatal, Math. Oper. Res. 4, 1979).
"""

from collections.abc import Callable, Sequence
from math import fsum, inf
from typing import Any, NamedTuple

from planner.solver.device import FULL, ROUNDING, Device
from planner.solver.options import CLOSE, Options
from planner.solver.packing import pack
from planner.solver.partial_solution import PartialSolution

SEEDS = 12
"""Classes that are tried as the first of a new device."""
SMALL = 2_000
"""Classes x devices up to which devices are opened one by one."""


class _Filled(NamedTuple):
    """A device of its own, filled with what is missing."""

    device: Device
    worth: float
    """Of what it serves."""
    score: tuple[float, float]
    """Its worth for its price, then its worth alone."""
    looked_at: Sequence[int]
    """The classes that were looked at, until it was full or there were no more."""
    taken: Sequence[tuple[int, float, float]]
    """Of each class that had room: which one, the rate that it had room for, and the rate that was
    missing."""

    def again(self, order: Sequence[int], missing: Sequence[float]) -> bool:
        """Whether the same comes of these classes in this order, of which so much is missing."""
        seen = self.looked_at
        if len(order) < len(seen) or (len(order) > len(seen) and self.device.left > FULL):
            return False
        if order[: len(seen)] != seen:
            return False
        return all(
            missing[demand] == was or (missing[demand] >= room_qps and was >= room_qps)
            for demand, room_qps, was in self.taken
        )


class Ranking:
    """Which option of a class is preferred on a kind, and what serving the class is worth."""

    __slots__ = ("_orders", "by_kind", "filled", "options", "worth")

    def __init__(self, options: Options, *, cost: bool, time_price: float = inf) -> None:
        """Rank by accuracy less time at a price.

        Args:
            options: of the problem.
            cost: a query is worth what it costs at least; otherwise all are worth the same.
            time_price: accuracy per ms of device time; at an infinite price, time alone counts.
        """
        self.options = options
        self._orders: dict[int, tuple[list[int], list[int]]] = {}
        self.filled: dict[tuple[int, int], _Filled] = {}
        """By kind and the class to begin with: the device that was filled so last. From one opened
        device to the next most classes miss more than one has room for."""
        self.worth = [1.0] * len(options.of_class)
        """Per class: the worth of a query."""
        thrifty = cost and options.has_work
        self.by_kind: list[list[list[int]]] = (
            self._ranked(options.cost)
            if thrifty
            else options.once(
                ("ranked", time_price),
                lambda: self._ranked(lambda index: self._key(index, time_price)),
            )
        )
        """Per class and kind: indices of its options, the preferred one first."""
        if thrifty:
            self.worth = self._worth()
        elif cost:
            self.worth = options.once("worth", self._worth)

    def orders(self, kind: int) -> tuple[Sequence[int], Sequence[int]]:
        """The classes that a kind can serve: those worth most for its time first, and the same, the
        tightest SLO first."""
        found = self._orders.get(kind)
        if found is None:
            options, worth = self.options, self.worth
            first = {c: some[kind][0] for c, some in enumerate(self.by_kind) if some[kind]}
            density = {
                c: worth[c] / max(options.all[index].alone.unit_ms, 1e-9)
                for c, index in first.items()
            }
            dense = sorted(density, key=lambda c: (-density[c], options.left_ms(c), c))
            found = self._orders[kind] = (dense, sorted(dense, key=options.left_ms))
        return found

    def _worth(self) -> list[float]:
        options, every = self.options, self.options.all
        worth = [1.0] * len(options.of_class)
        for demand, found in enumerate(options.of_class):
            if found:
                worth[demand] = min(
                    [
                        options.prices[every[i].kind] * every[i].alone.unit_ms
                        + 1_000 * options.work(i, every[i].alone)
                        for i in found
                    ]
                )
        return worth

    def _ranked(self, key: Callable[[int], Any]) -> list[list[list[int]]]:
        made = []
        for found in self.options.of_class:
            per_kind: list[list[int]] = [[] for _ in self.options.counts]
            for index in sorted(found, key=key):
                per_kind[self.options.all[index].kind].append(index)
            made.append(per_kind)
        return made

    def _key(self, index: int, time_price: float) -> tuple[float, float, int]:
        option = self.options.all[index]
        if time_price == inf:
            return (option.alone.unit_ms, -option.accuracy, index)
        return (time_price * option.alone.unit_ms - option.accuracy, option.alone.unit_ms, index)


def build(
    options: Options, ranking: Ranking, kinds: Sequence[int] | None = None
) -> PartialSolution:
    """Open devices until everything is served or nothing can be opened; of some kinds first."""
    partial = PartialSolution(options)
    extend(partial, ranking, kinds)
    if kinds is not None:
        extend(partial, ranking)
    return partial


def extend(
    partial: PartialSolution,
    ranking: Ranking,
    kinds: Sequence[int] | None = None,
    below_usd: float = inf,
) -> None:
    """Serve what is missing: first on what is open, then on new devices.

    A plan that costs ``below_usd`` an hour or more is of no use: where all of what is missing would
    take it there, not all of it is served.
    """
    options = partial.options
    if partial.devices:
        none_more = partial.usd_per_hour + partial.usd_of_another >= below_usd
        fill_open(partial, ranking, whole=none_more)
    if kinds is None and is_large(options):
        _in_bulk(partial, ranking)
    while not partial.complete and least_usd(partial, ranking) < below_usd:
        opened = next_device(partial, ranking, kinds)
        if opened is None:
            return
        _repeat(partial, opened)


def least_usd(partial: PartialSolution, ranking: Ranking, spare_usd: float = 0.0) -> float:
    """What a plan costs at least once what is missing is served as well, by a ranking for cost.

    Args:
        spare_usd: what the time is worth that devices have left for it.
    """
    options = partial.options
    missing = [
        (rate - 2 * ROUNDING * whole) * worth  # so little counts as served
        for rate, whole, worth in zip(partial.missing, options.rates, ranking.worth, strict=True)
        if rate > 0
    ]
    missing_usd = fsum(missing) / (1_000 * options.problem.load * (1 + ROUNDING))
    more_usd = missing_usd * (1 - CLOSE) - spare_usd
    if more_usd <= 0:
        return partial.usd_per_hour
    return partial.usd_per_hour + max(more_usd, partial.usd_of_another)


def fill_open(partial: PartialSolution, ranking: Ranking, *, whole: bool = False) -> None:
    """Serve what is missing on devices that are open, the class with the tightest SLO first; where
    that has to be the ``whole`` of it, until some of a class has no room."""
    options = partial.options
    classes = [c for c, missing in enumerate(partial.missing) if missing > 0]
    large = is_large(options)
    for demand in sorted(classes, key=options.left_ms):
        rooms = []
        for at, device in enumerate(partial.devices):
            if device.left <= FULL or device.count > 1:
                continue
            for index in ranking.by_kind[demand][device.kind]:
                room = device.room(index) if large else device.make_room(index)
                if room is not None:
                    waste = room.batch.unit_ms / max(options.all[index].alone.unit_ms, 1e-12)
                    rooms.append((waste, at, index))
                    break
        for _, at, index in sorted(rooms):
            room = partial.devices[at].room(index)
            if room is not None:
                partial.serve(partial.devices[at], index, room, partial.missing[demand])
            if partial.missing[demand] <= 0:
                break
        if whole and partial.missing[demand] > 0:
            return


def _in_bulk(partial: PartialSolution, ranking: Ranking) -> None:
    """Place whole classes of a large problem, each on its best kind while there is room.

    Classes go first that would pay most for their second best kind.
    """
    options = partial.options
    room = [
        options.problem.load * (c - o) for c, o in zip(options.counts, partial.opened, strict=True)
    ]
    asking = []
    for demand, missing in enumerate(partial.missing):
        heads = [found[0] for found in ranking.by_kind[demand] if found]
        if missing <= 0 or not heads:
            continue
        costs = sorted(max(options.cost(i), 1e-9 * options.time(i)) for i in heads)
        asking.append((-(costs[1] / costs[0] if len(costs) > 1 and costs[0] else inf), demand))
    shares: dict[int, float] = {}
    for _, demand in sorted(asking):
        left = partial.missing[demand] / options.rates[demand]
        heads = [found[0] for found in ranking.by_kind[demand] if found]
        for index in sorted(heads, key=lambda i: (options.cost(i), i)):
            kind, time = options.all[index].kind, options.time(index)
            share = min(left, room[kind] / time) if time else left
            if share > 1e-9:
                shares[index] = share
                room[kind] -= share * time
                left -= share
    pack(partial, shares)
    fill_open(partial, ranking)


def next_device(
    partial: PartialSolution, ranking: Ranking, kinds: Sequence[int] | None = None
) -> Device | None:
    """Open the device that serves most worth for its price; None when none serves anything."""
    options = partial.options
    missing = partial.missing
    best: _Filled | None = None
    for kind in range(len(options.counts)) if kinds is None else kinds:
        if not partial.openable(kind):
            continue
        dense, tight = ranking.orders(kind)
        order = [c for c in dense if missing[c] > 0]
        seeds = order
        if len(order) > SEEDS:
            by_slo = [c for c in tight if missing[c] > 0]
            seeds = list(dict.fromkeys([*order[: SEEDS // 2], *by_slo[: SEEDS // 2]]))
        for seed in seeds:
            filled = _filled(partial, ranking, kind, [seed, *(c for c in order if c != seed)])
            if filled.worth > 0 and (best is None or filled.score > best.score):
                best = filled
    if best is None:
        return None
    chosen = best.device.copy()
    partial.take_in(chosen)
    return chosen


def _filled(partial: PartialSolution, ranking: Ranking, kind: int, order: Sequence[int]) -> _Filled:
    """A device that is not yet opened, filled with what is missing of these classes."""
    options, missing = partial.options, partial.missing
    known = ranking.filled.get((kind, order[0]))
    if known is not None and known.again(order, missing):
        return known
    device = Device(options, kind)
    worth, looked_at = 0.0, 0
    taken: list[tuple[int, float, float]] = []
    for demand in order:
        looked_at += 1
        for index in ranking.by_kind[demand][kind]:
            room = device.make_room(index)
            if room is not None:
                qps = min(room.qps, missing[demand])
                device.put(index, room.batch, qps)
                worth += qps * ranking.worth[demand]
                taken.append((demand, room.qps, missing[demand]))
                break
        if device.left <= FULL:
            break
    # What is free is best of all, and among the free the one that serves most.
    price = options.prices[kind] + sum(
        qps * options.work(index, batch) for index, (batch, qps) in device.parts.items()
    )
    score = (worth / price if price > 0 else inf, worth)
    found = _Filled(device, worth, score, order[:looked_at], taken)
    ranking.filled[kind, order[0]] = found
    return found


def _repeat(partial: PartialSolution, device: Device) -> None:
    """Open the same device again as long as one class alone fills it."""
    if len(device.parts) != 1:
        return
    [(index, (_, qps))] = device.parts.items()
    demand = partial.options.all[index].demand
    more = min(partial.openable(device.kind), int(partial.missing[demand] / qps))
    for _ in range(more):
        partial.take_in(device.copy())


def is_large(options: Options) -> bool:
    """Whether a problem is too large to open its devices one by one from the start."""
    return len(options.rates) * sum(options.counts) > SMALL
