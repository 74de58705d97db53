"""Routes that stay while workers have time and another division saves nothing to speak of."""

from dataclasses import replace

import pytest

from planner.reconcile.kept.routes import ROOMY, drifted, stretched
from planner.reconcile.kept.worth import FULL_COST, GAINS, LEAST_SAVED, SAVES, Worth
from planner.reconcile.tick import tick
from planner.solver.problem import Problem, Solution
from planner.solver.solve import solve
from planner.types import Decision, Demand, Objective, Observation, Snapshot
from tests.planner.builders import (
    DIGITS,
    catalog,
    demand,
    key,
    kind,
    observation,
    profile,
    replica,
    report,
    snapshot,
    variant,
    worker,
)
from variants.types import CatalogSnapshot, DeviceKindName, Route, VariantName, WorkerId

COST, ENERGY, ACCURACY = Objective.COST, Objective.ENERGY, Objective.ACCURACY
ROW_S = 0.012
"""What is planned for a row of 10 ms."""


def two(a_ms: float = 10.0, b_ms: float = 10.0, usd: float = 0.36) -> CatalogSnapshot:
    rows = {"a": a_ms, "b": b_ms}
    return catalog(
        [variant(name) for name in rows],
        [profile(name, ms) for name, ms in rows.items()],
        kinds=[kind("cpu-1", usd)],
    )


def seen(a_ms: float = 10.0, b_ms: float = 10.0) -> Snapshot:
    held = [key("a"), key("b")]
    return snapshot(two(a_ms, b_ms), (worker("w1"), held), (worker("w2"), held))


def route(on: str, qps: float, name: str = "a", latency_ms: float = 100.0) -> Route:
    return Route(
        task=DIGITS, latency_ms=latency_ms, accuracy=None, variant=VariantName(name),
        worker=WorkerId(on), batch_size=1, qps=qps,
    )  # fmt: skip


def test_stretched_routes_divide_a_class_as_before() -> None:
    found = stretched((route("w1", 3.0), route("w2", 1.0)), [demand(8.0)], seen(), {}, COST)
    assert found is not None
    assert {r.worker: r.qps for r in found} == {"w1": 6.0, "w2": 2.0}


def test_a_class_that_nobody_asks_for_any_more_loses_its_routes() -> None:
    loose = route("w2", 1.0, latency_ms=500.0)
    found = stretched((route("w1", 3.0), loose), [demand(3.0)], seen(), {}, COST)
    assert found == (route("w1", 3.0),)


@pytest.mark.parametrize(
    ("asked", "a_ms", "longer", "why"),
    [
        ([demand(3.0), demand(1.0, latency_ms=50.0)], 10.0, 0.0, "a class without routes"),
        ([demand(1_000 * ROOMY[COST] / 10.0 + 1.0)], 10.0, 0.0, "a worker that is too full"),
        ([demand(3.0)], 51.0, 0.0, "two batches that are longer than the SLO"),
    ],
)
def test_routes_do_not_stretch(asked: list[Demand], a_ms: float, longer: float, why: str) -> None:
    parts = {DeviceKindName("cpu-1"): longer}
    assert stretched((route("w1", 3.0),), asked, seen(a_ms), parts, COST) is None, why


def test_routes_of_a_variant_that_is_less_accurate_than_was_known_do_not_stretch() -> None:
    """It was evaluated anew: 0.9, where queries ask for 0.95."""
    asked, floor = [demand(3.0, accuracy=0.95)], replace(route("w1", 3.0), accuracy=0.95)
    assert stretched((floor,), asked, seen(), {}, COST) is None
    asked, floor = [demand(3.0, accuracy=0.9)], replace(floor, accuracy=0.9)
    assert stretched((floor,), asked, seen(), {}, COST) == (floor,)


def test_what_several_variants_on_a_worker_take_longer_counts() -> None:
    """30 rows per second of 10 ms on one worker: 0.3 of its time, 0.6 if twice as long."""
    both = (route("w1", 15.0), route("w1", 15.0, "b", 200.0))
    asked = [demand(15.0), demand(15.0, latency_ms=200.0)]
    parts = {DeviceKindName("cpu-1"): 1.0}
    assert stretched(both, asked, seen(), {}, COST) is not None
    assert stretched(both, asked, seen(), parts, COST) is None
    assert stretched((route("w1", 30.0),), [demand(30.0)], seen(), parts, COST) is not None


@pytest.mark.parametrize(("latency_ms", "stays"), [(40.0, True), (39.0, False)])
def test_routes_stay_only_where_a_query_can_wait_for_the_longest_batch_of_its_worker(
    latency_ms: float, stays: bool
) -> None:
    """A batch of 10 ms behind one of 30 ms of another class."""
    both = (route("w1", 3.0, latency_ms=latency_ms), route("w1", 3.0, "b", 200.0))
    asked = [demand(3.0, latency_ms=latency_ms), demand(3.0, latency_ms=200.0)]
    found = stretched(both, asked, seen(b_ms=30.0 / 1.2, a_ms=10.0 / 1.2), {}, COST)
    assert (found is not None) is stays
    apart = (both[0], replace(both[1], worker=WorkerId("w2")))
    assert stretched(apart, asked, seen(b_ms=30.0 / 1.2, a_ms=10.0 / 1.2), {}, COST) is not None


@pytest.mark.parametrize("usd", [0.36, 0.0])
@pytest.mark.parametrize(
    ("there", "new", "worth_it"),
    [
        (0.40, 0.40 * (1.0 - SAVES) - 0.001, True),
        (0.40, 0.40 * (1.0 - SAVES) + 0.001, False),
        (0.02, 0.02 - LEAST_SAVED - 0.001, True),
        (0.02, 0.02 - LEAST_SAVED + 0.001, False),
    ],
)
def test_a_new_division_has_to_save_a_part_of_the_cost_and_of_a_worker(
    usd: float, there: float, new: float, worth_it: bool
) -> None:
    one, other = (route("w1", share / ROW_S) for share in (new, there))
    kinds = {each.name: each for each in two(usd=usd).device_kinds}
    assert Worth(seen(), kinds, {}, COST).gains((one,), (other,)) is worth_it


def worth(objective: Objective, *, b_accuracy: float = 0.9, b_j: float | None = 1.0) -> Worth:
    """Of variants of 10 ms each, of which "a" is right in nine of ten cases and takes 1 J a row."""
    known = catalog(
        [variant("a", 0.9), variant("b", b_accuracy)],
        [profile("a", 10.0, energy_j=1.0), profile("b", 10.0, energy_j=b_j)],
        kinds=[kind("cpu-1", idle_w=0.0)],
    )
    held = [key("a"), key("b")]
    taken = snapshot(known, (worker("w1"), held), (worker("w2"), held))
    return Worth(taken, {each.name: each for each in known.device_kinds}, {}, objective)


@pytest.mark.parametrize(
    ("part", "worth_it"), [(1.0 - SAVES - 0.001, True), (1.0 - SAVES + 0.001, False)]
)
def test_under_energy_a_new_division_has_to_save_a_part_of_the_joules(
    part: float, worth_it: bool
) -> None:
    assert (
        worth(ENERGY, b_j=part).gains((route("w1", 10.0, "b"),), (route("w1", 10.0),)) is worth_it
    )


def test_under_energy_what_was_not_measured_comes_last() -> None:
    known, unknown = (route("w1", 10.0),), (route("w1", 10.0, "b"),)
    both = (route("w1", 5.0), route("w1", 5.0, "b"))
    found = worth(ENERGY, b_j=None)
    assert found.gains(known, both)
    assert not found.gains(both, known)
    assert not found.gains(unknown, known)


@pytest.mark.parametrize("more", [GAINS * 0.9, GAINS * 1.1])
def test_under_accuracy_a_new_division_has_to_gain_accuracy(more: float) -> None:
    found = worth(ACCURACY, b_accuracy=0.9 + more)
    assert found.gains((route("w1", 10.0, "b"),), (route("w1", 10.0),)) is (more > GAINS)


def test_under_accuracy_full_workers_cost_some_of_it() -> None:
    """60 rows per second of 12 ms: one worker is 0.72 full with all of them, and 0.36 with half."""
    one, both = (route("w1", 60.0),), (route("w1", 30.0), route("w2", 30.0))
    found = worth(ACCURACY)
    assert found.accuracy(one) == pytest.approx(0.9 - FULL_COST * 0.72**4)
    assert found.gains(both, one)
    assert not found.gains(one, both)


@pytest.mark.parametrize(
    ("slo_ms", "part", "moved"),
    [
        (180.0, 1.0, False),
        (165.0, 1.0, False),
        (160.0, 1.0, True),
        (160.0, 0.01, True),
        (195.0, 1.0, False),
        (199.0, 1.0, True),
        (199.0, 0.01, False),
    ],
)
def test_a_class_that_asks_for_another_time_has_moved(
    slo_ms: float, part: float, moved: bool
) -> None:
    """Routes for 180 ms, of a class with a part of the demand: a looser SLO counts by its work, a
    tighter one in any case, because batches are too long for it."""
    most = (replace(route("w1", 100.0 * part), slo_ms=180.0), route("w2", 100.0 - 100.0 * part))
    routes = (most[0], replace(most[1], latency_ms=500.0))
    asked = [replace(demand(100.0 * part), slo_ms=slo_ms)]
    if part < 1.0:
        asked.append(demand(100.0 - 100.0 * part, latency_ms=500.0))
    assert drifted(routes, asked, {}, ACCURACY) is moved


def test_under_cost_routes_go_by_the_slo_of_the_class() -> None:
    asked = [replace(demand(100.0), slo_ms=180.0)]
    assert not drifted((route("w1", 100.0),), asked, {}, COST)
    assert drifted((replace(route("w1", 100.0), slo_ms=180.0),), asked, {}, COST)
    timed = replace(route("w1", 3.0), slo_ms=180.0)
    assert stretched((timed,), [replace(asked[0], qps=3.0)], seen(), {}, COST) == (
        route("w1", 3.0),
    )


def test_stretched_routes_are_for_the_tightest_slo_of_now() -> None:
    asked = [replace(demand(3.0), slo_ms=150.0)]
    found = stretched((route("w1", 3.0),), asked, seen(), {}, ACCURACY)
    assert found == (replace(route("w1", 3.0), slo_ms=150.0),)


def test_under_accuracy_a_plan_is_for_the_tightest_slo_of_each_class() -> None:
    asked = [replace(demand(4.0), slo_ms=180.0)]
    seen_now = observation(two(), report("w1", replica("a"), replica("b")), demand=asked)
    assert {each.slo_ms for each in tick(seen_now).plan.routes} == {None}
    known = replace(seen_now, objective=ACCURACY)
    made = tick(known)
    assert {each.slo_ms for each in made.plan.routes} == {180.0}
    half_ms = (180.0 - known.transport_ms) / 2
    assert {each.longest_batch_ms for each in made.targets.values()} == {half_ms}
    plan = replace(made.plan, version=1, epoch=1)
    tighter = replace(known, plan=plan, demand=(replace(asked[0], slo_ms=120.0),))
    assert {each.slo_ms for each in tick(tighter).plan.routes} == {120.0}


def test_batches_are_no_larger_than_the_demand_fills() -> None:
    """Of 20 rows per second one comes in half of 100 ms, of 80 four."""
    wide = replace(route("w1", 80.0), batch_size=4)
    for qps, size in ((80.0, 4), (41.0, 2), (20.0, 1)):
        found = stretched((wide,), [demand(qps)], seen(1.0), {}, COST)
        assert found is not None
        assert found[0].batch_size == size


def decided(before: Decision, b_ms: float, qps: float) -> Decision:
    """The decision after "b" was found to take so long, for so many rows per second."""
    known = two(b_ms=b_ms)
    holds = report("w1", replica("a"), replica("b"))
    plan = replace(before.plan, version=1, epoch=1)
    return tick(replace(observation(known, holds, demand=[demand(qps)], plan=plan), corrected=True))


def first() -> Decision:
    seen: Observation = observation(
        two(b_ms=10.5), report("w1", replica("a"), replica("b")), demand=[demand(4.0)]
    )
    return tick(seen)


def test_who_is_cheaper_by_a_hair_does_not_take_over() -> None:
    """Each tick another one is, as on a machine where a batch takes some microseconds."""
    before = first()
    assert {r.variant for r in before.plan.routes} == {"a"}
    for b_ms in (9.5, 10.5, 9.0):
        assert not decided(before, b_ms, 4.0).changed
    moved = decided(before, 9.5, 8.0)
    assert {r.variant for r in moved.plan.routes} == {"a"}
    assert sum(r.qps for r in moved.plan.routes) == pytest.approx(8.0)


def test_who_is_cheaper_by_much_takes_over() -> None:
    assert {r.variant for r in decided(first(), 2.0, 4.0).plan.routes} == {"b"}


@pytest.mark.parametrize("objective", [ACCURACY, ENERGY])
def test_ticks_for_accuracy_and_energy_keep_routes_as_well(objective: Objective) -> None:
    """Two variants that are alike in all but a hair, and then one that is not."""

    def planner(problem: Problem, objective: Objective) -> Solution:
        return solve(problem, objective, clock=lambda: 0.0, time_limit_s=60.0, exact=False)

    def seen(b_accuracy: float, b_j: float) -> Observation:
        known = catalog(
            [variant("a", 0.9), variant("b", b_accuracy)],
            [profile("a", 1.0, energy_j=1.0), profile("b", 1.0, energy_j=b_j)],
            kinds=[kind("cpu-1", idle_w=0.0)],
        )
        made = observation(known, report("w1", replica("a"), replica("b")), demand=[demand(100.0)])
        return replace(made, objective=objective)

    plan = replace(tick(seen(0.8999, 1.001), planner).plan, version=1, epoch=1)
    assert {r.variant for r in plan.routes} == {"a"}
    hair = replace(seen(0.9 + GAINS / 2, 1.0 - SAVES / 2), plan=plan, corrected=True)
    assert not tick(hair, planner).changed
    much = replace(seen(0.9 + 2 * GAINS, 1.0 - 2 * SAVES), plan=plan, corrected=True)
    assert {r.variant for r in tick(much, planner).plan.routes} == {"b"}


def joined_by(b_ms: float, new_qps: float = 0.5) -> dict[float, tuple[set[str], float]]:
    """By latency SLO, the variants and the rate of the plan after another class has come, and "b"
    was found to take so long; until then a class of 100 ms had "a"."""
    before = first()
    known = two(b_ms=b_ms)
    plan = replace(before.plan, version=1, epoch=1)
    assert {(r.latency_ms, r.variant) for r in plan.routes} == {(100.0, "a")}
    asked = [demand(4.0), demand(new_qps, latency_ms=200.0)]
    seen_now = observation(known, report("w1", replica("a"), replica("b")), demand=asked, plan=plan)
    made = tick(replace(seen_now, corrected=True))
    assert made.changed
    found: dict[float, tuple[set[str], float]] = {}
    for each in made.plan.routes:
        names, qps = found.get(each.latency_ms, (set(), 0.0))
        found[each.latency_ms] = ({*names, each.variant}, qps + each.qps)
    return found


def test_a_class_that_comes_is_no_reason_to_divide_the_others_anew() -> None:
    """What is quicker by a hair answers who comes, and nobody else."""
    found = joined_by(9.5)
    assert {latency_ms: names for latency_ms, (names, _) in found.items()} == {
        100.0: {"a"},
        200.0: {"b"},
    }
    assert [qps for _, qps in found.values()] == pytest.approx([4.0, 0.5])


def test_what_is_quicker_by_much_answers_all_when_a_class_comes() -> None:
    assert [names for names, _ in joined_by(2.0).values()] == [{"b"}, {"b"}]


def test_where_workers_would_be_too_full_a_class_that_comes_has_all_divided_anew() -> None:
    """Of 0.5 of the worker's time, 4 rows of 12 ms take 0.05 and 45 of 11.4 ms take 0.51."""
    assert joined_by(9.5, new_qps=45.0)[100.0][0] == {"b"}


def test_a_plan_says_nothing_of_a_division_that_only_gets_another_class() -> None:
    before = first()
    plan = replace(before.plan, version=1, epoch=1)
    asked = [demand(4.0), demand(0.5, latency_ms=200.0)]
    seen_now = observation(
        two(b_ms=9.5), report("w1", replica("a"), replica("b")), demand=asked, plan=plan
    )
    made = tick(replace(seen_now, corrected=True))
    assert not any("was divided anew" in sentence for sentence in made.plan.explanation)
    assert any("was divided anew" in sentence for sentence in before.plan.explanation)
