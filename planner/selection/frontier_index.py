"""The frontier index of a task: the candidates that can be chosen, in a tree of two levels.

A leaf has ``LEAF`` neighbouring candidates, a branch ``BRANCH`` neighbouring leaves. Both carry
bounds on accuracy, latency and price, so that a search skips all of their candidates after one
comparison. Where a query's limits cut an order of n candidates at one place, a search compares
about ``n / 128 + 16 + 8`` bounds.

A candidate is left out only when another one, ready on the same workers, is at least as good in
accuracy, price and latency at every batch size and comes before it in every order. Such a candidate
would never have been chosen, so the answer is always that of a scan over all candidates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from math import inf
from operator import attrgetter, le
from types import MappingProxyType
from typing import Any, TypeVar

from planner.selection.eligibility import answers
from planner.types import Candidate, FrontierBranch, FrontierLeaf, TaskView, WorkerView
from variants.types import DeviceKindName, Task, VariantName

LEAF = 8
"""Candidates per leaf. Skipping a leaf costs about as much as skipping one candidate."""
BRANCH = 16
"""Leaves per branch."""
MOST_SETS = 6
"""Up to so many sets of workers each have a run of their own in the latency frontier."""

T = TypeVar("T")
Workers = tuple[WorkerView, ...]

_by_variant = attrgetter("variant")
_by_price = attrgetter("price_usd_per_1k")
_by_footprint = attrgetter("footprint")


def _latency(candidate: Candidate) -> float:
    return candidate.table.ms[1]


def _inaccuracy(candidate: Candidate) -> float:
    return -candidate.accuracy


def task_view(
    task: Task,
    candidates: Iterable[Candidate],
    excluded: Mapping[VariantName, str],
    unmeasured: Mapping[VariantName, frozenset[DeviceKindName]] = MappingProxyType({}),
) -> TaskView:
    """A task's view, all of its orders made from its candidates."""
    # Stable sorts, the last key first: cheaper than one sort over tuples.
    by_latency = sorted(candidates, key=_by_variant)
    by_latency.sort(key=_by_price)
    by_latency.sort(key=_latency)
    by_cost = tuple(sorted(by_latency, key=_by_price))
    by_energy = by_cost
    if any(c.footprint < inf for c in by_cost):
        by_energy = tuple(sorted(by_cost, key=_by_footprint))
    by_accuracy = tuple(sorted(by_cost, key=_inaccuracy))
    listed: dict[VariantName, list[Candidate]] = {}
    for candidate in by_cost:
        listed.setdefault(candidate.variant, []).append(candidate)
    by_variant = {name: tuple(found) for name, found in listed.items()}
    steps = tuple(sorted({c.accuracy for c in by_cost if answers(c, None)}))
    return _view(
        task, by_cost, by_accuracy, tuple(by_latency), by_energy, by_variant, excluded, steps,
        unmeasured,
    )  # fmt: skip


def moved_view(view: TaskView, instead: Mapping[int, Candidate]) -> TaskView:
    """The view of a task of which some candidates, by their ids, became others that differ in their
    workers alone: all orders stay."""

    places = view.once("places", lambda: _Places(view))
    found = list(instead.values())

    def now(order: tuple[Candidate, ...], at: Mapping[CandidateName, int]) -> tuple[Candidate, ...]:
        moved = list(order)
        for one in found:
            moved[at[one.device_kind, one.variant]] = one
        return tuple(moved)

    by_cost = now(view.by_cost, places.by_cost)
    by_energy = by_cost
    if view.by_energy is not view.by_cost:
        by_energy = now(view.by_energy, places.by_energy)
    by_variant = dict(view.by_variant)
    for name in {candidate.variant for candidate in found}:
        by_variant[name] = tuple([instead.get(id(c), c) for c in by_variant[name]])
    made = _view(
        view.task, by_cost, now(view.by_accuracy, places.by_accuracy),
        now(view.by_latency, places.by_latency), by_energy, by_variant,
        view.excluded, view.accuracies, view.unmeasured,
    )  # fmt: skip
    made.once("places", lambda: places)
    return made


CandidateName = tuple[DeviceKindName, VariantName]
"""Which candidate of a task."""


class _Places:
    """At which places of a task's orders its candidates are: the same for as long as only their
    workers change."""

    __slots__ = ("by_accuracy", "by_cost", "by_energy", "by_latency")

    def __init__(self, view: TaskView) -> None:
        def places(order: tuple[Candidate, ...]) -> dict[CandidateName, int]:
            return {(c.device_kind, c.variant): at for at, c in enumerate(order)}

        self.by_cost = places(view.by_cost)
        self.by_accuracy = places(view.by_accuracy)
        self.by_latency = places(view.by_latency)
        self.by_energy = self.by_cost
        if view.by_energy is not view.by_cost:
            self.by_energy = places(view.by_energy)


def _view(
    task: Task,
    by_cost: tuple[Candidate, ...],
    by_accuracy: tuple[Candidate, ...],
    by_latency: tuple[Candidate, ...],
    by_energy: tuple[Candidate, ...],
    by_variant: Mapping[VariantName, tuple[Candidate, ...]],
    excluded: Mapping[VariantName, str],
    accuracies: tuple[float, ...],
    unmeasured: Mapping[VariantName, frozenset[DeviceKindName]],
) -> TaskView:
    return TaskView(
        task=task,
        by_cost=by_cost,
        by_accuracy=by_accuracy,
        by_latency=by_latency,
        by_energy=by_energy,
        frontiers=_Frontiers(by_cost, by_accuracy, by_latency, by_energy),
        by_variant=by_variant,
        excluded=excluded,
        accuracies=accuracies,
        unmeasured=unmeasured,
    )


class _Frontiers:
    """The frontiers of a task. Most are never asked for: plans say where most queries go, and other
    queries prefer one thing alone."""

    def __init__(
        self,
        by_cost: tuple[Candidate, ...],
        by_accuracy: tuple[Candidate, ...],
        by_latency: tuple[Candidate, ...],
        by_energy: tuple[Candidate, ...],
    ) -> None:
        self._by_cost = by_cost
        self._by_accuracy = by_accuracy
        self._by_latency = by_latency
        self._by_energy = by_energy
        self._once: dict[str, Any] = {}

    def once(self, what: str, make: Callable[[], T]) -> T:
        if what not in self._once:
            self._once[what] = make()
        found: T = self._once[what]
        return found

    @cached_property
    def _kept(self) -> set[int]:
        return _undominated([c for c in self._by_accuracy if answers(c, None)])

    @cached_property
    def cost(self) -> tuple[FrontierBranch, ...]:
        return branches([[c for c in self._by_cost if id(c) in self._kept]])

    @cached_property
    def accuracy(self) -> tuple[FrontierBranch, ...]:
        return branches([[c for c in self._by_accuracy if id(c) in self._kept]])

    @cached_property
    def latency(self) -> tuple[FrontierBranch, ...]:
        return branches(_runs([c for c in self._by_latency if id(c) in self._kept]))

    @cached_property
    def energy(self) -> tuple[FrontierBranch, ...]:
        if self._by_energy is self._by_cost:
            return self.cost
        answering = [c for c in self._by_accuracy if answers(c, None)]
        frugal = _undominated(answering, energy=True)
        return branches([[c for c in self._by_energy if id(c) in frugal]])


def branches(runs: Sequence[Sequence[Candidate]]) -> tuple[FrontierBranch, ...]:
    """Cut runs into leaves and these into branches, in order; no branch spans two runs."""
    doublings = max((len(c.table.doubling) for run in runs for c in run), default=0)
    made: list[FrontierBranch] = []
    for run in runs:
        found = [_leaf(run[at : at + LEAF], doublings) for at in range(0, len(run), LEAF)]
        made += [_branch(found[at : at + BRANCH]) for at in range(0, len(found), BRANCH)]
    return tuple(made)


def _runs(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """One run for each set of workers if there are few sets, otherwise one run for all.

    In a run with one set of workers all candidates wait equally long, so the first that fits is the
    earliest. With many sets, to find the wait of each costs more than that saves.
    """
    runs: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        runs.setdefault(id(candidate.ready), []).append(candidate)
    return list(runs.values()) if len(runs) <= MOST_SETS else [list(candidates)]


def _leaf(members: Sequence[Candidate], doublings: int) -> FrontierLeaf:
    rows = [c.table.doubling for c in members]
    return FrontierLeaf(
        max([c.accuracy for c in members]),
        # Beyond the rows that a candidate takes, its latency counts as infinite.
        tuple(map(min, zip_longest(*rows, fillvalue=inf)))
        + (inf,) * (doublings - max(map(len, rows))),
        min([c.price_usd_per_1k for c in members]),
        _common([c.ready for c in members]),
        tuple(members),
    )


def _branch(members: Sequence[FrontierLeaf]) -> FrontierBranch:
    return FrontierBranch(
        max([leaf.accuracy for leaf in members]),
        tuple(map(min, zip(*[leaf.latency_ms for leaf in members], strict=True))),
        min([leaf.price_usd_per_1k for leaf in members]),
        _common([leaf.ready for leaf in members]),
        tuple(members),
    )


def _common(sets: Sequence[Workers | None]) -> Workers | None:
    """The set of workers that all members have, or None; equal sets are the same tuple."""
    first = sets[0]
    return first if all(other is first for other in sets) else None


def _undominated(by_accuracy: Sequence[Candidate], *, energy: bool = False) -> set[int]:
    """Ids of the candidates to keep, from all of them by descending accuracy.

    Each is compared with one other, the cheapest so far that is ready on the same workers. On one
    device kind the cheapest is nearly always the fastest too, so this finds nearly all that a
    comparison with all others would find, in linear time. With ``energy`` that one is the one of
    the least footprint, and has to be as good in that too.
    """
    rank = _by_footprint if energy else _by_price
    kept: set[int] = set()
    cheapest: dict[int, Candidate] = {}
    for candidate in by_accuracy:
        ready: Workers = candidate.ready
        if not ready:
            continue
        # The snapshot gives equal sets of workers the same tuple, so its id names the set.
        best = cheapest.get(id(ready))
        if (
            best is not None
            and (not energy or best.footprint <= candidate.footprint)
            and _dominates(best, candidate)
        ):
            continue
        kept.add(id(candidate))
        if best is None or rank(candidate) < rank(best):
            cheapest[id(ready)] = candidate
    return kept


def _dominates(one: Candidate, other: Candidate) -> bool:
    """Whether ``one``, at least as accurate, is as cheap and fast at every batch size, and wins
    the tie where it is only equal."""
    table, other_table = one.table, other.table
    if one.price_usd_per_1k > other.price_usd_per_1k or table.max_batch < other_table.max_batch:
        return False
    if not all(map(le, table.ms, other_table.ms)):
        return False
    if one.price_usd_per_1k == other.price_usd_per_1k and table.ms[1] == other_table.ms[1]:
        return one.variant < other.variant
    return True
