"""How much more could be asked: of known devices, held against what sizing says of the same."""

from dataclasses import replace
from itertools import count

import pytest

from planner.headroom.growth import CLOSE, LEAST, MOST, Headroom, headroom
from planner.reconcile.sizing import cheapest
from planner.selection.snapshot import MEASURED_MARGIN, build_snapshot
from planner.solver.greedy import greedy
from planner.types import Objective, Observation
from planner.zone_demand import ZoneDemand
from tests.planner.builders import catalog, demand, kind, observation, profile, report, variant
from variants.types import CatalogSnapshot, DeviceKindName, Plan, Profile, TaskName, Variant

CPU = DeviceKindName("cpu-1")
ROW_MS = 10.0 / MEASURED_MARGIN
"""As plans count, a worker serves 100 rows per second at most: nothing is gained by batches."""


def known(*profiles: Profile, variants: tuple[Variant, ...] = ()) -> CatalogSnapshot:
    return catalog(
        variants or [variant("a")],
        profiles or [profile("a", ROW_MS)],
        kinds=[kind("cpu-1"), kind("quick")],
    )


def seen(*asked: tuple[float, str], workers: int = 1, now: CatalogSnapshot | None = None,
         slo_ms: float = 2_000.0) -> Observation:  # fmt: skip
    """So many rows per second of each task, with much slack."""
    return observation(
        now or known(),
        *(report(f"w{n}") for n in range(workers)),
        demand=[demand(qps, slo_ms, task=task) for qps, task in asked],
        inventory={"cpu-1": workers},
    )


def of(seen: Observation, gateway_cores: float = 0.0) -> Headroom:
    found = headroom(seen, greedy, gateway_cores=gateway_cores, clock=lambda: 0.0)
    assert found is not None
    return found


def about(factor: float) -> object:
    return pytest.approx(factor, rel=CLOSE - 1 + 0.01)


def test_a_worker_that_is_half_busy_could_serve_nearly_twice_as_much() -> None:
    assert of(seen((50.0, "digits"))).factor == about(1.95)


def test_twice_the_workers_could_serve_twice_as_much() -> None:
    assert of(seen((50.0, "digits"), workers=2)).factor == about(3.9)


def test_of_an_overload_it_says_what_part_is_served() -> None:
    assert of(seen((400.0, "digits"))).factor == about(0.245)


def test_beyond_ten_times_nothing_is_looked_for() -> None:
    assert of(seen((0.5, "digits"))).factor == MOST


def test_where_hardly_anything_is_served_it_is_nothing() -> None:
    assert of(seen((100_000.0, "digits"))).factor == 0.0
    assert LEAST < 0.1


def test_tight_slos_leave_less_of_the_time_to_use() -> None:
    loose, tight = (of(seen((50.0, "digits"), slo_ms=ms)).factor for ms in (2_000.0, 40.0))

    assert 1.0 < tight < 0.8 * loose


def test_arrivals_that_vary_more_than_chance_leave_less() -> None:
    now = seen((50.0, "digits"), slo_ms=200.0)

    def factor(dispersion: float) -> float:
        spread = {TaskName("digits"): dispersion}
        found = headroom(now, greedy, dispersion=spread, clock=lambda: 0.0)
        assert found is not None
        return found.factor

    assert factor(1.0) == of(now).factor
    assert factor(8.0) < 0.8 * factor(2.0) < 0.8 * factor(1.0)


def test_of_each_task_alone_it_is_what_the_others_leave() -> None:
    two = known(
        profile("a", ROW_MS),
        profile("b", ROW_MS, task="letters"),
        variants=(variant("a"), variant("b", task="letters")),
    )
    found = of(seen((30.0, "digits"), (20.0, "letters"), now=two))

    assert found.factor == about(1.95)
    assert [(one.task, one.asked_qps) for one in found.tasks] == [
        ("digits", 30.0),
        ("letters", 20.0),
    ]
    assert [one.factor for one in found.tasks] == [about(77.5 / 30), about(67.5 / 20)]


def test_a_less_accurate_variant_is_taken_where_that_serves_more_and_the_floor_allows_it() -> None:
    both = known(
        profile("a", ROW_MS), profile("b", ROW_MS / 4),
        variants=(variant("a", 0.9), variant("b", 0.8)),
    )  # fmt: skip
    free = seen((50.0, "digits"), now=both)
    bound = replace(free, demand=(demand(50.0, 2_000.0, accuracy=0.85),))

    assert of(free).factor == about(7.8)
    assert of(bound).factor == about(1.95)


def test_what_gateways_take_of_the_cores_grows_with_the_demand() -> None:
    """100 rows take 1 core of the worker and 0.5 of a gateway: 67 rows fill one core."""
    [kind] = {one.cores for one in known().device_kinds if one.name == CPU}

    assert of(seen((50.0, "digits")), gateway_cores=0.25 * kind).factor == about(1.32)


def test_memory_that_is_too_short_for_both_tasks_leaves_nothing() -> None:
    two = known(
        profile("a", ROW_MS, memory_mib=600.0),
        profile("b", ROW_MS, task="letters", memory_mib=600.0),
        variants=(variant("a"), variant("b", task="letters")),
    )
    assert of(seen((1.0, "digits"), (1.0, "letters"), now=two, workers=2)).factor == MOST
    short = replace(
        two, device_kinds=tuple(replace(k, memory_mib=1_000.0) for k in two.device_kinds)
    )
    assert of(seen((1.0, "digits"), (1.0, "letters"), now=short)).factor == 0.0


def test_without_demand_and_where_zones_divide_workers_there_is_none() -> None:
    asked = seen((50.0, "digits"))
    away = ZoneDemand(usual={"a": 1.0}, round_trips_ms={("a", "b"): 20.0})
    zoned = replace(asked, workers=tuple(replace(w, zone="b") for w in asked.workers), zones=away)

    assert headroom(seen(), greedy, clock=lambda: 0.0) is None
    assert headroom(zoned, greedy, clock=lambda: 0.0) is None


def test_what_no_worker_could_serve_at_any_rate_has_no_headroom() -> None:
    """A row takes more than 8 ms: nobody answers within 5, and how much more of it is asked does
    not matter."""
    both = known(
        profile("a", ROW_MS),
        profile("b", ROW_MS, task="texts"),
        variants=(variant("a"), variant("b", task="texts")),
    )
    possible, never = demand(50.0, 2_000.0), demand(5.0, 5.0, task="texts")
    alone = observation(both, report("w"), demand=[never], inventory={"cpu-1": 1})
    beside = observation(both, report("w"), demand=[possible, never], inventory={"cpu-1": 1})

    assert headroom(alone, greedy, clock=lambda: 0.0) is None
    assert of(beside) == of(seen((50.0, "digits")))
    assert of(seen((50.0, "digits"), (5.0, "unknown"))) == of(seen((50.0, "digits")))


def test_without_any_worker_it_is_nothing() -> None:
    found = of(seen((50.0, "digits"), workers=0))

    assert found.factor == 0.0
    assert [one.factor for one in found.tasks] == [0.0]


def test_tasks_for_which_there_is_no_time_are_left_out_the_busiest_last() -> None:
    two = known(
        profile("a", ROW_MS),
        profile("b", ROW_MS, task="letters"),
        variants=(variant("a"), variant("b", task="letters")),
    )
    ticks = count()
    now = seen((20.0, "digits"), (30.0, "letters"), now=two)
    found = headroom(now, greedy, clock=lambda: float(next(ticks)), limit_s=2.0)

    assert found is not None
    assert [one.task for one in found.tasks] == ["letters"]


def test_of_layouts_the_one_counts_that_the_plan_has_taken() -> None:
    both = known(profile("a", ROW_MS), profile("a", ROW_MS / 2, kind="quick"))
    plan = Plan(version=1, epoch=1, placements=(), workers={DeviceKindName("quick"): 1})
    layouts = ({CPU: 2}, {DeviceKindName("quick"): 1})
    now = replace(seen((50.0, "digits"), now=both), layouts=layouts, plan=plan)

    assert of(now).factor == about(3.9)


@pytest.mark.parametrize("qps", [7.0, 33.0, 120.0, 260.0])
def test_as_many_workers_as_sizing_wants_for_a_grown_demand_serve_it(qps: float) -> None:
    """Both ask the same question from two sides; sizing allows for fewer refusals."""
    now = seen((qps, "digits"), workers=4, slo_ms=100.0)
    factor = of(now).factor
    kinds = {one.name: one for one in now.catalog.device_kinds}
    snapshot = build_snapshot(now.catalog, ())

    def needed(factor: float) -> int:
        grown = [demand(qps * factor, 100.0)]
        found = cheapest(snapshot, kinds, {CPU: 8}, grown, greedy, Objective.COST, {})
        return found[CPU]

    assert needed(0.8 * factor) <= 4
    if factor < MOST:
        assert needed(factor * CLOSE * 1.01) > 4
