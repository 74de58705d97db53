"""Layouts: the ways that an operator allows a machine to be split, and which of them is best.

A layout says how many workers of each device kind share a machine. All of its hardware is there
whichever is taken, so what tells two apart is what they serve of a demand, and then, by what plans
optimise, the price of their workers or the accuracy of the answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from math import comb

from planner.solver.problem import Planner, Pool, Problem, Solution
from planner.types import Objective
from variants.figures import accuracies, figure
from variants.types import DeviceKindName

Layout = Mapping[DeviceKindName, int]

SPLIT = "The machine is split into"
"""With this begins the sentence of a plan that says how its machine is split, and why."""
WORTH = 1.05
"""Another layout has to serve at least so many times as much: less is chance."""
START_S = 10.0
"""What starting a worker takes, beside what its variants take to load."""
SERVED = 0.999
"""Part of the demand from which on all of it counts as served."""
CHEAPER = 0.95
"""What another layout may cost at most, where both serve all, to be worth a change."""
MORE_ACCURATE = 0.01
"""By how much answers have to be more accurate, where both serve all."""
MOST_DIVISIONS = 500
"""Ways to give layouts to machines that are tried one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a layout is worth for a demand."""

    layout: Layout
    served_qps: float
    asked_qps: float
    accuracy: float
    usd_per_hour: float
    tasks: int = 0
    """How many tasks its workers could answer at all."""

    @property
    def serves_all(self) -> bool:
        return self.served_qps >= SERVED * self.asked_qps


def chosen(
    worths: Sequence[Worth], now: Layout, objective: Objective, *, change_s: float, horizon_s: float
) -> tuple[Layout, str]:
    """The layout to have, and a sentence that says why.

    One whose workers can answer more tasks comes before one that serves more rows: a task that none
    can answer is answered never, however little is asked of the others.

    While it changes, workers of both layouts share the cores for ``change_s``; at worst none of
    what is served now is served in time then. A change has to gain more than that within
    ``horizon_s``. Where a demand is looked back on for as long, two that take turns are both asked
    of each layout, and it does not swing.
    """
    [present] = [one for one in worths if one.layout == now]
    others = [one for one in worths if one.layout != now]
    if not present.asked_qps:
        return now, f"{SPLIT} {words(now)}: no demand asks for another layout."
    if not others:
        return now, (
            f"{SPLIT} {words(now)}: this serves {_serves(present)} of {figure(present.asked_qps)} "
            "rows per second that workers are to be there for."
        )
    best = max(others, key=lambda one: _rank(one, objective))
    why = (
        f"{_serves(present)} of {figure(present.asked_qps)} rows per second that workers are to be "
        f"there for, {words(best.layout)} would serve {_serves(best)}"
    )
    if best.tasks > present.tasks:
        return best.layout, (
            f"{SPLIT} {words(best.layout)}: its workers can answer queries of {best.tasks} tasks, "
            f"those of {words(now)} of {present.tasks}."
        )
    gain_qps = best.served_qps - present.served_qps
    if best.tasks == present.tasks and best.served_qps > WORTH * present.served_qps:
        cost = present.served_qps * change_s
        if gain_qps * horizon_s > cost:
            return best.layout, (
                f"{SPLIT} {words(best.layout)}: this serves {_serves(best)} of "
                f"{figure(best.asked_qps)} rows per second that workers are to be there for, "
                f"{words(now)} {_serves(present)}."
            )
        return now, (
            f"{SPLIT} {words(now)}: this serves {why}; to change takes "
            f"{change_s:,.0f} s and does not pay within {horizon_s:,.0f} s."
        )
    if best.tasks == present.tasks and present.serves_all and best.serves_all:
        if objective is Objective.ACCURACY:
            better = best.accuracy > present.accuracy + MORE_ACCURATE
            more, less = accuracies(best.accuracy, present.accuracy)
            gained = f"more accurately ({more}, not {less})"
        else:
            better = best.usd_per_hour < CHEAPER * present.usd_per_hour
            gained = (
                f"for {figure(best.usd_per_hour)} USD per hour, not {figure(present.usd_per_hour)}"
            )
        if better:
            return best.layout, (
                f"{SPLIT} {words(best.layout)}: this serves all that {words(now)} serves, {gained}."
            )
    return now, f"{SPLIT} {words(now)}: this serves {why}."


def words(layout: Layout) -> str:
    """A layout as it is written: ``1xcpu-2,2xcpu-1``."""
    return ",".join(f"{count}x{kind}" for kind, count in layout.items())


def runs(layout: Layout, running: Layout) -> bool:
    """Whether all of its workers are among those that run."""
    return all(running.get(kind, 0) >= count for kind, count in layout.items())


def present_layout(layouts: Sequence[Layout], planned: Layout, running: Layout) -> Layout:
    """The one that the machine has: that of the plan where its workers run or start, or else the
    first whose workers do. While one changes, those of both do."""
    there = [one for one in layouts if runs(one, running)]
    for candidates in (there, layouts):
        if any(one == planned for one in candidates):
            return next(one for one in candidates if one == planned)
        if candidates:
            return candidates[0]
    return {}


def possible(layouts: Iterable[Layout], inventory: Layout) -> list[Layout]:
    """The layouts with no more workers of a kind than an operator asks for; those of which nothing
    is left only where that is all."""
    found: list[Layout] = []
    for layout in layouts:
        counts = {kind: min(n, inventory.get(kind, n)) for kind, n in layout.items()}
        one = {kind: count for kind, count in counts.items() if count}
        if one and one not in found:
            found.append(one)
    return found or [{}]


# -- several machines -----------------------------------------------------------------------------


def solve_split(
    problem: Problem,
    layouts: Sequence[Layout],
    cores: Mapping[DeviceKindName, int],
    machines: int,
    planner: Planner,
    objective: Objective,
) -> tuple[Solution, tuple[Layout, ...]]:
    """The best plan for machines that may have these layouts, with the layout of each machine.

    One search among all divisions of the pool of their cores comes first. Where the machines
    cannot be split so, the ways to give them layouts are tried one by one, or, where these are too
    many, those in which all machines have the same.
    """
    most = {kind: max(one.get(kind, 0) for one in layouts) for one in layouts for kind in one}
    pool = pool_of(layouts, cores, machines)
    pooled = planner(_with(problem, {k: n * machines for k, n in most.items()}, pool), objective)
    if (split := division(pooled.devices, layouts, machines)) is not None:
        return pooled, split
    found: tuple[Solution, tuple[Layout, ...]] | None = None
    timed_out = pooled.timed_out
    every = comb(machines + len(layouts) - 1, machines) <= MOST_DIVISIONS
    ways = (
        combinations_with_replacement(layouts, machines)
        if every
        else ((one,) * machines for one in layouts)
    )
    for way in ways:
        counts = {kind: sum(one.get(kind, 0) for one in way) for kind in most}
        tried = planner(_with(problem, counts, None), objective)
        timed_out |= tried.timed_out
        if found is None or _better(tried, found[0], objective):
            found = (tried, tuple(way))
    assert found is not None
    best, split = found
    # What the pool allows is no less than what layouts do, so its bound is one of theirs.
    bound = pooled.bound if best.feasible is pooled.feasible else best.bound
    return replace(best, bound=bound, timed_out=timed_out), split


def pool_of(layouts: Sequence[Layout], cores: Mapping[DeviceKindName, int], machines: int) -> Pool:
    """The cores of the machines, as many as the largest layout has. The pool allows all that
    layouts do, and more: ``division`` says whether they allow it."""
    return Pool(
        name="cores",
        capacity=machines * max(sum(cores[k] * n for k, n in one.items()) for one in layouts),
        uses={kind: cores[kind] for one in layouts for kind in one},
    )


def division(
    devices: Sequence[DeviceKindName], layouts: Sequence[Layout], machines: int
) -> tuple[Layout, ...] | None:
    """A layout for each machine such that all these devices are there; None where there is none."""
    needed: dict[DeviceKindName, int] = {}
    for kind in devices:
        needed[kind] = needed.get(kind, 0) + 1
    if comb(machines + len(layouts) - 1, machines) > MOST_DIVISIONS:
        return None
    for way in combinations_with_replacement(layouts, machines):
        if all(sum(one.get(kind, 0) for one in way) >= n for kind, n in needed.items()):
            return tuple(way)
    return None


def _rank(one: Worth, objective: Objective) -> tuple[int, float, float]:
    by = one.accuracy if objective is Objective.ACCURACY else -one.usd_per_hour
    return (one.tasks, one.served_qps, by)


def _serves(one: Worth) -> str:
    return "all" if one.serves_all else figure(one.served_qps)


def _with(problem: Problem, counts: Layout, pool: Pool | None) -> Problem:
    """The problem with so many devices of the kinds that layouts have; others stay."""
    kinds = tuple(
        replace(one, count=counts[one.name]) if one.name in counts else one for one in problem.kinds
    )
    pools = problem.pools if pool is None else (*problem.pools, pool)
    return replace(problem, kinds=kinds, pools=pools, common=None)


def _better(one: Solution, other: Solution, objective: Objective) -> bool:
    sign = 1.0 if objective is Objective.ACCURACY else -1.0
    served, least = one.served_qps, other.served_qps
    if abs(served - least) > 1e-9 * max(served, least):
        return served > least
    return sign * one.objective > sign * other.objective
