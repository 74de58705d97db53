"""What no division can beat: never better than what is found, and enough to know that routes
stay."""

from dataclasses import replace

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from planner.reconcile.demand_assignment import SERVED, assign_demand
from planner.reconcile.kept.best import best
from planner.reconcile.kept.routes import planned_qps
from planner.reconcile.kept.worth import Worth
from planner.reconcile.tick import tick
from planner.solver.greedy import greedy
from planner.solver.problem import Problem, Solution
from planner.solver.solve import solve
from planner.types import Demand, Objective, class_of
from tests.planner.builders import (
    catalog,
    demand,
    kind,
    observation,
    profile,
    replica,
    report,
    snapshot,
    variant,
    worker,
)
from variants.types import CatalogSnapshot

KINDS = {"cpu-1": 2, "gpu": 1}


def planner(problem: Problem, objective: Objective) -> Solution:
    return solve(problem, objective, clock=lambda: 0.0, time_limit_s=60.0, exact=False)


@st.composite
def catalogs(draw: st.DrawFn) -> CatalogSnapshot:
    """Two tasks with two or three variants each, of which some may have no known energy."""
    variants, profiles = [], []
    for task in ("one", "two"):
        for number in range(draw(st.integers(2, 3))):
            name = f"{task}-{number}"
            accuracy = draw(st.sampled_from([0.7, 0.8, 0.9]))
            variants.append(variant(name, accuracy, task))
            for on in KINDS:
                ms = draw(st.sampled_from([1.0, 2.0, 5.0, 20.0]))
                joules = draw(st.sampled_from([0.1, 0.5, 2.0, None]))
                each = profile(name, ms, kind=on, task=task, max_batch=4, energy_j=joules)
                # Larger batches take less time per row.
                last = each.points[-1]
                part = draw(st.sampled_from([0.4, 1.0]))
                shorter = replace(last, p50_ms=last.p50_ms * part, p95_ms=last.p95_ms * part)
                profiles.append(replace(each, points=(*each.points[:-1], shorter)))
    prices = {on: draw(st.sampled_from([0.0, 0.36, 2.0])) for on in KINDS}
    kinds = [kind(on, usd, idle_w=5.0) for on, usd in prices.items()]
    return catalog(variants, profiles, kinds=kinds)


demands = st.lists(
    st.builds(
        demand,
        st.sampled_from([1.0, 20.0, 90.0]),
        st.sampled_from([10.0, 50.0, 200.0]),
        st.sampled_from([None, 0.8]),
        st.sampled_from(["one", "two"]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda d: (d.task, d.latency_ms, d.accuracy),
)


@settings(max_examples=100)
@given(catalogs(), demands, st.sampled_from(list(Objective)), st.sampled_from([planner, greedy]))
def test_no_division_beats_it(
    known: CatalogSnapshot, asked: list[Demand], objective: Objective, by: object
) -> None:
    names = [(f"{on}-{n}", on) for on, count in KINDS.items() for n in range(count)]
    seen = snapshot(known, *((worker(name, kind=on), ()) for name, on in names))
    workers = [report(name, kind=on) for name, on in names]
    kinds = {each.name: each for each in known.device_kinds}
    made = assign_demand(seen, workers, asked, kinds, by, objective)  # type: ignore[arg-type]
    assume(made.served_qps >= SERVED * sum(d.qps for d in asked))
    worth = Worth(seen, kinds, {}, objective)
    if objective is Objective.ACCURACY:
        assert worth.accuracy(made.routes) <= best(worth, asked) + 1e-9
        return
    taken = worth.usd(made.routes) if objective is Objective.COST else worth.draw(made.routes)
    event("reached" if taken <= best(worth, asked) * (1 + 1e-9) else "not reached")
    assert taken >= best(worth, asked) * (1 - 1e-9)


@settings(max_examples=60)
@given(catalogs(), demands, st.sampled_from([Objective.COST, Objective.ACCURACY]))
def test_routes_are_planned_for_no_more_than_is_asked(
    known: CatalogSnapshot, asked: list[Demand], objective: Objective
) -> None:
    """Also where memory for one variant has no room for all that is asked: the demand is made
    smaller until it fits, and what was planned for is made as large as all of it again."""
    asked = [replace(d, qps=20.0 * d.qps) for d in asked]
    names = [(f"{on}-{n}", on) for on, count in KINDS.items() for n in range(count)]
    seen = snapshot(known, *((worker(name, kind=on), ()) for name, on in names))
    workers = [report(name, kind=on, memory_mib=150.0) for name, on in names]
    kinds = {each.name: each for each in known.device_kinds}

    made = assign_demand(seen, workers, asked, kinds, greedy, objective)

    planned = planned_qps(made.routes)
    assert planned.keys() <= {class_of(d) for d in asked}
    for each in asked:
        assert planned.get(class_of(each), 0.0) <= each.qps * (1 + 1e-9)


@pytest.mark.parametrize("objective", list(Objective))
def test_nothing_is_solved_where_no_division_could_gain_enough(objective: Objective) -> None:
    """A latency was corrected, by which another variant is a little quicker and more frugal."""

    def seen(b_ms: float, b_j: float, b_accuracy: float = 0.9) -> CatalogSnapshot:
        return catalog(
            [variant("a", 0.9), variant("b", b_accuracy)],
            [profile("a", 1.0, energy_j=1.0), profile("b", b_ms, energy_j=b_j)],
            kinds=[kind(idle_w=0.0)],
        )

    solved = []

    def counting(problem: Problem, objective: Objective) -> Solution:
        solved.append(problem)
        return planner(problem, objective)

    def decided(known: CatalogSnapshot, plan: object = None) -> set[str]:
        held = report("w1", replica("a"), replica("b"))
        made = observation(known, held, demand=[demand(100.0)], plan=plan)  # type: ignore[arg-type]
        found = tick(replace(made, objective=objective, corrected=plan is not None), counting).plan
        plans.append(replace(found, version=1, epoch=1))
        return {route.variant for route in found.routes}

    plans: list[object] = []
    assert decided(seen(1.01, 1.01, 0.8999)) == {"a"}
    assert solved
    solved.clear()
    assert decided(seen(0.97, 0.97, 0.9001), plans[0]) == {"a"}
    assert not solved
    assert decided(seen(0.4, 0.4, 0.95), plans[0]) == {"b"}
    assert solved
