"""The yardstick, what is drawn by it, a short workload, and the verdicts of the comparison."""

from dataclasses import replace

import pytest

from planner.simulation.results import Report
from planner.solver.problem import AvailableKind
from planner.types import Objective
from tests.bench.planning.catalogs import Ground
from tests.bench.simulation.ablation import played
from tests.bench.simulation.capacity import Class, capacity_qps, row_ms
from tests.bench.simulation.cases import Case
from tests.bench.simulation.policies import Run, verdicts
from tests.bench.simulation.workloads import Workload, draw
from tests.planner.simulation.builders import GPU, Model, models
from variants.types import TaskName

A, B = TaskName("a"), TaskName("b")


def ground(*each: Model, devices: int = 2) -> Ground:
    """A row takes 10 ms in every batch, unless a model says otherwise."""
    return Ground(
        name="small",
        catalog=models(*each),
        kinds=(AvailableKind(name=GPU, count=devices, memory_mib=1_000.0, usd_per_hour=3.6),),
        latency_ms={A: 100.0, B: 100.0},
    )


def test_the_cheapest_variant_that_meets_the_floor_counts() -> None:
    known = ground(
        Model("a", name="fast", accuracy=0.7, latency_ms=10),
        Model("a", name="good", accuracy=0.9, latency_ms=40),
    )

    assert row_ms(known, Class(A, 100.0)) == {GPU: 10.0}
    assert row_ms(known, Class(A, 100.0, 0.8)) == {GPU: 40.0}


def test_a_batch_may_take_half_of_what_is_left_of_the_deadline() -> None:
    known = ground(Model("a", latency_ms=49))

    assert row_ms(known, Class(A, 100.0)) == {GPU: 49.0}


def test_where_all_of_the_deadline_is_needed_a_row_counts_by_itself() -> None:
    known = ground(
        Model("a", name="fast", accuracy=0.7, latency_ms=49),
        Model("a", name="good", accuracy=0.9, latency_ms=60),
    )

    assert row_ms(known, Class(A, 99.9)) == {GPU: 49.0}
    assert row_ms(known, Class(A, 62.0, 0.8)) == {GPU: 60.0}
    assert row_ms(known, Class(A, 61.9, 0.8)) == {}


def test_devices_are_divided_as_the_mix_asks() -> None:
    # Of three queries two are a's at 10 ms, one is b's at 20 ms: 40 ms in all, on two devices.
    known = ground(Model("a", latency_ms=10), Model("b", latency_ms=20))

    capacity = capacity_qps(known, {Class(A, 100.0): 2.0, Class(B, 100.0): 1.0})

    assert capacity == pytest.approx(3 / 0.040 * 2)


def test_a_class_that_no_device_can_serve_is_said() -> None:
    with pytest.raises(ValueError, match="no device can serve"):
        capacity_qps(ground(Model("a")), {Class(A, 5.0): 1.0})


def test_a_workload_is_scaled_by_what_can_be_served() -> None:
    # Two devices serve 200 queries per second; half of that for 900 s after a quiet beginning.
    workload = Workload(
        name="even", about="", load=[0.5] * 1_000, mix=lambda _: {Class(A, 100.0): 1.0}
    )

    drawn = draw(workload, ground(Model("a")), 0)

    late = sum(1 for second in drawn.trace.arrival_s if second >= 100)
    assert (drawn.capacity_qps, drawn.peak_qps) == pytest.approx((200.0, 100.0))
    assert late == pytest.approx(90_000, rel=0.01)
    assert sum(1 for second in drawn.trace.arrival_s if second < 30) < 100
    assert list(drawn.trace.arrival_s) == sorted(drawn.trace.arrival_s)


def test_the_same_seed_draws_the_same_queries() -> None:
    workload = Workload(
        name="even", about="", load=[0.5] * 100, mix=lambda _: {Class(A, 100.0): 1.0}
    )
    known = ground(Model("a"))

    assert draw(workload, known, 1) == draw(workload, known, 1)


@pytest.mark.slow
def test_few_queries_of_the_mixed_workload_are_violated() -> None:
    """0.11 % are (docs/decisions/0008-policies.md); 18.6 % were while plans loaded no second copies
    into memory that queries had loaded something into."""
    report = played(Case(catalog="synthetic", workload="mixed", seed=0, quick=True))

    assert report.violation_ratio < 0.01
    assert report.effective_accuracy > 0.73


# -- verdicts -----------------------------------------------------------------------------------


def _run(policy: str, violated: float, accuracy: float = 0.8, cost_usd: float = 1.0) -> Run:
    report = Report(
        policy=policy,
        requests=1_000,
        in_time=1_000,
        late=0,
        rejected=0,
        violation_ratio=violated,
        effective_accuracy=accuracy,
        cost_usd=cost_usd,
        busy_ratio=0.5,
        loads=1,
        evictions=0,
        load_s_total=1.0,
        decision_us_p50=1.0,
        decision_us_p99=1.0,
        plan_ms_p50=1.0,
        plan_ms_p99=1.0,
    )
    return Run(
        ground="small",
        workload="even",
        seed=0,
        objective=Objective.ACCURACY,
        report=report,
        wall_s=1.0,
        processor_s=1.0,
    )


def _reached(objective: Objective, *runs: Run) -> list[bool]:
    runs = tuple(replace(run, objective=objective) for run in runs)
    return [line.startswith("ok") for line in verdicts(runs, objective)]


def test_half_of_the_best_ones_violations_at_its_accuracy() -> None:
    best, other = _run("infaas", 0.02, 0.8), _run("clipper", 0.03, 0.9)

    assert _reached(Objective.ACCURACY, _run("modelless", 0.01, 0.799), best, other) == [True] * 3
    assert _reached(Objective.ACCURACY, _run("modelless", 0.011, 0.8), best, other)[0] is False
    assert _reached(Objective.ACCURACY, _run("modelless", 0.01, 0.798), best, other)[1] is False


def test_a_tenth_of_a_percent_is_never_too_much() -> None:
    ours, best = _run("modelless", 0.001), _run("infaas", 0.0)

    assert _reached(Objective.ACCURACY, ours, best) == [True] * 3


def test_of_equal_violations_the_more_accurate_is_the_best() -> None:
    ours = _run("modelless", 0.01, 0.85)

    assert _reached(
        Objective.ACCURACY, ours, _run("infaas", 0.02, 0.8), _run("clipper", 0.02, 0.9)
    ) == [True, False, True]


def test_nobody_may_be_better_in_both() -> None:
    ours, other = _run("modelless", 0.001, 0.8), _run("infaas", 0.0005, 0.8005)

    assert _reached(Objective.ACCURACY, ours, other) == [True, True, False]


def test_cost_is_compared_with_those_who_keep_one_percent() -> None:
    cheap, dear = _run("clipper", 0.02, cost_usd=0.5), _run("infaas", 0.01, cost_usd=1.0)

    assert _reached(Objective.COST, _run("modelless", 0.01), cheap, dear)[:2] == [True, True]
    assert _reached(Objective.COST, _run("modelless", 0.011), cheap, dear)[:2] == [False, True]
    dearer = _run("modelless", 0.01, cost_usd=1.01)
    assert _reached(Objective.COST, dearer, cheap, dear)[:2] == [True, False]
    assert _reached(Objective.COST, dearer, cheap)[:2] == [True, True]


def test_nobody_may_violate_and_cost_less() -> None:
    ours = _run("modelless", 0.02, cost_usd=1.0)
    fewer, less = _run("loki", 0.01, cost_usd=1.0), _run("hpa", 0.02, cost_usd=0.9)

    assert _reached(Objective.COST, ours, fewer, less)[2] is True
    assert _reached(Objective.COST, ours, _run("hpa", 0.01, cost_usd=0.9))[2] is False
