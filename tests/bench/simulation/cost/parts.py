"""Where the cost above the bound goes: ``python -m tests.bench.simulation.cost.parts``.

Our own policy under ``cost``. What is billed after the first minute is held, tick by tick, against
fleets for the rate that the workload really has then, each with one thing more than the one before:

* *full batches*: parts of devices, all of their time used, in the best batches that the SLOs allow
  (a linear program);
* *own batches*: the same in batches that the rate of each task fills;
* *whole devices*: whole ones, as plans find them, without room for chance;
* *room*: with the part of the room for chance that was kept (``planner.forecasting.chance_room``);
* *envelope*: for what workers were to be there for, instead of the true rate;
* *billed*: what was there. More than the envelope needs are devices that are not let go yet.

The first less the bound is what the bound gains by knowing the arrivals, and by leaving out as many
queries as the policy lost. With ``--whole-room`` all of the room for chance is kept, as it was
before it was followed.

Beside that stands who does not know the rate either, but learns it at once: everything is there
until ``--known-s``, and then the whole devices that the true rate takes, without room for chance.

Half a minute for a workload and two minutes for its bound; nothing depends on the machine.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.optimize import linprog

from planner.forecasting.demand_estimator import DemandEstimator
from planner.reconcile.problem_builder import largest_batch
from planner.reconcile.sizing import FleetPlanner, in_steps
from planner.reconcile.tick import tick
from planner.selection.snapshot import build_snapshot
from planner.simulate import bound, simulate
from planner.simulation.results import Report
from planner.solver.problem import OVERHEAD_MS, Planner, Problem, Solution
from planner.solver.solve import solve
from planner.types import WHOLE_ROOM, Decision, Demand, Objective, Observation
from tests.bench.planning.catalogs import Ground
from tests.bench.simulation.capacity import Class, capacity_qps, row_ms
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import FIRST_S, setting_of
from tests.bench.simulation.workloads import Workload
from variants.types import TaskName

NAMES = ("full batches", "own batches", "whole devices", "room", "envelope", "billed")
TICK = "planner.policies.modelless.tick"


class Stretch(NamedTuple):
    """A stretch of time between two ticks: USD per hour of each of ``NAMES``."""

    begin_s: float
    end_s: float
    usd_per_hour: tuple[float, ...]


def planner(problem: Problem, objective: Objective) -> Solution:
    return solve(problem, objective, clock=lambda: 0.0, time_limit_s=5.0, exact=False)


class Fleets:
    """The cheapest fleets for the rates of a workload, as plans find them."""

    def __init__(self, ground: Ground, find: Planner = planner) -> None:
        self._ground = ground
        self._find = find
        self._snapshot = build_snapshot(ground.catalog, (), transport_ms=0.0)
        self._most = {kind.name: kind.count for kind in ground.kinds}
        self._kinds = {kind.name: kind for kind in ground.catalog.device_kinds}
        self._capacities: dict[tuple[tuple[Class, float], ...], float] = {}
        self._planners: dict[object, FleetPlanner] = {}

    def rates(self, workload: Workload, begin_s: float, end_s: float) -> dict[Class, float]:
        """The mean rate of each class in a stretch of time, without chance."""
        found: dict[Class, float] = {}
        last = min(workload.duration_s, max(int(begin_s) + 1, int(end_s)))
        seconds = range(int(begin_s), last)
        for second in seconds:
            mix = workload.mix(second)
            key = tuple(mix.items())
            if key not in self._capacities:
                self._capacities[key] = capacity_qps(self._ground, mix)
            rate = workload.load[second] * workload.opening.factor(second) * self._capacities[key]
            for each, weight in mix.items():
                part = weight / sum(mix.values()) / len(seconds)
                found[each] = found.get(each, 0.0) + rate * part
        return found

    def in_parts(self, rates: dict[Class, float], *, own: bool) -> float:
        """USD per hour of parts of devices that are busy all the time.

        Args:
            own: in batches that the rate of each class fills.
        """
        costs, served, taken = [], [], []
        names = list(self._most)
        for number, (asked, qps) in enumerate(rates.items()):
            most = largest_batch(qps, asked.latency_ms - OVERHEAD_MS) if own else None
            for kind, ms in row_ms(self._ground, asked, most).items():
                devices = ms * qps / 1_000.0
                costs.append(devices * self._kinds[kind].usd_per_hour)
                served.append([1.0 if k == number else 0.0 for k in range(len(rates))])
                taken.append([devices if kind == name else 0.0 for name in names])
        found = linprog(
            costs,
            A_ub=np.array(taken).T, b_ub=[self._most[name] for name in names],
            A_eq=np.array(served).T, b_eq=np.ones(len(rates)),
        )  # fmt: skip
        return (
            float(found.fun)
            if found.success
            else sum(kind.count * kind.usd_per_hour for kind in self._ground.kinds)
        )

    def whole(
        self,
        demand: Sequence[Demand],
        room: float,
        dispersion: Mapping[TaskName, float] | None = None,
    ) -> float:
        """USD per hour of the fleet that is found for a demand, with a part of the room for
        arrivals that vary so much."""
        varies = in_steps(dispersion or {})
        known = self._planners.setdefault(
            (room, *sorted(varies.items())),
            FleetPlanner(
                self._snapshot, self._kinds, self._find, Objective.COST, {}, {}, room, varies
            ),
        )
        return known.price(known.cheapest(demand, self._most), demand)


def ran(case: Case, *, whole_room: bool = False) -> tuple[Report, list[Observation]]:
    """Our policy on a case, and what each of its ticks saw."""
    seen: list[Observation] = []

    def seeing(
        observation: Observation, find: Planner, before: Decision | None, *, explained: bool
    ) -> Decision:
        seen.append(observation)
        return tick(observation, find, before, explained=explained)

    room = property(lambda _: WHOLE_ROOM) if whole_room else DemandEstimator.__dict__["room"]
    with patch(TICK, seeing), patch.object(DemandEstimator, "room", room):
        trace = made(case)[2].trace
        setting = setting_of(case, Objective.COST)
        return simulate(setting, trace, "modelless", clock=lambda: 0.0), seen


def stretches(case: Case, report: Report, seen: Sequence[Observation]) -> list[Stretch]:
    """What each stretch between two ticks after the first minute cost, and what it would have."""
    ground, workload, _ = made(case)
    fleets = Fleets(ground)
    found = []
    for one in seen:
        begin_s, end_s = one.now_s, one.now_s + case.tick_s
        billed = [each for each in report.timeline if begin_s <= each.start_s < end_s]
        rates = fleets.rates(workload, begin_s, end_s)
        if begin_s < FIRST_S or not billed or not rates:
            continue
        true = [
            Demand(task=a.task, latency_ms=a.latency_ms, accuracy=a.floor, qps=qps)
            for a, qps in rates.items()
        ]
        part = one.room.part
        costs = (
            fleets.in_parts(rates, own=False),
            fleets.in_parts(rates, own=True),
            fleets.whole(true, 0.0),
            fleets.whole(true, part, one.dispersion),
            fleets.whole(one.envelope or (), part, one.dispersion),
            sum(each.usd_per_hour for each in billed) / len(billed),
        )
        found.append(Stretch(begin_s, end_s, costs))
    return found


def mean(some: Sequence[Stretch]) -> list[float]:
    """USD per hour in the mean of stretches."""
    hours = sum(each.end_s - each.begin_s for each in some)
    return [
        sum(each.usd_per_hour[k] * (each.end_s - each.begin_s) for each in some) / hours
        for k in range(len(NAMES))
    ]


def table(some: Sequence[Stretch], bound_usd_per_hour: float) -> list[str]:
    """A line for each name: USD per hour, and by how much of the bound it is more than the line
    before."""
    lines = [f"| bound | {bound_usd_per_hour:.2f} | |"]
    before = bound_usd_per_hour
    for name, usd in zip(NAMES, mean(some), strict=True):
        lines.append(f"| {name} | {usd:.2f} | {(usd - before) / bound_usd_per_hour:+.1%} |")
        before = usd
    return lines


def knowing_from(some: Sequence[Stretch], known_s: float, everything_usd: float) -> float:
    """USD per hour of all that there is until the rate is known, and then of whole devices for it,
    without room for chance."""
    whole = NAMES.index("whole devices")
    hours = sum(each.end_s - each.begin_s for each in some)
    return (
        sum(
            (each.end_s - each.begin_s)
            * (everything_usd if each.begin_s < known_s else each.usd_per_hour[whole])
            for each in some
        )
        / hours
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="steady")
    parser.add_argument("--seed", default="0", help="one or several, by commas")
    parser.add_argument("--edges", default="60,100,240,600", help="of windows, in s, by commas")
    parser.add_argument("--known-s", type=float, default=100.0, help="when a rate can be known")
    parser.add_argument("--whole-room", action="store_true", help="keep all room for chance")
    given = parser.parse_args()
    edges = [float(each) for each in given.edges.split(",")]
    for seed in given.seed.split(","):
        case = Case(catalog="synthetic", workload=given.workload, seed=int(seed))
        report, seen = ran(case, whole_room=given.whole_room)
        found = stretches(case, report, seen)
        trace, setting = made(case)[2].trace, setting_of(case, Objective.COST)
        hours = (float(trace.arrival_s[-1]) - FIRST_S) / 3_600
        least_usd = bound(setting, trace, [report], beginning_s=FIRST_S).later_cost_usd(
            report.in_time
        )
        print(f"\n{given.workload}, seed {seed}: {report.violation_ratio:.3%} violated\n")
        print("| after the first minute | USD/h | more than before |\n|---|--:|--:|")
        print("\n".join(table(found, least_usd / hours)), flush=True)
        everything_usd = sum(each.count * each.usd_per_hour for each in setting.kinds)
        usd = knowing_from(found, given.known_s, everything_usd)
        above = usd * hours / least_usd - 1
        print(f"\nWho knows the rate at {given.known_s:g} s: {usd:.2f} USD/h, {above:.1%} above it")
        print(f"\n| seconds | {' | '.join(NAMES)} |\n|---|" + "--:|" * len(NAMES))
        for low, high in pairwise(edges):
            some = [each for each in found if low <= each.begin_s < high]
            if some:
                cells = " | ".join(f"{usd:.2f}" for usd in mean(some))
                print(f"| {low:g} to {high:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
