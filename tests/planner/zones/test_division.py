"""Plans of two zones: what is asked for in a zone stays there while there is room, and in time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from planner.reconcile.by_zone.zoned_assignment import zoned
from planner.reconcile.kept.routes import planned_qps
from planner.reconcile.tick import tick
from planner.types import Demand, DemandClass, Observation, class_of
from planner.zone_demand import ShareKey, Zone, ZoneDemand
from planner.zones.division import divide
from planner.zones.zone_parts import Solver, shortened
from tests.planner.builders import (
    catalog,
    demand,
    kind,
    observation,
    profile,
    replica,
    report,
    task,
    variant,
)
from variants.types import Plan, TaskName

SLO_MS = 200.0
ROOM = 150.0
"""Rows per second that ask for more than one worker can do, and less than two."""


def seen(
    asked: Mapping[Zone, float],
    away_ms: float = 40.0,
    *,
    plan: Plan | None = None,
    core: int = 1,
    edge: int = 1,
    slo_ms: float = SLO_MS,
) -> Observation:
    """Workers ``e...`` in the edge and ``c...`` in the core, which all do a row in 10 ms, or a
    more accurate one in 60, one at a time; and rates by the zone in which they are asked for."""
    known = catalog(
        [variant("fast", 0.8), variant("good", 0.9)],
        [profile("fast", 10.0, max_batch=1), profile("good", 60.0, max_batch=1)],
        kinds=[kind()],
    )
    held = (replica("fast"), replica("good"))
    workers = [
        replace(report(f"{zone[0]}{n}", *held), zone=zone)
        for zone, count in (("edge", edge), ("core", core))
        for n in range(count)
    ]
    total = sum(asked.values())
    made = observation(
        known, *workers, demand=[demand(total, slo_ms)], plan=plan,
        inventory={"cpu-1": core + edge},
    )  # fmt: skip
    shares: Mapping[Zone, float] = {zone: qps / total for zone, qps in asked.items()}
    ways = {("edge", "core"): away_ms, ("core", "edge"): away_ms}
    return replace(made, zones=ZoneDemand(usual=shares, round_trips_ms=ways))


def rates(plan: Plan) -> dict[str, float]:
    found: dict[str, float] = {}
    for route in plan.routes:
        found[route.worker] = found.get(route.worker, 0.0) + route.qps
    return found


def test_what_is_asked_for_at_the_edge_stays_there_while_there_is_room() -> None:
    assert rates(tick(seen({"edge": 50.0})).plan) == {"e0": pytest.approx(50.0)}
    both = rates(tick(seen({"edge": 50.0, "core": 30.0})).plan)
    assert both == {"e0": pytest.approx(50.0), "c0": pytest.approx(30.0)}


def test_what_the_edge_has_no_room_for_goes_to_the_core() -> None:
    decision = tick(seen({"edge": ROOM}))
    found = rates(decision.plan)
    assert sum(found.values()) == pytest.approx(ROOM)
    assert found["e0"] > 70.0
    assert found["c0"] == pytest.approx(ROOM - found["e0"])
    (said,) = [one for one in decision.plan.explanation if "zone" in one]
    assert said.startswith(f"Asked for in zone edge: {found['c0']:.0f} rows per second are served")
    assert "served in zone core, 40 ms away" in said


def test_nothing_goes_where_the_way_makes_it_late() -> None:
    assert rates(tick(seen({"edge": ROOM}, away_ms=SLO_MS)).plan).keys() == {"e0"}


def test_a_variant_that_is_late_by_the_way_is_no_candidate() -> None:
    def accurate(away_ms: float) -> set[str]:
        made = seen({"edge": 5.0}, away_ms, edge=0, slo_ms=160.0)
        floored = replace(made, demand=(replace(demand(5.0, 160.0, 0.9)),))
        return {route.variant for route in tick(floored).plan.routes}

    assert accurate(20.0) == {"good"}
    assert accurate(120.0) == set()


def test_what_no_worker_can_answer_in_time_takes_nothing_from_the_rest() -> None:
    """Half is asked for on an island that is too far away; the other half needs two workers."""
    made = seen({"edge": 80.0, "island": 80.0}, core=0, edge=2)
    far = replace(made.zones, round_trips_ms={("island", "edge"): SLO_MS})
    made = replace(made, zones=far)
    found = rates(tick(made).plan)
    assert found == rates(tick(seen({"edge": 80.0}, core=0, edge=2)).plan)
    fleet = zoned(made.workers, far, lambda workers, asked: asked.tightest_ms >= 1.0)
    assert fleet is not None
    given: list[float] = []

    def assign(zone: Zone, part: Sequence[Demand]) -> dict[DemandClass, float]:
        given.extend(each.qps for each in part)
        return {class_of(each): each.qps for each in part}

    divide(
        fleet.reachable(made.demand), far, ["edge"], Solver(assign, lambda part: part, fleet._able)
    )
    assert given == [pytest.approx(80.0)]


def test_a_zone_gives_up_nothing_of_its_own() -> None:
    found = rates(tick(seen({"edge": ROOM, "core": 60.0}, core=1)).plan)
    both = rates(tick(seen({"edge": ROOM, "core": 60.0}, core=2)).plan)
    assert sum(found.values()) == pytest.approx(ROOM + 60.0)
    assert sum(both.values()) == pytest.approx(ROOM + 60.0)
    assert both["c0"] + both["c1"] > found["c0"]


def test_the_demand_of_two_tasks_keeps_to_its_zones() -> None:
    """Where zones did not count, one worker would get each, whichever it is."""
    known = catalog(
        [variant("a", task="one"), variant("b", task="two")],
        [profile("a", 10.0, task="one"), profile("b", 10.0, task="two")],
        kinds=[kind()],
        tasks=[task("one"), task("two")],
    )
    held = (replica("a", task="one"), replica("b", task="two"))
    workers = [
        replace(report(name, *held), zone=zone) for name, zone in (("w1", "core"), ("w2", "edge"))
    ]
    wanted = (demand(20.0, task="one"), demand(20.0, task="two"))
    shares: dict[ShareKey, Mapping[Zone, float]] = {
        (TaskName("one"), 100.0, None, None): {"edge": 1.0},
        (TaskName("two"), 100.0, None, None): {"core": 1.0},
    }
    zones = ZoneDemand(
        shares=shares,
        usual={"edge": 0.5, "core": 0.5},
        round_trips_ms={("edge", "core"): 30.0, ("core", "edge"): 30.0},
    )
    made = observation(known, *workers, demand=wanted, inventory={"cpu-1": 2})
    plan = tick(replace(made, zones=zones)).plan
    assert {(route.task, route.worker) for route in plan.routes} == {("one", "w2"), ("two", "w1")}


def two_tasks(one: float, two: float, ones_slo_ms: float = 400.0) -> Observation:
    """``one`` is asked for at the edge, which has a worker that both need."""
    known = catalog(
        [variant("a", task="one"), variant("b", task="two")],
        [profile("a", 10.0, max_batch=1, task="one"), profile("b", 10.0, max_batch=1, task="two")],
        kinds=[kind()],
        tasks=[task("one"), task("two")],
    )
    held = (replica("a", task="one"), replica("b", task="two"))
    worker = replace(report("e0", *held), zone="edge")
    wanted = (demand(one, ones_slo_ms, task="one"), demand(two, 400.0, task="two"))
    return observation(known, worker, demand=wanted, inventory={"cpu-1": 1})


@pytest.mark.parametrize(("one", "two"), [(120.0, 20.0), (90.0, 60.0), (300.0, 20.0)])
def test_a_task_of_a_zone_without_workers_keeps_its_part_of_a_full_one(
    one: float, two: float
) -> None:
    made = two_tasks(one, two)
    key = (TaskName("one"), 400.0, None, None)
    zones = ZoneDemand(
        shares={key: {"edge": 1.0}, (TaskName("two"), 400.0, None, None): {"far": 1.0}},
        usual={"edge": 0.5, "far": 0.5},
        round_trips_ms={("far", "edge"): 40.0},
    )
    plan = tick(replace(made, zones=zones)).plan
    assert {route.task for route in plan.routes} == {"one", "two"}
    (said,) = [one for one in plan.explanation if one.startswith("Asked for in zone far")]
    assert "are served in zone edge, 40 ms away" in said


@pytest.mark.parametrize("asked", [{"edge": 50.0}, {"edge": ROOM}, {"edge": 300.0, "core": 20.0}])
def test_a_plan_stays_while_nothing_changes(asked: Mapping[Zone, float]) -> None:
    plan = tick(seen(asked)).plan
    again = tick(seen(asked, plan=plan))
    assert again.plan.routes == plan.routes
    assert not again.changed
    assert sum(planned_qps(plan.routes).values()) == pytest.approx(sum(asked.values()))


def test_where_no_zone_has_both_workers_and_demand_they_do_not_count() -> None:
    made = seen({"": ROOM}, away_ms=0.0)
    without = replace(made, zones=ZoneDemand())
    assert tick(made).plan.routes == tick(without).plan.routes


def test_a_way_is_taken_off_the_tightest_slo() -> None:
    asked: Demand = replace(demand(1.0, 100.0), slo_ms=150.0)
    assert shortened(asked, 40.0).tightest_ms == 110.0
    assert shortened(asked, 0.0) is asked


def test_routes_stay_while_others_save_no_way_to_speak_of() -> None:
    """A latency was corrected, and then a little more is asked for in the other zone."""
    before = replace(tick(seen({"edge": 10.0, "core": 10.0})).plan, version=1, epoch=1)
    same = replace(seen({"edge": 10.0, "core": 10.0}, plan=before), corrected=True)
    assert not tick(same).changed
    hardly = replace(seen({"edge": 10.1, "core": 9.9}, plan=before), corrected=True)
    assert tick(hardly).plan.routes == before.routes
    else_ = replace(seen({"edge": 15.0, "core": 5.0}, plan=before), corrected=True)
    assert rates(tick(else_).plan) == pytest.approx({"e0": 15.0, "c0": 5.0})


def test_routes_across_do_not_stay_where_the_way_has_become_too_long() -> None:
    """The edge has no worker: with a way of 190 of 200 ms only the core's own demand is served."""
    asked = {"edge": 5.0, "core": 5.0}
    before = replace(tick(seen(asked, edge=0)).plan, version=1, epoch=1)
    assert rates(before) == pytest.approx({"c0": 10.0})
    longer = replace(seen(asked, 90.0, plan=before, edge=0), corrected=True)
    assert tick(longer).plan.routes == before.routes
    too_long = replace(seen(asked, 195.0, plan=before, edge=0), corrected=True)
    assert rates(tick(too_long).plan) == pytest.approx({"c0": 5.0})
