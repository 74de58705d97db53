"""The planner that is always there: best fit, incremental, without a solver.

Devices are opened one by one, each as the one that serves most worth for its price: a kind, a
class to begin with, and beside it whatever fits, best first (greedy set cover; Chvatal, Math. Oper.
Res. 4, 1979). Then devices are taken out again and what they served is placed anew, as long as that
helps. For ``accuracy`` the price of device time is searched: at a low price everyone takes the best
variant and some are not served, at a high price everyone takes the fastest.
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import inf

from planner.draft import Device, Draft, better, finish
from planner.menu import Menu
from planner.pack import pack
from planner.problem import Objective, Problem, Solution

EFFORT = 60_000
"""Tries of an option on a device that improvement may take: a few hundred ms at most."""
FEW = 6
"""Devices up to which three are taken out at once, and every kind is tried in their place."""
TRIES = 40
"""Devices of a large plan that are taken out to see whether it does without them."""
RUINED = 24
"""Devices that improvement takes out, alone and in pairs."""
SEEDS = 12
"""Classes that are tried as the first of a new device."""
SMALL = 2_000
"""Classes x devices up to which devices are opened one by one."""
ROOMS = 32
"""Devices with room that parts are moved to."""
PRICES = 12
"""Steps of the search for the price of device time."""

Stop = Callable[[], bool]
"""Whether time is up."""


def greedy(problem: Problem, objective: Objective) -> Solution:
    """A plan by best fit. The bound is the trivial one: no cost, or the best accuracy offered."""
    menu = Menu(problem)
    draft = plan(menu, objective)
    best = max((option.accuracy for option in menu.options), default=0.0)
    bound = 0.0 if objective is Objective.COST else best
    return finish(draft, objective, bound=bound, notes=("best fit",))


def plan(
    menu: Menu, objective: Objective, stop: Stop = lambda: False, *, quick: bool = False
) -> Draft:
    """The best draft that best fit and its improvement find; ``quick`` leaves improvement out."""
    cost = objective is Objective.COST
    cheap, fast = _Ranking(menu, cost=True), _Ranking(menu, cost=False)
    best = _build(menu, cheap if cost else fast)
    if cost and not best.complete:
        best = _best(best, _build(menu, fast), objective)
    if quick:
        return best
    if not _large(menu):
        for ranking in (cheap, fast):
            for kinds in _subsets(menu):
                best = _best(best, _build(menu, ranking, kinds), objective)
    ranking = cheap if cost and best.complete else fast
    if not cost:
        best, ranking = _accurate(menu, best, stop)
    return _improve(best, ranking, objective, stop)


def _large(menu: Menu) -> bool:
    return len(menu.rates) * sum(menu.counts) > SMALL


def _subsets(menu: Menu) -> list[tuple[int, ...]]:
    """Kinds to begin with: each alone, and each left out."""
    kinds = range(len(menu.counts))
    alone: list[tuple[int, ...]] = [(kind,) for kind in kinds]
    others = [tuple(k for k in kinds if k != kind) for kind in kinds if len(kinds) > 2]
    return [*alone, *others]


def _best(one: Draft, other: Draft, objective: Objective) -> Draft:
    return other if better(other, one, objective) else one


class _Ranking:
    """Which option of a class is preferred on a kind, and what serving the class is worth."""

    __slots__ = ("by_kind", "menu", "worth")

    def __init__(self, menu: Menu, *, cost: bool, time_price: float = inf) -> None:
        """Rank by accuracy less time at a price; at an infinite price, by time alone.

        With ``cost``, a query is worth what it costs at least; else all are worth the same.
        """
        self.menu = menu
        self.worth = [1.0] * len(menu.of_class)
        self.by_kind: list[list[list[int]]] = []
        for demand, found in enumerate(menu.of_class):
            ranked = sorted(found, key=lambda index: self._key(index, time_price))
            per_kind: list[list[int]] = [[] for _ in menu.counts]
            for index in ranked:
                per_kind[menu.options[index].kind].append(index)
            self.by_kind.append(per_kind)
            if cost and found:
                self.worth[demand] = min(
                    menu.prices[menu.options[i].kind] * menu.options[i].alone.unit_ms for i in found
                )

    def _key(self, index: int, time_price: float) -> tuple[float, float, int]:
        option = self.menu.options[index]
        if time_price == inf:
            return (option.alone.unit_ms, -option.accuracy, index)
        return (time_price * option.alone.unit_ms - option.accuracy, option.alone.unit_ms, index)


def _build(menu: Menu, ranking: _Ranking, kinds: Sequence[int] | None = None) -> Draft:
    """Open devices until everything is served or nothing can be opened; of some kinds first."""
    draft = Draft(menu)
    extend(draft, ranking, kinds)
    if kinds is not None:
        extend(draft, ranking)
    return draft


def extend(draft: Draft, ranking: _Ranking, kinds: Sequence[int] | None = None) -> None:
    """Serve what is missing: first on what is open, then on new devices."""
    menu = draft.menu
    if draft.devices:
        _fill_open(draft, ranking)
    if kinds is None and _large(menu):
        _in_bulk(draft, ranking)
    while not draft.complete:
        opened = _next_device(draft, ranking, kinds)
        if opened is None:
            return
        _repeat(draft, opened)


def _fill_open(draft: Draft, ranking: _Ranking) -> None:
    """Use the rooms that open devices have, the tightest SLO first."""
    menu = draft.menu
    classes = [c for c, missing in enumerate(draft.missing) if missing > 0]
    large = _large(menu)
    for demand in sorted(classes, key=menu.left_ms):
        rooms = []
        for at, device in enumerate(draft.devices):
            if device.left <= 1e-9:
                continue
            for index in ranking.by_kind[demand][device.kind]:
                room = device.room(index) if large else device.make_room(index)
                if room is not None:
                    waste = room.batch.unit_ms / max(menu.options[index].alone.unit_ms, 1e-12)
                    rooms.append((waste, at, index))
                    break
        for _, at, index in sorted(rooms):
            room = draft.devices[at].room(index)
            if room is not None:
                draft.serve(draft.devices[at], index, room, draft.missing[demand])
            if draft.missing[demand] <= 0:
                break


def _in_bulk(draft: Draft, ranking: _Ranking) -> None:
    """Whole plans for large problems: everyone to the kind it suits best, while there is room.

    Those go first that would pay most for their second best kind.
    """
    menu = draft.menu
    room = [menu.problem.load * (c - o) for c, o in zip(menu.counts, draft.opened, strict=True)]
    asking = []
    for demand, missing in enumerate(draft.missing):
        heads = [found[0] for found in ranking.by_kind[demand] if found]
        if missing <= 0 or not heads:
            continue
        costs = sorted(
            menu.options[i].time * max(menu.prices[menu.options[i].kind], 1e-9) for i in heads
        )
        asking.append((-(costs[1] / costs[0] if len(costs) > 1 and costs[0] else inf), demand))
    shares: dict[int, float] = {}
    for _, demand in sorted(asking):
        left = draft.missing[demand] / menu.rates[demand]
        heads = [found[0] for found in ranking.by_kind[demand] if found]
        for index in sorted(
            heads, key=lambda i: (menu.options[i].time * menu.prices[menu.options[i].kind], i)
        ):
            option = menu.options[index]
            share = min(left, room[option.kind] / option.time) if option.time else left
            if share > 1e-9:
                shares[index] = share
                room[option.kind] -= share * option.time
                left -= share
    pack(draft, shares)
    _fill_open(draft, ranking)


def _next_device(
    draft: Draft, ranking: _Ranking, kinds: Sequence[int] | None = None
) -> Device | None:
    """Open the device that serves most worth for its price; None when none serves anything."""
    menu = draft.menu
    missing = [c for c, rate in enumerate(draft.missing) if rate > 0]
    best: tuple[float, float] | None = None
    chosen: Device | None = None
    for kind in range(len(menu.counts)) if kinds is None else kinds:
        if not draft.openable(kind):
            continue
        able = [c for c in missing if ranking.by_kind[c][kind]]
        density = {
            c: ranking.worth[c] / max(menu.options[ranking.by_kind[c][kind][0]].alone.unit_ms, 1e-9)
            for c in able
        }
        order = sorted(able, key=lambda c: (-density[c], menu.left_ms(c), c))
        for seed in _seeds(menu, order):
            device = Device(menu, kind)
            worth = _fill(draft, ranking, device, [seed, *(c for c in order if c != seed)])
            # What is free is best of all, and among the free the one that serves most.
            score = (worth / menu.prices[kind] if menu.prices[kind] > 0 else inf, worth)
            if worth > 0 and (best is None or score > best):
                best, chosen = score, device
    if chosen is None:
        return None
    draft.take_in(chosen)
    return chosen


def _seeds(menu: Menu, order: Sequence[int]) -> Sequence[int]:
    if len(order) <= SEEDS:
        return order
    by_slo = sorted(order, key=menu.left_ms)
    return list(dict.fromkeys([*order[: SEEDS // 2], *by_slo[: SEEDS // 2]]))


def _fill(draft: Draft, ranking: _Ranking, device: Device, order: Sequence[int]) -> float:
    """Fill a device that is not yet opened; the worth of what it serves."""
    worth = 0.0
    for demand in order:
        for index in ranking.by_kind[demand][device.kind]:
            room = device.make_room(index)
            if room is not None:
                taken = min(room.qps, draft.missing[demand])
                device.put(index, room.batch, taken)
                worth += taken * ranking.worth[demand]
                break
        if device.left <= 1e-9:
            break
    return worth


def _repeat(draft: Draft, device: Device) -> None:
    """Open the same device again as long as one class alone fills it."""
    if len(device.parts) != 1:
        return
    [(index, (_, qps))] = device.parts.items()
    demand = draft.menu.options[index].demand
    more = min(draft.openable(device.kind), int(draft.missing[demand] / qps))
    for _ in range(more):
        draft.take_in(device.copy())


def _improve(draft: Draft, ranking: _Ranking, objective: Objective, stop: Stop) -> Draft:
    """Take out one or two devices and place what they served anew, as long as that helps."""
    effort = EFFORT
    improved = True
    while improved and not stop():
        improved = False
        single = [at for at, device in enumerate(draft.devices) if device.count == 1]
        # The emptiest are the easiest to do without.
        single.sort(key=lambda at: -draft.devices[at].left)
        single = single[:RUINED]
        pairs: list[tuple[int, ...]] = [(a,) for a in single]
        pairs += [(a, b) for a in single for b in single if b < a]
        step = max(1, len(draft.menu.options) * max(1, len(draft.devices)) // 4)
        firsts: list[tuple[int, ...] | None] = [None]
        if len(single) <= FEW:
            firsts += [(kind,) for kind in range(len(draft.menu.counts))]
            pairs += [(a, b, c) for a in single for b in single for c in single if c < b < a]
        for out, first in product(pairs, firsts):
            effort -= step
            if effort < 0 or stop():
                return draft
            tried = _without(draft, out)
            if first is not None:
                if not draft.menu.counts[first[0]] or tried.complete:
                    continue
                _fill_open(tried, ranking)
                _next_device(tried, ranking, first)
            extend(tried, ranking)
            if objective is Objective.ACCURACY:
                upgrade(tried, stop)
            if better(tried, draft, objective):
                draft = tried
                improved = True
                break
    return draft


def consolidate(draft: Draft, stop: Stop) -> Draft:
    """Do without devices that waste most, one at a time; for plans of many devices."""
    ranking = _Ranking(draft.menu, cost=True)
    prices = draft.menu.prices
    tries = TRIES
    failed: set[int] = set()
    while tries and not stop():
        wasteful = [
            (-device.left * prices[device.kind], at)
            for at, device in enumerate(draft.devices)
            if device.count == 1 and id(device) not in failed
        ]
        if not wasteful:
            break
        tries -= 1
        _, at = min(wasteful)
        tried = draft.copy()
        tried.close(tried.devices[at])
        extend(tried, ranking, range(len(draft.menu.counts)))
        if better(tried, draft, Objective.COST):
            draft = tried
            failed.clear()
        else:
            failed.add(id(draft.devices[at]))
    return draft


def _without(draft: Draft, out: Sequence[int]) -> Draft:
    made = draft.copy()
    for device in [made.devices[at] for at in out]:
        made.close(device)
    for device in made.devices:
        device.tighten()
    return made


def _accurate(menu: Menu, served: Draft, stop: Stop) -> tuple[Draft, _Ranking]:
    """Search the price of device time at which the plan is best; ends with that ranking."""
    best, ranking = served, _Ranking(menu, cost=False)
    times = [option.alone.unit_ms for option in menu.options if option.alone.unit_ms > 0]
    if not times:
        return best, ranking
    low, high = -6.0, 1.0
    for step in range(PRICES if not _large(menu) else 4):
        if stop():
            break
        exponent = low if step == 0 else (low + high) / 2
        tried = _Ranking(menu, cost=False, time_price=10**exponent / min(times))
        found = upgrade(_build(menu, tried), stop)
        if found.served_qps >= best.served_qps * (1 - 1e-9):
            high = exponent
        else:
            low = exponent
        if better(found, best, Objective.ACCURACY):
            best, ranking = found, tried
    return upgrade(best.copy(), stop), ranking


def upgrade(draft: Draft, stop: Stop = lambda: False) -> Draft:
    """Move parts to more accurate variants while there is room, the least accurate first."""
    menu = draft.menu
    for kind in range(len(menu.counts)):
        for _ in range(min(draft.openable(kind), ROOMS)):
            draft.open(kind)
    rooms = [device for device in draft.devices if device.count == 1 and device.left > 1e-6]
    rooms = sorted(rooms, key=lambda device: -device.left)[:ROOMS]
    top = [max((menu.options[i].accuracy for i in found), default=0.0) for found in menu.of_class]
    moving = [
        (menu.options[index].accuracy - top[menu.options[index].demand], at, index)
        for at, device in enumerate(draft.devices)
        if device.count == 1
        for index in device.parts
    ]
    for gap, at, index in sorted(moving)[: ROOMS * ROOMS]:
        if gap < 0 and not stop():
            _move_up(draft.devices[at], index, rooms, menu)
    draft.drop_empty()
    return draft


def _move_up(device: Device, index: int, rooms: Sequence[Device], menu: Menu) -> None:
    """Serve a part, or what there is room for of it, by something more accurate elsewhere."""
    option = menu.options[index]
    for other in sorted(menu.of_class[option.demand], key=lambda i: -menu.options[i].accuracy):
        if menu.options[other].accuracy <= option.accuracy:
            return
        for target in rooms:
            if target is device or target.kind != menu.options[other].kind:
                continue
            room = target.room(other)
            if room is None:
                continue
            target.put(other, room.batch, device.take(index, room.qps))
            if index not in device.parts:
                return


def finish_up(draft: Draft, objective: Objective, stop: Stop) -> Draft:
    """Serve what packing left over, then use the room there is for accuracy."""
    if not draft.complete:
        extend(draft, _Ranking(draft.menu, cost=objective is Objective.COST))
    return upgrade(draft, stop) if objective is Objective.ACCURACY else consolidate(draft, stop)
