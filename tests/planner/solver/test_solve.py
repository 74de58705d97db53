"""Planners against each other, against trying everything, and against what always holds."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.latency_curve import Curve
from planner.solver.check import violations
from planner.solver.greedy import greedy
from planner.solver.options import Options
from planner.solver.problem import AvailableKind, Common, Offer, Pool, Problem, Solution
from planner.solver.solve import solve
from planner.types import Demand, Objective
from tests.planner.solver.brute_force import Best, brute_force
from tests.planner.solver.instances import interfering, limited, small
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

DIGITS = TaskName("digits")
CPU = DeviceKindName("cpu")
GPU = DeviceKindName("gpu")


def never() -> float:
    """A clock that stands still: the limit is never reached."""
    return 0.0


def solved(problem: Problem, objective: Objective = Objective.COST) -> Solution:
    return solve(problem, objective, clock=never, time_limit_s=600.0)


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that has moved on each time it is read."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += step_s
        return now

    return clock


def offer(
    variant: str,
    ms: float,
    accuracy: float = 0.9,
    *,
    kind: DeviceKindName = CPU,
    memory_mib: float = 0.0,
    task: TaskName = DIGITS,
) -> Offer:
    """A variant that takes ``ms`` for its only batch size, one row."""
    return Offer(
        task=task,
        model=ModelName("model"),
        variant=VariantName(variant),
        accuracy=accuracy,
        device_kind=kind,
        curve=Curve([(1, ms)]),
        memory_mib=memory_mib,
    )


def kind(
    name: DeviceKindName = CPU, count: int = 10, usd: float = 1.0, memory_mib: float = inf
) -> AvailableKind:
    return AvailableKind(name=name, count=count, memory_mib=memory_mib, usd_per_hour=usd)


def asked(
    qps: float, latency_ms: float = 100.0, accuracy: float | None = None, task: TaskName = DIGITS
) -> Demand:
    return Demand(task=task, latency_ms=latency_ms, accuracy=accuracy, qps=qps)


def test_exactly_full_devices_are_enough() -> None:
    """At 10 ms a device serves 80 queries per second in 0.8 of its time."""
    problem = Problem(offers=(offer("a", 10.0),), kinds=(kind(),), demand=(asked(160.0),))

    found = solved(problem)

    assert (found.devices, found.feasible, found.objective, found.gap) == (
        (CPU, CPU), True, 2.0, 0.0,
    )  # fmt: skip


def test_a_little_more_needs_another() -> None:
    problem = Problem(offers=(offer("a", 10.0),), kinds=(kind(),), demand=(asked(160.001),))

    assert solved(problem).objective == 3.0


def test_what_cannot_be_served_is_served_as_far_as_it_goes() -> None:
    problem = Problem(offers=(offer("a", 10.0),), kinds=(kind(count=1),), demand=(asked(160.0),))

    found = solved(problem)

    assert (found.feasible, found.objective) == (False, 1.0)
    assert found.served_qps == pytest.approx(80.0)


def test_that_full_devices_cannot_be_fewer_is_proven() -> None:
    """What is served leaves the search no more room than its own rounding."""
    four_rows = replace(offer("a", 5.0), curve=Curve([(4, 5.0)]))
    problem = Problem(
        offers=(four_rows, offer("b", 5.0, task=TaskName("other"))),
        kinds=(kind(count=5, usd=0.5),),
        demand=(
            asked(100.0, task=TaskName("other")),
            asked(5_000.0),
            asked(5_000.0, latency_ms=10.0),
        ),
    )

    found = solved(problem)

    assert (found.feasible, found.objective, found.bound) == (False, 2.5, 2.5)
    assert found.served_qps == pytest.approx(3_200.0)


def test_no_demand_needs_nothing() -> None:
    problem = Problem(offers=(offer("a", 10.0),), kinds=(kind(),), demand=())

    found = solved(problem)

    assert (found.devices, found.feasible, found.objective, found.gap) == ((), True, 0.0, 0.0)


def test_demand_for_an_unknown_task_is_not_served() -> None:
    problem = Problem(offers=(), kinds=(kind(),), demand=(asked(1.0),))

    found = solved(problem, Objective.ACCURACY)

    assert (found.served_qps, found.feasible, found.accuracy) == (0.0, False, 0.0)


def test_two_variants_on_one_device_only_if_memory_holds_both() -> None:
    other = TaskName("faces")
    offers = (offer("a", 10.0, memory_mib=600.0), offer("b", 10.0, memory_mib=600.0, task=other))
    demand = (asked(10.0), asked(10.0, task=other))
    roomy = Problem(offers=offers, kinds=(kind(memory_mib=1_200.0),), demand=demand)
    tight = Problem(offers=offers, kinds=(kind(memory_mib=1_199.0),), demand=demand)

    assert (solved(roomy).objective, solved(tight).objective) == (1.0, 2.0)


def test_a_tight_slo_does_not_share_with_a_long_batch() -> None:
    other = TaskName("faces")
    offers = (offer("quick", 5.0), offer("slow", 40.0, task=other))
    kinds = (kind(),)
    apart = (asked(10.0, 46.0), asked(1.0, 100.0, task=other))
    together = (asked(10.0, 47.0), asked(1.0, 100.0, task=other))

    assert solved(Problem(offers=offers, kinds=kinds, demand=apart)).objective == 2.0
    assert solved(Problem(offers=offers, kinds=kinds, demand=together)).objective == 1.0


def test_interference_is_paid_where_variants_share_a_device() -> None:
    """Together they take 2 x 40 x 10 ms x 1.5 = 1.2 s of a second; apart 0.4 s each."""
    other = TaskName("faces")
    offers = (offer("a", 10.0), offer("b", 10.0, task=other))
    demand = (asked(40.0), asked(40.0, task=other))
    calm = Problem(offers=offers, kinds=(kind(),), demand=demand)
    noisy = replace(calm, kinds=(replace(kind(), interference=0.5),))

    assert (solved(calm).objective, solved(noisy).objective) == (1.0, 2.0)


def test_interference_makes_a_shared_device_too_slow_for_a_tight_slo() -> None:
    other = TaskName("faces")
    offers = (offer("a", 10.0), offer("b", 10.0, task=other))
    noisy = (replace(kind(), interference=0.5),)
    in_time = (asked(1.0, 32.0), asked(1.0, 32.0, task=other))
    late = (asked(1.0, 31.9), asked(1.0, 31.9, task=other))

    assert solved(Problem(offers=offers, kinds=noisy, demand=in_time)).objective == 1.0
    assert solved(Problem(offers=offers, kinds=noisy, demand=late)).objective == 2.0


def test_accuracy_is_bought_with_time_that_is_left() -> None:
    """40 of 80 by the accurate one take 0.8 - 0.2 of the device: all of what is left."""
    problem = Problem(
        offers=(offer("fast", 5.0, 0.8), offer("best", 15.0, 0.9)),
        kinds=(kind(count=1),),
        demand=(asked(80.0),),
    )

    found = solved(problem, Objective.ACCURACY)

    assert found.feasible
    assert found.accuracy == pytest.approx(0.85)


def test_how_a_machine_is_cut_is_part_of_the_search() -> None:
    """Eight cores: 1 core takes 40 ms, 4 take 8 ms. A tight SLO needs the large cut."""
    problem = Problem(
        offers=(offer("a", 40.0, kind=CPU), offer("a", 8.0, kind=GPU)),
        kinds=(kind(CPU, usd=0.1), kind(GPU, usd=0.4)),
        demand=(asked(60.0, 100.0), asked(60.0, 20.0)),
        pools=(Pool(name="machine", capacity=8.0, uses={CPU: 1.0, GPU: 4.0}),),
    )
    loose_only = replace(problem, demand=(asked(80.0, 100.0),))

    assert solved(problem).devices == (CPU, GPU)
    assert solved(loose_only).devices == (CPU,) * 4


@pytest.mark.parametrize("objective", Objective)
def test_a_limit_of_nothing_still_answers(objective: Objective) -> None:
    problem = small(3)

    found = solve(problem, objective, clock=ticking(1.0), time_limit_s=0.5)

    assert found.timed_out
    assert violations(problem, found) == ()


@pytest.mark.parametrize(
    ("make", "objective"),
    [
        (small, Objective.COST),
        (small, Objective.ACCURACY),
        (interfering, Objective.COST),
        pytest.param(interfering, Objective.ACCURACY, marks=pytest.mark.campaign),
        (limited, Objective.COST),
        (limited, Objective.ACCURACY),
    ],
)
def test_exact_equals_trying_everything(
    make: Callable[[int], Problem], objective: Objective
) -> None:
    different = {}
    for seed in range(20):
        problem = make(seed)
        want, found = brute_force(problem, objective), solved(problem, objective)
        got = Best(
            served_qps=found.served_qps,
            accuracy=found.accuracy if objective is Objective.ACCURACY else 0.0,
            usd_per_hour=found.usd_per_hour,
        )
        if not _same(got, want) or found.gap > 1e-6:
            different[seed] = (got, want, found.gap)

    assert different == {}


def _same(one: Best, other: Best) -> bool:
    return (
        one.served_qps == pytest.approx(other.served_qps, rel=1e-6)
        and one.accuracy == pytest.approx(other.accuracy, abs=1e-6)
        and one.usd_per_hour == pytest.approx(other.usd_per_hour, abs=1e-6)
    )


@pytest.mark.parametrize("objective", [Objective.COST, Objective.ACCURACY])
def test_best_fit_is_within_three_percent_on_average(objective: Objective) -> None:
    losses = []
    for seed in range(60):
        problem = small(seed)
        best, found = solved(problem, objective), greedy(problem, objective)
        losses.append(loss(found, best, objective))

    assert mean(losses) <= 0.03


def loss(found: Solution, best: Solution, objective: Objective) -> float:
    """Relative: of what is served, or if that is the same, of the objective."""
    if best.served_qps <= 0:
        return 0.0
    missed = 1 - found.served_qps / best.served_qps
    if missed > 1e-6:
        return missed
    ratio = found.objective / best.objective if best.objective else 1.0
    return ratio - 1 if objective is Objective.COST else 1 - ratio


SEEDS = st.integers(10_000, 20_000)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(Objective), st.booleans(), st.sampled_from([small, interfering]))
def test_no_plan_breaks_a_constraint(
    seed: int, objective: Objective, exact: bool, make: Callable[[int], Problem]
) -> None:
    problem = make(seed)
    found = solve(problem, objective, clock=never, time_limit_s=600.0, exact=exact)

    assert violations(problem, found) == ()
    assert violations(problem, greedy(problem, objective)) == ()


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(Objective))
def test_the_same_problem_gives_the_same_solution(seed: int, objective: Objective) -> None:
    assert solved(small(seed), objective) == solved(small(seed), objective)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(0, 1))
def test_more_devices_never_serve_less(seed: int, which: int) -> None:
    problem = small(seed)
    chosen = which % len(problem.kinds)
    kinds = tuple(
        replace(k, count=k.count + (number == chosen)) for number, k in enumerate(problem.kinds)
    )
    before = solved(problem, Objective.ACCURACY)
    after = solved(replace(problem, kinds=kinds), Objective.ACCURACY)

    assert after.served_qps >= before.served_qps * (1 - 1e-8)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(Objective))
def test_the_bound_is_on_the_right_side_of_the_best(seed: int, objective: Objective) -> None:
    """Of best fit's plan, bounded by the relaxation alone."""
    problem = small(seed)
    best = solved(problem, objective)
    bounded = solve(problem, objective, clock=never, time_limit_s=600.0, exact=False)

    if objective is Objective.ACCURACY:
        assert bounded.bound * bounded.served_qps >= best.accuracy * best.served_qps * (1 - 1e-7)
    elif best.served_qps == pytest.approx(bounded.served_qps, rel=1e-9):
        assert bounded.bound <= best.objective * (1 + 1e-7)


def test_what_no_plan_reaches_is_not_planned() -> None:
    """Of 100 queries a device has time for 60 by the variant that is more accurate."""
    offers = (offer("quick", 5.0, 0.8), offer("exact", 10.0, 0.9))
    problem = Problem(offers=offers, kinds=(kind(count=1),), demand=(asked(100.0),))
    plain = solved(problem, Objective.ACCURACY)
    assert plain.feasible
    assert plain.accuracy == pytest.approx(0.86)

    reachable = solved(replace(problem, least_accuracy=0.859), Objective.ACCURACY)
    too_much = solved(replace(problem, least_accuracy=0.861), Objective.ACCURACY)
    assert reachable.assignments == plain.assignments
    assert (too_much.feasible, too_much.assignments) == (False, ())


@pytest.mark.parametrize("planner", [greedy, solved], ids=["best fit", "solve"])
def test_where_all_has_to_be_served_too_much_for_all_devices_is_not_planned(
    planner: Callable[[Problem, Objective], Solution],
) -> None:
    problem = Problem(offers=(offer("a", 10.0),), kinds=(kind(count=1),), demand=(asked(81.0),))

    assert planner(problem, Objective.ACCURACY).served_qps == pytest.approx(80.0)
    wanted = replace(problem, least_accuracy=0.0)
    assert planner(wanted, Objective.ACCURACY).served_qps == 0.0


@given(st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_where_all_can_be_served_there_is_time_for_it(seed: int) -> None:
    problem = small(seed)
    if greedy(problem, Objective.ACCURACY).feasible:
        assert Options(problem).has_time


@given(st.integers(0, 10_000), st.lists(st.sampled_from((0.0, 0.1, 5.0, 60.0, 900.0)), min_size=2))
@settings(max_examples=100, deadline=None)
def test_at_any_prices_of_time_no_plan_is_more_accurate_than_their_bound(
    seed: int, prices: list[float]
) -> None:
    problem = small(seed)
    found = greedy(problem, Objective.ACCURACY)
    options = Options(problem)
    assert options.most_accuracy == inf
    options.learn_prices(prices[: len(problem.kinds)])
    if found.feasible:
        assert options.most_accuracy >= found.accuracy * (1 - 1e-9)


def test_what_one_load_is_worth_rules_out_another_without_solving_it() -> None:
    """At a load of 0.5 a second of the device is worth (0.9 - 0.8) / 5 ms = 20: there 40 of 80
    queries have the better variant, at 0.6 at most another 0.1 x 20 / 80 of accuracy is gained."""
    offers = (offer("quick", 5.0, 0.8), offer("exact", 10.0, 0.9))
    problem = Problem(
        offers=offers, kinds=(kind(count=1),), demand=(asked(80.0),), load=0.5, common=Common()
    )
    first = replace(problem, least_accuracy=0.0)
    assert solved(first, Objective.ACCURACY).accuracy == pytest.approx(0.825)

    assert Options(replace(problem, load=0.6)).most_accuracy == pytest.approx(0.85)
