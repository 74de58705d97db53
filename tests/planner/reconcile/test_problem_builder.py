"""Problems that share what depends on neither rates nor load have the solutions of others."""

from dataclasses import replace
from math import exp
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.reconcile.demand_assignment import assign_demand
from planner.reconcile.problem_builder import ProblemBuilder, build_problem, highest_load
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


@settings(max_examples=30)
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


@settings(max_examples=30)
@given(
    catalogs(),
    wanted_classes,
    st.lists(
        st.tuples(
            st.sampled_from((400.0, 1_000.0)),
            st.sampled_from(("", "part")),
            st.booleans(),
            st.booleans(),
            st.booleans(),
        ),
        min_size=2,
        max_size=4,
    ),
)
def test_what_was_kept_of_other_problems_makes_the_same_problem(
    known: CatalogSnapshot,
    wanted: list[Demand],
    fleets_: list[tuple[float, str, bool, bool, bool]],
) -> None:
    """Of other fleets, with parts of kinds told apart, and what is pinned, kept out or resident."""
    assume(known.variants)
    kept = snapshot(known)
    kinds = [kind.name for kind in known.device_kinds]
    keys = [each.key for each in known.variants]
    for memory_mib, part, pinned, barred, resident in fleets_:
        told = {DeviceKindName(f"{name} {part}".strip()): name for name in kinds}
        some = [replace(KINDS[0], name=name, memory_mib=memory_mib) for name in told]
        asked = [replace(d, variant=keys[0][1], accuracy=None) if pinned else d for d in wanted]
        how: dict[str, Any] = {
            "real": told,
            "forbidden": dict.fromkeys(told, frozenset(keys[:1])) if barred else None,
            "resident": dict.fromkeys(told, frozenset(keys[-1:])) if resident else None,
        }

        again = ProblemBuilder(kept, some, asked, **how).problem()
        new = ProblemBuilder(snapshot(known), some, asked, **how).problem()

        assert again.problem.offers == new.problem.offers
        assert again.problem.demand == new.problem.demand
        assert again.problem.most == new.problem.most
        assert again.candidates == new.candidates
        assert again.unanswerable == new.unanswerable


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


@given(st.floats(0.5, 1e4), st.sampled_from([0.0005, 0.001, 0.01]))
def test_at_the_highest_load_hardly_more_is_refused_than_asked(rows: float, refused: float) -> None:
    load = highest_load(rows, refused)
    backlog = exp(-2.0 * rows * (1.0 - load) / load)
    assert (1.0 - load) * backlog <= refused * (1.0 - load * backlog) * (1 + 1e-3)
    assert 0.0 < load <= 1.0


def test_by_refusals_much_slack_needs_hardly_any_headroom_and_little_slack_more() -> None:
    """200 rows a second of 5 ms are one device, whose SLOs leave it time for some rows or many."""
    found = {}
    for slo_ms in (40.0, 1_000.0):
        builder = ProblemBuilder(snapshot(CATALOG), KINDS, [demand(200.0, slo_ms)])
        of_tail, of_refusals = builder.problem(load=0.97), builder.problem(load=0.97, refused=0.001)
        found[slo_ms] = of_tail.factors[0], of_refusals.factors[0]
    assert found[40.0][1] > found[40.0][0] > 1.2
    assert found[1_000.0][1] == pytest.approx(1.0)
    assert found[1_000.0][1] <= found[1_000.0][0]
