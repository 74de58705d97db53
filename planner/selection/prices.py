"""Prices: the choice for a query where plans are for accuracy.

Every worker has a price, in accuracy per millisecond of its time. It grows exponentially with the
worker's backlog: next to nothing when it is idle, and when it is full so much that only the
quickest variants are worth their time. Of what is predicted to be in time, a query goes where
``accuracy - price x time`` is largest: to the most accurate variant anywhere while there is time
for it, and to what serves most while there is not. The time is what the query adds: that of a batch
of its own, or in an open batch (``planner.selection.open_batches``) what that takes longer with it.
So the backlogs find the level at which the prices are those of the best division of the work, the
dual prices of its linear program, without knowing the demand.

What a worker's time is worth follows from the demand, which changes over seconds, whereas its
backlog changes with every query and batch. By the backlog alone, prices would be too low whenever
a worker happens to be idle and too high a moment later, and each time some queries get what is not
the best for all. So a price counts what is usual on workers of that kind, and only a part of how
far a backlog is from it (``UsualFills``; as in Huang, Neely, *Delay Reduction via Lagrange
Multipliers in Stochastic Network Optimization*, IEEE TAC 2011).

Refusals lower the room that a backlog is measured by, and time without them raises it, as windows
do under congestion: while all are served, more waiting is worth it, since it fills batches and
evens out chance.

While congestion lasts, workers of kinds that the plan does not have a query's class on are dearer.
All prices are high then, and no longer tell who does what best; and a kind that runs what another
one should has less time than it could (``planner.selection.plan_following``).

Of each group of workers that can do the same, the least busy of some is looked at
(``planner.selection.menus``).
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import exp, inf

from planner.selection.load_balancing import least_busy
from planner.selection.menus import HIGHEST_FILL, Menus, PriceRange, WorkerMenu
from planner.selection.open_batches import OpenBatches
from planner.types import Candidate, Choice, Query, Reason, WorkerView
from variants.slots import tuple_of
from variants.types import DeviceKindName, WorkerId

LEAST_ROOM, MORE_ROOM = 0.6, 1.2
"""Backlog at which a worker is full, in rooms of the plan: the first after many refusals, both
together after none for a while (docs/decisions/0007-planning.md has the sweep)."""
MOST_GROUPS = 4
"""Groups that are looked at, from one drawn at random on."""
SECOND_TRY = 0.9
"""Part of what is left of its deadline that a query may take on an idle worker where another has
refused it: what only just fits would be refused again by a worker that knows as much."""
AT_ONCE = 0.25
"""Part of the difference between a backlog and the usual one that counts at once."""
MEMORY_MS = 1_000.0
"""Time constant of what is usual (docs/decisions/0007-planning.md has the sweeps)."""
NONE = 0.05
"""What counts as less, in rooms of the plan, counts as none: at the least price the most accurate
variants answer, and what is usual never quite reaches it."""
_PLANNED = Reason.PLANNED


class Offers:
    """What the workers can do for a class of queries, and how long backlogs may be."""

    __slots__ = (
        "circle", "groups", "least_usd", "looseness", "menus", "planned", "prices", "rooms_ms",
    )  # fmt: skip

    def __init__(
        self,
        menus: Menus,
        prices: PriceRange,
        rooms_ms: Mapping[WorkerId, float],
        looseness: float,
        floor: float | None = None,
        planned: Collection[DeviceKindName] | None = None,
    ) -> None:
        self.menus = menus
        self.groups = menus.groups
        self.circle = menus.groups + menus.groups[: MOST_GROUPS - 1]
        """The groups, and the first of them again: some from one on are one slice."""
        self.prices = prices
        self.rooms_ms = rooms_ms
        """By the plan; where it says nothing, half of the SLO is the room."""
        self.looseness = looseness
        """The query's SLO over the tightest of its class, for which rooms are planned."""
        self.least_usd = menus.least_usd(floor)
        """Of device time for a row, where it costs least."""
        self.planned = planned
        """The kinds that the plan has the class on; None where it does not know the class."""


class UsualFill:
    """Of one kind of workers."""

    __slots__ = ("at_ms", "fill", "seen", "weight")

    def __init__(self, seen: float, at_ms: float) -> None:
        self.fill = seen
        """The average."""
        self.seen = seen
        """Of the least busy worker that was looked at last."""
        self.at_ms = at_ms
        self.weight = 0.0
        """With which it counts in the average."""


class UsualFills:
    """What is usual for each kind, as far as one gateway knows, in rooms of the plan.

    Written by who looks for workers. Where the plan gives a worker no room, nothing is learned of
    it: what is usual may not depend on who asks.
    """

    __slots__ = ("kinds",)

    def __init__(self) -> None:
        self.kinds: dict[DeviceKindName, UsualFill] = {}

    def look(self, kind: DeviceKindName, fill: float, planned: float, now_ms: float) -> float:
        """How full a worker counts as that was looked at; what is usual learns of it.

        Of several that are looked at in one moment, what is usual learns of the least busy one.

        Args:
            fill: its backlog in rooms, which are longer for queries with looser SLOs.
            planned: the same in rooms of the plan, so that all queries teach the same.
        """
        planned = planned if planned < HIGHEST_FILL else HIGHEST_FILL
        known = self.kinds.get(kind)
        if known is None:
            self.kinds[kind] = UsualFill(planned, now_ms)
            return fill if fill > NONE else 0.0
        since_ms = now_ms - known.at_ms
        if since_ms > 0.0:
            known.at_ms = now_ms
            known.weight = since_ms / (since_ms + MEMORY_MS)
            known.seen = planned
            known.fill += (planned - known.fill) * known.weight
        elif planned < known.seen:
            known.fill += (planned - known.seen) * known.weight
            known.seen = planned
        counted = known.fill + AT_ONCE * (fill - known.fill)
        return counted if counted > NONE else 0.0

    def counted(self, kind: DeviceKindName, fill: float) -> float:
        """As ``look``, without learning."""
        known = self.kinds.get(kind)
        counted = fill if known is None else known.fill + AT_ONCE * (fill - known.fill)
        return counted if counted > NONE else 0.0


def priced(
    offers: Offers,
    batches: OpenBatches,
    usual: UsualFills,
    query: Query,
    now_ms: float,
    transport_ms: float,
    window: float = 1.0,
    elsewhere: float = 1.0,
) -> Choice | None:
    """The choice that is worth most at the workers' prices; None when none is in time.

    Args:
        window: of congestion, at most 1.
        elsewhere: times its price costs a worker of a kind that the plan does not have the class
            on.
    """
    task, rows, received_ms, budget_ms, floor, ceiling, _, _, _, draw, avoid, _, _, _, _ = query
    left_ms = received_ms + budget_ms - now_ms - transport_ms
    if left_ms <= 0.0:
        return None
    idle_left_ms = left_ms if avoid is None else left_ms * SECOND_TRY
    half_ms, looseness = budget_ms / 2, offers.looseness
    stretch = LEAST_ROOM + MORE_ROOM * window
    rooms_ms, (least, growth) = offers.rooms_ms, offers.prices
    kinds_of_plan = None if elsewhere == 1.0 else offers.planned
    lone = rows == 1
    plain = lone and floor is None and ceiling is None
    best: Candidate | None = None
    best_worker: WorkerView | None = None
    best_worth, best_ms = -inf, inf
    groups = offers.groups
    if len(groups) > MOST_GROUPS:
        first = (draw & 0xFFFFFFF) % len(groups)
        groups = offers.circle[first : first + MOST_GROUPS]
    for group in groups:
        found = group.idlest(draw >> 8, now_ms, avoid)
        if found is None:
            continue
        wait_ms = found.busy_until_ms - now_ms
        if wait_ms > 0.0:
            run_left_ms = left_ms - wait_ms
        else:
            wait_ms, run_left_ms = 0.0, idle_left_ms
        planned_ms = rooms_ms.get(found.id)
        if planned_ms is None:
            fill = usual.counted(found.device_kind, wait_ms / half_ms) / stretch
        else:
            planned = fill = wait_ms / planned_ms
            if planned_ms < half_ms:
                room_ms = planned_ms * looseness
                fill = wait_ms / (room_ms if room_ms < half_ms else half_ms)
            fill = usual.look(found.device_kind, fill, planned, now_ms) / stretch
        # From here on as ``PriceRange.at`` and, of plain queries, ``Menu.best``, for speed.
        price = least * exp(growth * (fill if fill < HIGHEST_FILL else HIGHEST_FILL))
        if kinds_of_plan is not None and found.device_kind not in kinds_of_plan:
            price *= elsewhere
        menu = group.menu
        if plain:
            times_ms = menu.ms
            at = bisect_right(menu.gains, -price)
            if times_ms[at] > run_left_ms:
                at = bisect_right(times_ms, run_left_ms, 0, at) - 1
                if at < 0:
                    continue
            run_ms = times_ms[at]
            worth = menu.accuracies[at] - price * run_ms
            takes_ms = wait_ms + run_ms
            if worth > best_worth or (worth == best_worth and takes_ms < best_ms):
                best, best_worker = menu.candidates[at], found
                best_worth, best_ms = worth, takes_ms
            continue
        chosen = menu.best(price, run_left_ms, rows, floor, ceiling)
        if chosen is None:
            continue
        run_ms = chosen.table.ms[rows]
        worth = rows * chosen.accuracy - price * run_ms
        takes_ms = wait_ms + run_ms
        if worth > best_worth or (worth == best_worth and takes_ms < best_ms):
            best, best_worker, best_worth, best_ms = chosen, found, worth, takes_ms
    kinds = usual.kinds
    for batch in batches.of(task, now_ms):
        if lone:
            added_ms = batch.next_ms
            gained = batch.accuracy
        elif batch.rows + rows <= batch.largest:
            added_ms = batch.ms[batch.rows + rows] - batch.ms[batch.rows]
            gained = rows * batch.accuracy
        else:
            continue
        if gained - least * added_ms < best_worth:
            continue  # even if its worker were idle
        worker = batch.worker
        wait_ms = worker.busy_until_ms - now_ms
        if wait_ms > 0.0:
            takes_ms = wait_ms + added_ms
            if takes_ms > left_ms:
                continue
            room_ms = rooms_ms.get(worker.id, half_ms)
            if room_ms < half_ms:
                room_ms = min(half_ms, room_ms * looseness)
            fill = wait_ms / room_ms
        else:
            fill, takes_ms = 0.0, added_ms
            if takes_ms > left_ms:
                continue
        known = kinds.get(worker.device_kind)
        if known is not None:  # a copy of ``UsualFills.counted``, for speed
            usually = known.fill
            fill = usually + AT_ONCE * (fill - usually)
        fill = fill / stretch if fill > NONE else 0.0
        price = least * exp(growth * (fill if fill < HIGHEST_FILL else HIGHEST_FILL))
        if kinds_of_plan is not None and worker.device_kind not in kinds_of_plan:
            price *= elsewhere
        worth = gained - price * added_ms
        if (
            (worth > best_worth or (worth == best_worth and takes_ms < best_ms))
            and not worker.draining
            and worker.id != avoid
            and batch.answers
            and (floor is None or batch.accuracy >= floor)
            and (ceiling is None or batch.candidate.price_usd_per_1k <= ceiling)
        ):
            best, best_worker, best_worth, best_ms = batch.candidate, worker, worth, takes_ms
    if best is None or best_worker is None:
        return None
    # A choice's own constructor would take twice as long.
    made = (best, best_worker, best_ms + transport_ms, False, _PLANNED, True)
    return tuple.__new__(Choice, made)


def quickest(
    offers: Offers, query: Query, now_ms: float, transport_ms: float, patience: float = 1.0
) -> Choice | None:
    """The earliest completion on one of more workers, for a second look before a query is refused.

    Where there are few workers it is that on any of them, else that on some of those that are free
    first. None when none of them completes in time.

    Args:
        patience: part of what is left of its deadline that the query may wait.
    """
    left_ms = query.received_ms + query.latency_ms - now_ms - transport_ms
    if left_ms <= 0.0:
        return None
    for some in _looks(offers.menus, query, now_ms):
        found = _earliest(some, query, now_ms, left_ms, patience * left_ms)
        if found is not None:
            candidate, worker, takes_ms = found
            predicted_ms = takes_ms + transport_ms
            return tuple_of(Choice, (candidate, worker, predicted_ms, False, _PLANNED, True))
    return None


def _looks(menus: Menus, query: Query, now_ms: float) -> Iterator[Sequence[WorkerMenu]]:
    """The workers that are looked at, some at a time until one of them has time."""
    draw = query.draw >> 8
    if menus.few:
        least = [
            (least_busy(group.workers, draw, now_ms, query.avoid), group.menu)
            for group in menus.groups
        ]
        yield [(worker, menu) for worker, menu in least if worker is not None]
        return
    yield from menus.first(now_ms, draw, query.avoid)
    if menus.renewed(now_ms):
        yield from menus.first(now_ms, draw, query.avoid)


def _earliest(
    some: Iterable[WorkerMenu],
    query: Query,
    now_ms: float,
    left_ms: float,
    longest_wait_ms: float,
) -> tuple[Candidate, WorkerView, float] | None:
    """The earliest completion on some workers, with the time until then; None if it is too late."""
    best: tuple[Candidate, WorkerView, float] | None = None
    rows, floor, ceiling, avoid = query.rows, query.accuracy, query.cost, query.avoid
    for worker, menu in some:
        busy_ms = worker.busy_until_ms
        wait_ms = busy_ms - now_ms if busy_ms > now_ms else 0.0
        if wait_ms > longest_wait_ms:
            continue
        if wait_ms + menu.quickest_ms > left_ms or worker.id == avoid:
            continue
        chosen = menu.best(inf, left_ms - wait_ms, rows, floor, ceiling)
        if chosen is not None:
            left_ms = wait_ms + chosen.table.ms[rows]
            best = (chosen, worker, left_ms)
    return best


def overtaking(
    offers: Offers,
    query: Query,
    now_ms: float,
    transport_ms: float,
    is_full: Callable[[WorkerId, Query, float], bool],
) -> Choice | None:
    """The quickest variant on the worker that is done first with all that it has, for a query that
    has no time to wait for all of that, and may come before what can wait longer.

    Only the worker knows whether it may.

    Args:
        is_full: whether a worker had no time for such a query a moment ago, which is not asked.
    """
    left_ms = query.received_ms + query.latency_ms - now_ms - transport_ms
    best: Choice | None = None
    least_ms = inf
    for some in _looks(offers.menus, query, now_ms):
        for worker, menu in some:
            if worker.id == query.avoid or is_full(worker.id, query, now_ms):
                continue
            chosen = menu.best(inf, left_ms, query.rows, query.accuracy, query.cost)
            if chosen is None:
                continue
            takes_ms = max(0.0, worker.busy_until_ms - now_ms) + chosen.table.ms[query.rows]
            if takes_ms < least_ms:
                least_ms = takes_ms
                made = (chosen, worker, left_ms + transport_ms, False, _PLANNED, True)
                best = tuple_of(Choice, made)
    return best


def exhausted(query: Query) -> bool:
    """Whether no search finds anything ready in time where ``quickest`` did not, sampling aside.

    The quickest variant of each worker is on its menu, but with limits, or for several rows, one
    that is not may be the quickest that is left.
    """
    return query.rows == 1 and query.accuracy is None and query.cost is None
