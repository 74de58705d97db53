"""Prices: the choice for a query where plans are for accuracy.

Every worker has a price, in accuracy per millisecond of its time. It grows exponentially with the
worker's backlog: next to nothing when it is idle, and when it is full so much that only the
quickest variants are worth their time. Of what is predicted to be in time, a query goes where
``accuracy - price x time`` is largest: to the most accurate variant anywhere while there is time
for it, and to what serves most while there is not. The time is what the query adds: that of a batch
of its own, or in an open batch (``planner.selection.open_batches``) what that takes longer with it.
So the backlogs find the level at which the prices are those of the best division of the work, the
dual prices of its linear program, without knowing the demand.

Refusals lower the room that a backlog is measured by, and time without them raises it, as windows
do under congestion: while all are served, more waiting is worth it, since it fills batches and
evens out chance.

Of each group of workers that can do the same, the least busy of ``WINDOW`` neighbours is looked at.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from planner.selection.eligibility import answers
from planner.selection.menus import MenuGroup, PriceRange
from planner.selection.open_batches import OpenBatches
from planner.types import Candidate, Choice, Query, Reason, WorkerView
from variants.types import WorkerId

LEAST_ROOM, MORE_ROOM = 0.6, 1.2
"""Backlog at which a worker is full, in rooms of the plan: the first after many refusals, both
together after none for a while (docs/decisions/0007-planning.md has the sweep)."""
WINDOW = 16
"""Workers of a group that are compared, from one drawn at random on. With 8, ``mixed`` violates 1.8
instead of 1.3 %, and a choice takes half a microsecond less."""
MOST_GROUPS = 4
"""Groups that are looked at, from one drawn at random on."""

SECOND_TRY = 0.9
"""Part of what is left of its deadline that a query may take where a worker has refused it: what
only just fits would be refused again by another worker that knows as much."""
_BUSY_UNTIL = attrgetter("busy_until_ms")


class Offers:
    """What the workers can do for a class of queries, and how long backlogs may be."""

    __slots__ = ("groups", "looseness", "prices", "rooms_ms")

    def __init__(
        self,
        groups: Sequence[MenuGroup],
        prices: PriceRange,
        rooms_ms: Mapping[WorkerId, float],
        looseness: float,
    ) -> None:
        self.groups = tuple(groups)
        self.prices = prices
        self.rooms_ms = rooms_ms
        """By the plan; where it says nothing, half of the SLO is the room."""
        self.looseness = looseness
        """The query's SLO over that of its class, at least 1: plans round SLOs down."""


def priced(
    offers: Offers,
    batches: OpenBatches,
    query: Query,
    now_ms: float,
    transport_ms: float,
    window: float = 1.0,
) -> Choice | None:
    """The choice that is worth most at the workers' prices; None when none is in time."""
    task, rows, received_ms, budget_ms, floor, ceiling, _, _, _, draw, avoid = query
    left_ms = received_ms + budget_ms - now_ms - transport_ms
    if avoid is not None:
        left_ms *= SECOND_TRY
    if left_ms <= 0.0:
        return None
    half_ms, looseness = budget_ms / 2, offers.looseness
    stretch = LEAST_ROOM + MORE_ROOM * window
    rooms_ms, price_at = offers.rooms_ms, offers.prices.at
    best: Candidate | None = None
    best_worker: WorkerView | None = None
    best_worth = best_ms = 0.0
    for menu, workers in _some(offers.groups, draw):
        found = _idlest(workers, draw >> 8, now_ms, avoid)
        if found is None:
            continue
        wait_ms = found.busy_until_ms - now_ms
        if wait_ms > 0.0:
            room_ms = rooms_ms.get(found.id, half_ms)
            if room_ms < half_ms:
                room_ms = min(half_ms, room_ms * looseness)
            price = price_at(wait_ms / (room_ms * stretch))
        else:
            wait_ms, price = 0.0, offers.prices.least
        chosen = menu.best(price, left_ms - wait_ms, rows, floor, ceiling)
        if chosen is None:
            continue
        run_ms = chosen.table.ms[rows]
        worth = rows * chosen.accuracy - price * run_ms
        takes_ms = wait_ms + run_ms
        if best is None or (worth, -takes_ms) > (best_worth, -best_ms):
            best, best_worker, best_worth, best_ms = chosen, found, worth, takes_ms
    for batch in batches.of(task, now_ms):
        candidate, worker, before = batch.candidate, batch.worker, batch.rows
        if rows * candidate.accuracy < best_worth and best is not None:
            continue  # however little time it takes
        if before + rows > batch.largest or worker.draining or worker.id == avoid:
            continue
        if not answers(candidate, None):
            continue
        if floor is not None and candidate.accuracy < floor:
            continue
        if ceiling is not None and candidate.price_usd_per_1k > ceiling:
            continue
        ms = candidate.table.ms
        added_ms = ms[before + rows] - ms[before]
        wait_ms = max(worker.busy_until_ms - now_ms, 0.0)
        if wait_ms + added_ms > left_ms:
            continue
        room_ms = rooms_ms.get(worker.id, half_ms)
        if room_ms < half_ms:
            room_ms = min(half_ms, room_ms * looseness)
        worth = rows * candidate.accuracy - price_at(wait_ms / (room_ms * stretch)) * added_ms
        takes_ms = wait_ms + added_ms
        if best is None or (worth, -takes_ms) > (best_worth, -best_ms):
            best, best_worker, best_worth, best_ms = candidate, worker, worth, takes_ms
    if best is None or best_worker is None:
        return None
    return Choice(best, best_worker, best_ms + transport_ms, False, Reason.PLANNED, True)


def _some(groups: tuple[MenuGroup, ...], draw: int) -> tuple[MenuGroup, ...]:
    """At most ``MOST_GROUPS`` of the groups."""
    count = len(groups)
    if count <= MOST_GROUPS:
        return groups
    first = (draw & 0xFFFFFFF) % count
    return (groups + groups)[first : first + MOST_GROUPS]


def _idlest(
    workers: tuple[WorkerView, ...], draw: int, now_ms: float, avoid: WorkerId | None
) -> WorkerView | None:
    """The worker of some neighbours that is free first; of idle ones, the first."""
    count = len(workers)
    if count > 1:
        first = draw % count
        end = first + WINDOW
        if end <= count:
            workers = workers[first:end]
        else:
            workers = workers[first:] + workers[: min(first, end - count)]
    if avoid is not None:
        workers = tuple(worker for worker in workers if worker.id != avoid)
    if not workers:
        return None
    if workers[0].busy_until_ms <= now_ms:
        return workers[0]
    return min(workers, key=_BUSY_UNTIL)
