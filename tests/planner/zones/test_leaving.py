"""A zone with too much to do sends away what others can serve, and keeps what only it can."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

import pytest

from planner.reconcile.tick import tick
from planner.types import Demand, DemandClass, class_of
from planner.zone_demand import Zone, ZoneDemand
from planner.zones.division import divide
from planner.zones.zone_parts import Solver
from tests.planner.builders import demand, kind, report
from tests.planner.zones.test_division import two_tasks

AWAY_MS = {"core": 40.0, "south": 90.0}
"""From the edge, where everything is asked for."""


@dataclass
class Places:
    """How many rows per second each zone serves, whatever they are; where there is too much, all
    classes get the same part."""

    room: Mapping[Zone, float]
    solved: int = 0

    def assign(self, zone: Zone, asked: Sequence[Demand]) -> dict[DemandClass, float]:
        self.solved += 1
        part = min(1.0, self.room[zone] / max(1e-9, sum(each.qps for each in asked)))
        return {class_of(each): part * each.qps for each in asked}

    def divided(self, asked: Sequence[Demand]) -> dict[Zone, dict[DemandClass, float]]:
        ways = {("edge", to): away_ms for to, away_ms in AWAY_MS.items()}
        zones = ZoneDemand(usual={"edge": 1.0}, round_trips_ms=ways)
        solver = Solver(self.assign, lambda part: part, lambda _, each: each.tightest_ms > 10.0)
        parts, _ = divide(asked, zones, list(self.room), solver)
        return dict(parts)


def classes(**slo_ms_and_qps: tuple[float, float]) -> list[Demand]:
    return [demand(qps, slo_ms, task=name) for name, (slo_ms, qps) in slo_ms_and_qps.items()]


def rates(part: Mapping[DemandClass, float]) -> dict[str, float]:
    return {key[0]: qps for key, qps in part.items() if qps > 1e-9}


def test_what_can_leave_does_and_what_cannot_has_all_its_room() -> None:
    made = Places({"edge": 100.0, "core": 100.0}).divided(classes(tight=(30, 80), loose=(200, 70)))
    assert rates(made["edge"])["tight"] == pytest.approx(80.0, rel=0.01)
    assert 15.0 < rates(made["edge"])["loose"] <= 20.0
    assert rates(made["core"]) == {"loose": pytest.approx(70 - rates(made["edge"])["loose"])}


def test_what_others_have_no_room_for_comes_back_and_all_that_is_left_gets_the_same_part() -> None:
    asked = classes(tight=(30, 80), loose=(200, 120))
    made = Places({"edge": 100.0, "core": 40.0}).divided(asked)
    at_edge = rates(made["edge"])
    away = rates(made["core"])["loose"]
    assert away == pytest.approx(40.0, rel=0.04)
    assert at_edge["tight"] / 80 == pytest.approx(at_edge["loose"] / (120 - away))
    assert sum(at_edge.values()) == pytest.approx(100.0)


def test_what_cannot_be_served_elsewhere_is_not_sent_there_though_it_is_too_much() -> None:
    made = Places({"edge": 100.0, "core": 90.0}).divided(classes(tight=(30, 150), loose=(200, 50)))
    assert rates(made["edge"]) == {"tight": pytest.approx(100.0)}
    assert rates(made["core"]) == {"loose": pytest.approx(50.0)}


def test_more_of_another_class_leaves_where_there_is_no_room_for_one() -> None:
    """``near`` would find no time in the south, and the core is nearly full."""
    asked = classes(tight=(30, 80), near=(80, 60), far=(400, 60))
    made = Places({"edge": 100.0, "core": 10.0, "south": 200.0}).divided(asked)
    away = rates(made["core"])["near"]
    assert rates(made["south"])["far"] == pytest.approx(60.0, rel=0.01)
    assert away == pytest.approx(10.0, rel=0.04)
    assert rates(made["edge"]) == {
        "tight": pytest.approx(80.0 * 100.0 / (140.0 - away)),
        "near": pytest.approx((60.0 - away) * 100.0 / (140.0 - away)),
    }


def most(asked: Sequence[Demand], room: Mapping[Zone, float]) -> float:
    """The most rows that can be served: the least cut between what is asked for and all room."""
    able = {
        each.task: {
            zone for zone in room if each.tightest_ms - AWAY_MS.get(zone, 0.0) > 10.0
        }
        for each in asked
    }  # fmt: skip
    sides = [set(side) for n in range(len(room) + 1) for side in combinations(room, n)]
    return min(
        sum(room[zone] for zone in side)
        + sum(each.qps for each in asked if not able[each.task] <= side)
        for side in sides
    )


@pytest.mark.parametrize("seed", range(60))
def test_as_much_is_served_as_can_be(seed: int) -> None:
    draw = Random(seed)
    room = {"edge": draw.uniform(20, 200)}
    for zone in ("core", "south")[: draw.randint(1, 2)]:
        room[zone] = draw.uniform(0, 150)
    asked = [
        demand(draw.uniform(1, 120), draw.choice([30.0, 80.0, 400.0]), task=f"t{number}")
        for number in range(draw.randint(1, 5))
    ]
    places = Places(room)
    made = places.divided(asked)
    for zone, part in made.items():
        assert sum(part.values()) <= room[zone] * 1.001
        late = [e.task for e in asked if e.tightest_ms - AWAY_MS.get(zone, 0.0) <= 10.0]
        assert not rates(part).keys() & set(late)
    for each in asked:
        served = sum(part.get(class_of(each), 0.0) for part in made.values())
        assert 0.0 < served <= each.qps * 1.002
    assert sum(sum(part.values()) for part in made.values()) >= 0.95 * most(asked, room)
    assert places.solved <= 24


def test_plans_send_away_what_another_zone_can_serve() -> None:
    made = two_tasks(45.0, 70.0, ones_slo_ms=30.0)
    held = made.workers[0].replicas
    core = [replace(report(f"c{n}", *held), zone="core") for n in range(3)]
    zones = ZoneDemand(usual={"edge": 1.0}, round_trips_ms={("edge", "core"): 40.0})
    made = replace(made, workers=(*made.workers, *core), inventory={kind().name: 4}, zones=zones)
    plan = tick(made).plan
    found: dict[tuple[str, str], float] = {}
    for route in plan.routes:
        at = (route.task, route.worker[0])
        found[at] = found.get(at, 0.0) + route.qps
    assert found["one", "e"] == pytest.approx(45.0)
    assert found.get(("two", "e"), 0.0) < 30.0
    assert found["two", "c"] > 40.0
    assert any("100.0 % of it can be served" in said for said in plan.explanation)
    # What nobody else has room for stays in part.
    full = tick(replace(made, demand=tuple(replace(one, qps=500.0) for one in made.demand)))
    assert {(route.task, route.worker[0]) for route in full.plan.routes} == {
        ("one", "e"), ("two", "e"), ("two", "c"),
    }  # fmt: skip
