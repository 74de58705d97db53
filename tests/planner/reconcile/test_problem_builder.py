"""Problems that share what depends on neither rates nor load have the solutions of others."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.reconcile.demand_assignment import assign_demand
from planner.reconcile.problem_builder import ProblemBuilder, build_problem
from planner.solver.options import Options
from planner.solver.problem import AvailableKind, Problem, Solution
from planner.solver.solve import solve
from planner.types import Demand, Objective, WorkerReport
from tests.planner.builders import catalog, demand, profile, snapshot, variant
from tests.planner.reconcile.test_placement import catalogs, fleets, wanted_classes
from variants.types import CatalogSnapshot, DeviceKindName

KINDS = (
    AvailableKind(name=DeviceKindName("cpu-1"), count=4, memory_mib=1_000.0, usd_per_hour=1.0),
)
CATALOG = catalog(
    [variant("small", 0.8), variant("large", 0.95)], [profile("small", 5.0), profile("large", 20.0)]
)


def sharing(problem: Problem, objective: Objective) -> Solution:
    return solve(problem, objective, clock=lambda: 0.0, time_limit_s=60.0, exact=False)


def alone(problem: Problem, objective: Objective) -> Solution:
    return sharing(replace(problem, common=None), objective)


@settings(max_examples=60)
@given(catalogs(), fleets(), wanted_classes, st.sampled_from(Objective), st.floats(1.0, 100.0))
def test_an_assignment_is_that_of_problems_that_share_nothing(
    known: CatalogSnapshot,
    workers: tuple[WorkerReport, ...],
    wanted: list[Demand],
    objective: Objective,
    more: float,
) -> None:
    view = snapshot(known)
    usable = [worker for worker in workers if not worker.draining]
    asked = [replace(d, qps=d.qps * more) for d in wanted]

    assert assign_demand(view, usable, asked, {}, sharing, objective) == assign_demand(
        view, usable, asked, {}, alone, objective
    )


def test_what_differs_in_more_than_rates_and_load_shares_nothing() -> None:
    builder = ProblemBuilder(snapshot(CATALOG), KINDS, [demand(10.0)])
    first = Options(builder.problem().problem)
    other = builder.problem(load=0.5).problem
    tighter = replace(other, demand=(replace(other.demand[0], latency_ms=20.0),))

    assert Options(other).of_class is first.of_class
    assert Options(tighter).all == Options(replace(tighter, common=None)).all


def test_a_builder_gives_the_problems_of_build_problem() -> None:
    builder = ProblemBuilder(snapshot(CATALOG), KINDS, [demand(10.0), demand(3.0, 50.0)])
    for load in (0.95, 0.5):
        assert builder.problem(load=load) == build_problem(
            snapshot(CATALOG), KINDS, [demand(10.0), demand(3.0, 50.0)], load=load
        )
