"""Layouts: which one is worth having, and how machines are divided among them."""

from collections.abc import Mapping
from itertools import count

import pytest

from planner.latency_curve import Curve
from planner.layouts import (
    Worth,
    chosen,
    division,
    pool_of,
    present_layout,
    solve_split,
)
from planner.solver.problem import AvailableKind, Offer, Problem, Solution
from planner.solver.solve import solve
from planner.types import Demand, Objective
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

ONE, TWO, FOUR = (DeviceKindName(f"cpu-{cores}") for cores in (1, 2, 4))
CORES = {ONE: 1, TWO: 2, FOUR: 4}
WIDE, HALVES, NARROW = {FOUR: 1}, {TWO: 2}, {ONE: 4}


def worth(
    layout: Mapping[DeviceKindName, int],
    served_qps: float,
    *,
    asked_qps: float = 100.0,
    accuracy: float = 0.9,
    usd_per_hour: float = 1.0,
) -> Worth:
    return Worth(
        layout=layout,
        served_qps=served_qps,
        asked_qps=asked_qps,
        accuracy=accuracy,
        usd_per_hour=usd_per_hour,
    )


def pick(
    *worths: Worth, objective: Objective = Objective.COST, horizon_s: float = 1_200.0
) -> tuple[Mapping[DeviceKindName, int], str]:
    """The first is what the machine has; a change takes 15 s."""
    return chosen(worths, worths[0].layout, objective, change_s=15.0, horizon_s=horizon_s)


# -- which layout a machine is to have ------------------------------------------------------------


def test_the_one_that_serves_more() -> None:
    layout, why = pick(worth(WIDE, 50.0), worth(NARROW, 100.0))
    assert layout == NARROW
    assert why == (
        "The machine is split into 4xcpu-1: this serves all of 100 rows per second that workers "
        "are to be there for, 1xcpu-4 50."
    )


def test_a_little_more_is_chance() -> None:
    assert pick(worth(WIDE, 96.0), worth(NARROW, 100.0))[0] == WIDE


def test_a_change_has_to_pay_for_itself() -> None:
    """A gain of 10 of 90 rows per second pays for 15 s without any of them after 135 s."""
    layouts = (worth(WIDE, 90.0), worth(NARROW, 100.0))
    assert pick(*layouts, horizon_s=140.0)[0] == NARROW
    layout, why = pick(*layouts, horizon_s=130.0)
    assert layout == WIDE
    assert why.endswith("to change takes 15 s and does not pay within 130 s.")


def test_what_serves_nothing_now_costs_nothing_to_change() -> None:
    assert pick(worth(NARROW, 0.0), worth(WIDE, 0.5), horizon_s=1.0)[0] == WIDE


def test_where_both_serve_all_plans_go_by_what_they_optimise() -> None:
    dear, cheap = worth(WIDE, 100.0, usd_per_hour=1.0), worth(NARROW, 100.0, usd_per_hour=0.5)
    assert pick(dear, cheap)[0] == NARROW
    assert pick(dear, worth(NARROW, 100.0, usd_per_hour=0.96))[0] == WIDE
    better = worth(NARROW, 100.0, accuracy=0.95)
    assert pick(dear, better)[0] == WIDE
    assert pick(dear, better, objective=Objective.ACCURACY)[0] == NARROW
    assert pick(dear, cheap, objective=Objective.ACCURACY)[0] == WIDE


def test_without_demand_it_stays() -> None:
    assert pick(worth(WIDE, 0.0, asked_qps=0.0), worth(NARROW, 0.0, asked_qps=0.0))[0] == WIDE


def test_what_the_machine_has() -> None:
    layouts = [WIDE, NARROW]
    assert present_layout(layouts, {}, {FOUR: 1}) == WIDE
    assert present_layout(layouts, {}, {FOUR: 1, ONE: 4}) == WIDE
    assert present_layout(layouts, NARROW, {FOUR: 1, ONE: 4}) == NARROW  # it changes
    assert present_layout(layouts, NARROW, {FOUR: 1}) == WIDE  # begun anew with the first one
    assert present_layout(layouts, NARROW, {}) == NARROW


# -- several machines -----------------------------------------------------------------------------


def problem(*demand: tuple[str, float, float]) -> Problem:
    """A large model that computes on all cores and a small one that does not gain by them."""
    offers = [
        Offer(
            task=TaskName(task), model=ModelName(task), variant=VariantName(task), accuracy=0.9,
            device_kind=kind, curve=Curve([(1, ms)]),
        )
        for task, times in (("large", {ONE: 160.0, TWO: 80.0, FOUR: 40.0}),
                            ("small", {ONE: 10.0, TWO: 10.0, FOUR: 10.0}))
        for kind, ms in times.items()
    ]  # fmt: skip
    return Problem(
        offers=tuple(offers),
        kinds=tuple(
            AvailableKind(name=kind, count=0, memory_mib=100.0, usd_per_hour=0.1 * cores)
            for kind, cores in CORES.items()
        ),
        demand=tuple(
            Demand(task=TaskName(task), latency_ms=slo_ms, accuracy=None, qps=qps)
            for task, qps, slo_ms in demand
        ),
    )


def planner(problem: Problem, objective: Objective) -> Solution:
    ticks = count()
    return solve(problem, objective, clock=lambda: 1e-6 * next(ticks), time_limit_s=10.0)


def test_a_machine_for_the_large_model_and_one_for_the_many_small_queries() -> None:
    asked = problem(("large", 5.0, 100.0), ("small", 280.0, 100.0))
    found, split = solve_split(asked, [WIDE, NARROW], CORES, 2, planner, Objective.COST)
    assert found.feasible
    assert sorted(split, key=str) == sorted([WIDE, NARROW], key=str)
    alone, _ = solve_split(asked, [WIDE, NARROW], CORES, 1, planner, Objective.COST)
    assert not alone.feasible


def test_what_the_pool_allows_and_no_layout_does_is_left_out() -> None:
    """One of two cores and one of one are three of four cores, but a machine has either."""
    asked = problem(("large", 2.0, 170.0), ("small", 90.0, 100.0))
    layouts = [HALVES, NARROW]
    assert division([TWO, ONE], layouts, 1) is None
    found, split = solve_split(asked, layouts, CORES, 1, planner, Objective.COST)
    assert split in [(HALVES,), (NARROW,)]
    assert division(found.devices, [split[0]], 1) == split
    assert found.bound <= found.objective + 1e-9


@pytest.mark.parametrize("machines", [1, 3])
def test_the_pool_allows_all_that_layouts_do(machines: int) -> None:
    pool = pool_of([WIDE, HALVES, NARROW, {TWO: 1, ONE: 2}], CORES, machines)
    assert pool.capacity == 4 * machines
    assert pool.uses == CORES
