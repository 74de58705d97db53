"""What each idea of planning and following is worth: ``python -m tests.bench.simulation.ablation``.

About three minutes. Each line switches one idea off, by a constant or a function of the module that
has it, and simulates short workloads again, under ``accuracy``: some on the synthetic catalog
(``tests.bench.simulation.workloads``), some on slow and fast devices
(``tests.bench.simulation.mixed_speed``). Cells are violations and effective accuracy, and depend on
nothing but the code. With MODELLESS_BENCH_DATA set, the diurnal workload is the measured one.

``--regret`` adds by how much accuracy misses what no policy can beat with as many queries in time,
and its median, mean and worst over the workloads.

With ``--objective cost`` the lines are what room and kept fleets cost, workloads have their
full length, cells are violations and USD, and the regret is in cost. ``--only steady,zipf`` takes
ten seconds a line and seed, ``diurnal`` half a minute.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import Any

import planner.batching.fairness
import planner.forecasting.demand_estimator
import planner.forecasting.provisioning
import planner.policies.modelless
import planner.reconcile.demand_assignment
import planner.reconcile.problem_builder
import planner.reconcile.sizing
import planner.selection.menus
import planner.selection.open_batches
import planner.selection.plan_following
import planner.selection.prices
import planner.selection.route_targets
import planner.selection.shedding
from planner.batching.deadline_queue import DeadlineQueue
from planner.forecasting.demand_estimator import HOLD, SETTLED_S, DemandEstimator
from planner.forecasting.row_costs import RowCosts
from planner.reconcile.problem_builder import BuiltProblem
from planner.simulate import bound, simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.simulation.cases import Case, made

NAMES = ("diurnal", "flash", "zipf", "mixed")
DRAWS = ("draw-00", "draw-08", "draw-12")
"""Drawn workloads with a low load, with bursts, and with a wide swing."""
SETS = {
    "half": tuple(f"draw-{number:02}" for number in range(30) if number % 10 in (0, 3, 6, 9)),
    "high": tuple(f"draw-{number:02}" for number in range(30) if number % 10 in (1, 2, 5, 8)),
}
"""Drawn workloads by their peaks: up to half of capacity, and up to nine tenths."""

HALF_ROOM = {prefer: room / 2 for prefer, room in planner.selection.route_targets.ROOM.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something switched off: an attribute of a module or class, and what stands in."""

    name: str
    where: Any = None
    what: str = ""
    instead: Any = None


def _any_length(queue: DeadlineQueue, longest_ms: float | None) -> None:
    """Takes no notice of the longest batch that is planned."""


def _no_room(schedule: DeadlineQueue, item: Any, now_ms: float) -> float:
    return 0.0


def _nobody(*arguments: Any) -> bool:
    return False


def _unlimited(size: float) -> int:
    """Whatever arrives in time, any batch is planned for."""
    return 1 << 20


def _as_full_as_can_be(
    *arguments: Any, load: float, refused: float | None, **named: Any
) -> BuiltProblem:
    """Sizes fleets for full load, with no room for chance."""
    return _no_chance(*arguments, **named, load=1.0, refused=refused)


def _no_chance(*arguments: Any, refused: float | None, **named: Any) -> BuiltProblem:
    """Sizes fleets as if no class had to be refused anything by chance."""
    return planner.reconcile.problem_builder.build_problem(*arguments, **named, tail=0.0)


def _alike(costs: RowCosts, *of: Any) -> float:
    """Each row is as much work as any other."""
    return 1.0


def _at_once(estimator: DemandEstimator) -> float:
    """All that are not needed may go as soon as any may."""
    return float(estimator._observed_s > HOLD * SETTLED_S)


CHANGES = (
    Change(name="all of it"),
    Change(
        name="congestion window does not shrink",
        where=planner.selection.plan_following,
        what="WINDOW_LOST",
        instead=0.0,
    ),
    Change(
        name="plans not even",
        where=planner.reconcile.demand_assignment,
        what="EVEN_LOADS",
        instead=(),
    ),
    Change(
        name="open batches not known",
        where=planner.selection.open_batches,
        what="MOST_OPEN",
        instead=0,
    ),
    Change(name="nothing is shed", where=planner.selection.shedding, what="EACH", instead=0.0),
    Change(
        name="shed whatever the window",
        where=planner.selection.plan_following,
        what="SHED_WINDOW",
        instead=1.0,
    ),
    Change(
        name="always the least room", where=planner.selection.prices, what="MORE_ROOM", instead=0.0
    ),
    Change(
        name="prices by backlogs alone", where=planner.selection.prices, what="AT_ONCE", instead=1.0
    ),
    Change(
        name="full workers cost no more",
        where=planner.selection.prices,
        what="HIGHEST_FILL",
        instead=1.0,
    ),
    Change(
        name="one worker looked at", where=planner.selection.menus, what="NEIGHBOURS", instead=1
    ),
    Change(
        name="half the room", where=planner.selection.route_targets, what="ROOM", instead=HALF_ROOM
    ),
    Change(
        name="no headroom", where=planner.reconcile.demand_assignment, what="TAILS", instead=(0.0,)
    ),
    Change(
        name="any batch planned",
        where=planner.reconcile.problem_builder,
        what="int",
        instead=_unlimited,
    ),
    Change(
        name="longest batch not planned",
        where=DeadlineQueue,
        what="set_longest_batch",
        instead=_any_length,
    ),
    Change(name="no room to fill up", where=DeadlineQueue, what="_room_ms", instead=_no_room),
    Change(name="shares never bind", where=planner.batching.fairness, what="EXCESS", instead=inf),
    Change(
        name="nobody asks to come before others",
        where=planner.selection.plan_following.CongestionWindow,
        what="may_overtake",
        instead=_nobody,
    ),
)

COST_CHANGES = (
    CHANGES[0],
    Change(
        name="fleets at full load", where=planner.reconcile.sizing, what="MOST_LOAD", instead=1.0
    ),
    Change(
        name="no room for chance",
        where=planner.reconcile.sizing,
        what="build_problem",
        instead=_no_chance,
    ),
    Change(
        name="neither of these two",
        where=planner.reconcile.sizing,
        what="build_problem",
        instead=_as_full_as_can_be,
    ),
    Change(
        name="all may go after 100 s",
        where=DemandEstimator,
        what="watched",
        instead=property(_at_once),
    ),
    Change(
        name="nothing kept for more than 75 s",
        where=planner.forecasting.provisioning,
        what="PARTS",
        instead=(1 / 16,),
    ),
    Change(
        name="no mean of a minute",
        where=planner.forecasting.provisioning,
        what="MEAN_S",
        instead=0.0,
    ),
    Change(name="room counted in rows", where=RowCosts, what="of", instead=_alike),
    Change(
        name="no margin", where=planner.forecasting.provisioning, what="MARGINS", instead=(1.0,)
    ),
    Change(
        name="1 % without room",
        where=planner.forecasting.provisioning,
        what="TOLERATED",
        instead=0.01,
    ),
    Change(
        name="the 0.8 quantile",
        where=planner.forecasting.demand_estimator,
        what="QUANTILE",
        instead=dict.fromkeys(Objective, 0.8),
    ),
)
"""Under ``cost``."""


@contextmanager
def switched(change: Change) -> Iterator[None]:
    """The change made, and taken back."""
    if change.where is None:
        yield
        return
    missing = object()
    before = change.where.__dict__.get(change.what, missing)
    setattr(change.where, change.what, change.instead)
    try:
        yield
    finally:
        if before is missing:
            delattr(change.where, change.what)
        else:
            setattr(change.where, change.what, before)


def played(case: Case, objective: Objective = Objective.ACCURACY) -> Report:
    """Simulates a case under our policy."""
    return simulate(
        _setting(case, objective), made(case)[2].trace, "modelless", clock=time.thread_time
    )


def regret(case: Case, report: Report, objective: Objective = Objective.ACCURACY) -> float:
    """By how much it misses the bound for as many queries in time: in accuracy, or in parts of the
    cost."""
    found = bound(_setting(case, objective), made(case)[2].trace, [report]).beside(report)
    return found.regret_cost_ratio if objective is Objective.COST else found.regret_accuracy


def _setting(case: Case, objective: Objective) -> Setting:
    ground, workload, _ = made(case)
    return Setting(
        catalog=ground.catalog,
        kinds=ground.kinds,
        objective=objective,
        seed=case.seed,
        failures_every_s=workload.failures_every_s,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default=",".join((*NAMES, *DRAWS)),
        help="workloads, by comma; half or high: draws with such peaks",
    )
    parser.add_argument("--rules", help="parts of the names of rules, by comma")
    parser.add_argument("--seed", default="0", help="one or several, by comma")
    parser.add_argument("--regret", action="store_true", help="beside what no policy can beat")
    parser.add_argument("--objective", choices=("accuracy", "cost"), default="accuracy")
    asked = parser.parse_args(arguments)
    objective = Objective(asked.objective)
    by_cost = objective is Objective.COST
    names = [name for each in asked.only.split(",") for name in SETS.get(each, (each,))]
    chosen = [
        Case(catalog=_catalog(name), workload=name, seed=int(seed), quick=not by_cost)
        for name in names
        for seed in asked.seed.split(",")
    ]
    heads = [f"{c.workload}, {c.seed}" for c in chosen]
    if asked.regret:
        heads.append("regret: median, mean, worst")
    print("| without | " + " | ".join(heads) + " |")
    print("|---|" + "--:|" * len(heads))
    for change in COST_CHANGES if by_cost else CHANGES:
        if asked.rules and not any(part in change.name for part in asked.rules.split(",")):
            continue
        with switched(change):
            found = [played(case, objective) for case in chosen]
        got = [f"{r.cost_usd:.3f}" if by_cost else f"{r.effective_accuracy:.4f}" for r in found]
        cells = [f"{r.violation_ratio:.2%}, {each}" for r, each in zip(found, got, strict=True)]
        if asked.regret:
            missed = [regret(case, r, objective) for case, r in zip(chosen, found, strict=True)]
            cells = [f"{cell}, {by:.4f}" for cell, by in zip(cells, missed, strict=True)]
            cells.append(f"{median(missed):.4f}, {fmean(missed):.4f}, {max(missed):.4f}")
        print(f"| {change.name} | " + " | ".join(cells) + " |")
        sys.stdout.flush()


def _catalog(name: str) -> str:
    """The catalog that has a workload of this name."""
    return {"draw": "draws", "swing": "mixed-speed", "adverse": "adverse"}.get(
        name.split("-", maxsplit=1)[0], "synthetic"
    )


if __name__ == "__main__":
    main()
