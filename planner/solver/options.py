"""What could serve each class of demand: the options that every planner chooses from.

An option is a class of demand, a variant that meets its floor, and a device kind that can hold it
and run it in time. Its ``alone`` batch is the cheapest that any plan can use: on any device the
class waits for at least its own batch, so no batch longer than half of what the SLO leaves is ever
in time, and sharing only shortens it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import floor, fsum, inf, isfinite
from typing import Any, NamedTuple, TypeVar

from planner.latency_curve import SizedBatch
from planner.solver.capacity import SLACK, limit_ms
from planner.solver.problem import Offer, Problem
from planner.types import class_of

T = TypeVar("T")

CLOSE = 1e-6
"""Relative: what rounding may be about in a comparison that rules something out."""


class Option(NamedTuple):
    """A class of demand served by an offer."""

    demand: int
    """Index into ``Problem.demand``."""
    offer: int
    """Index into ``Problem.offers``."""
    kind: int
    """Index into ``Problem.kinds``."""
    accuracy: float
    memory_mib: float
    alone: SizedBatch
    smallest_ms: float
    """Latency of the smallest batch."""
    bearable_ms: float
    """The longest batch of others that it can bear, with its smallest one."""
    least_work: float = 0.0
    """What a query per second costs at least beside the device's price, at any batch in time."""


Need = tuple[int, float, SizedBatch, float, float, float]
"""What a device has to have for an option: its offer and memory, the ``alone`` batch and what that
takes, what the smallest one takes, and what the SLO leaves. It is looked up for every device that
is tried, and a plain tuple is quicker to read."""


class Options:
    """All options of a problem."""

    __slots__ = (
        "_batches",
        "_found",
        "_left_ms",
        "all",
        "counts",
        "has_work",
        "needs",
        "of_class",
        "prices",
        "problem",
        "rates",
    )

    problem: Problem
    """What the options are of."""
    all: tuple[Option, ...]
    of_class: tuple[tuple[int, ...], ...]
    """Per class of demand: indices into ``all``. Empty for a class that nothing can serve."""
    needs: tuple[Need, ...]
    """Per option: what a device has to have for it."""
    counts: tuple[int, ...]
    """Per kind: how many can be opened, pools considered one kind at a time."""
    prices: tuple[float, ...]
    """Per kind, in USD per hour."""
    rates: tuple[float, ...]
    """Per class, in queries per second."""
    has_work: bool
    """Whether what runs costs something beside its device's price."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.has_work = bool(problem.work)
        self.prices = tuple(kind.usd_per_hour for kind in problem.kinds)
        self.rates = tuple(max(0.0, demand.qps) for demand in problem.demand)
        self._left_ms = [
            demand.latency_ms - problem.overhead_ms + SLACK * demand.latency_ms
            for demand in problem.demand
        ]
        counts = [kind.count for kind in problem.kinds]
        for pool in problem.pools:
            for index, kind in enumerate(problem.kinds):
                uses = pool.uses.get(kind.name, 0.0)
                if uses > 0:
                    counts[index] = min(counts[index], floor(pool.capacity / uses * (1 + SLACK)))
        self.counts = tuple(max(0, count) for count in counts)
        like = None if problem.common is None else problem.common.options
        if isinstance(like, Options) and self._differs_in_rates_only(like):
            self._take_over(like)
            return
        self._batches: dict[tuple[int, float, int | None], SizedBatch | None] = {}
        self._found: dict[Hashable, Any] = {}
        self.all = tuple(self._made())
        of_class: list[list[int]] = [[] for _ in problem.demand]
        for index, option in enumerate(self.all):
            of_class[option.demand].append(index)
        self.of_class = tuple(tuple(found) for found in of_class)
        self.needs = tuple([self._needed(option) for option in self.all])
        if problem.common is not None:
            problem.common.options = self

    def _needed(self, option: Option) -> Need:
        _, offer, _, _, memory_mib, alone, smallest_ms, _, _ = option
        left_ms = self._left_ms[option.demand]
        return (offer, memory_mib, alone, alone.latency_ms, smallest_ms, left_ms)

    def _differs_in_rates_only(self, like: "Options") -> bool:
        """Whether all but the rates and the load are the same; work is never shared."""
        one, other = self.problem, like.problem
        return (
            not (one.work or other.work)
            and one.offers is other.offers
            and one.kinds == other.kinds
            and one.pools == other.pools
            and one.most == other.most
            and one.overhead_ms == other.overhead_ms
            and [rate > 0 for rate in self.rates] == [rate > 0 for rate in like.rates]
            and [class_of(d) for d in one.demand] == [class_of(d) for d in other.demand]
        )

    def _take_over(self, like: "Options") -> None:
        """Use all that does not depend on rates."""
        self._batches, self._found = like._batches, like._found
        self.all, self.of_class, self.needs = like.all, like.of_class, like.needs

    def once(self, what: Hashable, find: Callable[[], T]) -> T:
        """What ``find`` answers, found once for all problems that differ in rates and load only.

        It must depend on neither.
        """
        if what not in self._found:
            self._found[what] = find()
        found: T = self._found[what]
        return found

    def _made(self) -> Iterable[Option]:
        problem, new = self.problem, tuple.__new__
        kinds = {kind.name: index for index, kind in enumerate(problem.kinds)}
        offered: dict[str, list[tuple[int, int, Offer]]] = defaultdict(list)
        for index, offer in enumerate(problem.offers):
            at = kinds.get(offer.device_kind)
            if at is None or not self.counts[at]:
                continue
            if offer.memory_mib <= problem.kinds[at].memory_mib:
                offered[offer.task].append((index, at, offer))
        for number, demand in enumerate(problem.demand):
            rate = self.rates[number]
            if rate <= 0:
                continue
            least = -inf if demand.accuracy is None else demand.accuracy
            limit = limit_ms(demand.latency_ms, overhead_ms=problem.overhead_ms)
            most = problem.most[number] if problem.most else None
            for index, at, offer in offered[demand.task]:
                if offer.accuracy < least or not offer.answers(demand):
                    continue
                if offer.lone_ms > self._left_ms[number]:
                    continue
                batch = offer.curve.cheapest(limit, most)
                if batch is not None:
                    smallest_ms = offer.curve.points[0][1]
                    made = (
                        number,
                        index,
                        at,
                        offer.accuracy,
                        offer.memory_mib,
                        batch,
                        smallest_ms,
                        self._left_ms[number] - smallest_ms,
                        self._least_work(index, limit, most) if self.has_work else 0.0,
                    )
                    # An option's own constructor would take twice as long.
                    yield new(Option, made)

    def _least_work(self, offer: int, limit: float, most: int | None) -> float:
        """Per query. On a linear piece it is monotone, so only ends of pieces can be least."""
        work = self.problem.work[offer]
        largest = self.problem.offers[offer].curve.largest(limit)
        if most is not None:
            largest = min(largest, max(1, most))
        sizes = [size for size, _ in work.points if size < largest]
        return min(work.joules(size) / size for size in (*sizes, largest))

    def work(self, index: int, batch: SizedBatch) -> float:
        """What a query per second of an option costs in such batches beside its device's price."""
        if not self.has_work:
            return 0.0
        work = self.problem.work[self.all[index].offer]
        return work.joules(batch.size) / batch.size

    def cost(self, index: int) -> float:
        """What serving the whole class of an option costs: time at the price of its device, and
        work, in ``alone`` batches."""
        option = self.all[index]
        time_price = self.time(index) * self.prices[option.kind]
        return time_price + self.rates[option.demand] * self.work(index, option.alone)

    def time(self, index: int) -> float:
        """Device time that the whole class of an option takes in ``alone`` batches, in devices."""
        option = self.all[index]
        return self.rates[option.demand] * option.alone.unit_ms / 1000

    def batch(self, index: int, limit: float) -> SizedBatch | None:
        """The cheapest batch of an option within a latency in ms; None when none is.

        ``index`` is into ``all``. What was found is kept for the next time.
        """
        option = self.all[index]
        if limit >= option.alone.latency_ms:
            return option.alone
        most = self.most(option.demand)
        key = (option.offer, limit, most)
        if key not in self._batches:
            self._batches[key] = self.problem.offers[option.offer].curve.cheapest(limit, most)
        return self._batches[key]

    def most(self, demand: int) -> int | None:
        """The most rows that a batch of a class may have; None for no limit."""
        most = self.problem.most
        return most[demand] if most else None

    def left_ms(self, demand: int) -> float:
        """Time in ms that the SLO of a class leaves for waiting and running."""
        return self._left_ms[demand]

    def slowdown(self, kind: int, variants: int) -> float:
        """Times what profiles say that batches take beside so many variants, this one included."""
        return self.problem.kinds[kind].slowdown(variants)

    @property
    def has_time(self) -> bool:
        """Whether there may be time for all demand; quickly, and no promise that there is.

        Whatever the time of each kind costs, all of it together has to be worth the least that
        every class can pay. It costs as much as the kind is quick.
        """
        quickest = self.once("quickest", self.quickest)
        asked = [number for number, rate in enumerate(self.rates) if rate > 0]
        if not all(quickest[number] for number in asked):
            return False
        prices = self.once("prices of time", lambda: self._speeds(quickest))
        paid = fsum(
            self.rates[number] * min([prices[kind] * ms for kind, ms in quickest[number].items()])
            for number in asked
        )
        worth = fsum(price * count for price, count in zip(prices, self.counts, strict=True))
        return paid / 1000 <= worth * self.problem.load * (1 + CLOSE)

    def learn_prices(self, prices: Sequence[float]) -> None:
        """Keep what a second of each kind's time is worth, in rate x accuracy, for
        ``most_accuracy``: of any problem that differs in rates and load only."""
        self._found["prices of accuracy"] = tuple([max(0.0, price) for price in prices])

    @property
    def most_accuracy(self) -> float:
        """Mean accuracy that no plan that serves everything can beat; quickly, and seldom the least
        such number. Infinite before any prices are learned.

        At any prices of time the best of every class, beside what its time costs, and the price of
        all time there is bound the relaxation from above (weak duality). At the prices of its
        solution for one load, the bound for another is as near as the two loads are.
        """
        prices: tuple[float, ...] | None = self._found.get("prices of accuracy")
        asked = fsum(self.rates)
        if prices is None or not asked:
            return inf
        left = self.once(("beside prices", prices), lambda: self._beside(prices))
        gained = fsum(rate * most for rate, most in zip(self.rates, left, strict=True))
        time = fsum(price * count for price, count in zip(prices, self.counts, strict=True))
        return (gained + time * self.problem.load) / asked

    def _beside(self, prices: Sequence[float]) -> list[float]:
        """Per class: the most that accuracy exceeds the price of the time of a query by."""
        prices_ms = [price / 1000 for price in prices]
        options = self.all
        return [
            max(
                [
                    option.accuracy - prices_ms[option.kind] * option.alone.unit_ms
                    for option in [options[index] for index in found]
                ],
                default=0.0,
            )
            for found in self.of_class
        ]

    def quickest(self) -> list[dict[int, float]]:
        """Per class: the least time per row in ms on each kind that can serve it."""
        made: list[dict[int, float]] = [{} for _ in self.of_class]
        for option in self.all:
            known = made[option.demand]
            least = known.get(option.kind, inf)
            known[option.kind] = min(least, option.alone.unit_ms)
        return made

    def _speeds(self, quickest: Sequence[dict[int, float]]) -> list[float]:
        """Per kind: how quick it is beside the quickest, in the mean over what it can serve."""
        speeds: list[list[float]] = [[] for _ in self.counts]
        for on in quickest:
            for kind, ms in on.items():
                speeds[kind].append(min(on.values()) / ms if ms > 0 else 1.0)
        return [fsum(found) / len(found) if found else 0.0 for found in speeds]

    @property
    def reachable_qps(self) -> float:
        """Rate of all classes that have options, in queries per second."""
        return fsum(r for r, found in zip(self.rates, self.of_class, strict=True) if found)

    def binds(self, kind: int) -> bool:
        """Whether a device of this kind may be too small for all variants that could be on it."""
        limit = self.problem.kinds[kind].memory_mib
        if not isfinite(limit):
            return False
        return self.once(("binds", kind), lambda: sum(self.memory(kind).values()) > limit)

    def memory(self, kind: int) -> dict[int, float]:
        """Memory in MiB of each offer that is an option on a kind, by offer."""
        return {o.offer: o.memory_mib for o in self.all if o.kind == kind}
