"""In which zones queries are asked for: what gateways tell, and when plans go by it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controlplane.controller.zone_counts import (
    FORGET_S,
    REST_S,
    SETTLED_S,
    KindZones,
    ZoneCounts,
)
from controlplane.settings import load_settings
from planner.zone_demand import NOWHERE, ZoneDemand
from tests.controlplane.builders import worker
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import TaskName, VariantName

CATALOG = catalog(
    [variant("a", 0.9), variant("b", 0.8)], [profile("a"), profile("b")], kinds=[kind()]
)
DIGITS = TaskName("digits")
OPEN, FLOORED = "digits|100.0|", "digits|100.0|0.9"


def told(zone: str, away_ms: float = 0.0, **counters: int) -> Mapping[str, Any]:
    names = {"open": OPEN, "floored": FLOORED, "pinned": "digits|100.0|@a"}
    return {
        "zone": zone,
        "demand": {names[name]: count for name, count in counters.items()},
        "round_trips_ms": {"core": away_ms},
    }


def counted(*turns: Mapping[str, Mapping[str, Any]]) -> tuple[ZoneCounts, list[bool]]:
    """After looks that are ``REST_S`` apart; whether each of them changed what plans go by."""
    counts = ZoneCounts()
    return counts, [counts.count(reports, CATALOG, at * REST_S) for at, reports in enumerate(turns)]


def test_what_is_asked_is_counted_by_the_zone_of_the_gateway_that_took_it() -> None:
    counts, changed = counted(
        {"g1": told("edge", 40.0), "g2": told("core")},
        {"g1": told("edge", 40.0, open=30, floored=10, pinned=5), "g2": told("core", open=10)},
    )
    assert changed == [False, True]
    known = counts.known
    assert known.of((DIGITS, 100.0, None, None)) == pytest.approx({"edge": 0.75, "core": 0.25})
    assert known.of((DIGITS, 100.0, 0.9, None)) == {"edge": 1.0}
    assert known.of((DIGITS, 0.0, None, VariantName("a"))) == {"edge": 1.0}
    assert known.usual == pytest.approx({"edge": 45 / 55, "core": 10 / 55})
    assert known.of((DIGITS, 7.0, None, None)) is known.usual
    assert (known.away_ms("edge", "core"), known.away_ms("core", "edge")) == (40.0, 0.0)


def test_plans_go_by_the_same_until_much_is_asked_for_elsewhere() -> None:
    def at(edge: int, core: int, away_ms: float = 40.0) -> Mapping[str, Mapping[str, Any]]:
        return {"g1": told("edge", away_ms, open=edge), "g2": told("core", open=core)}

    turns = [at(0, 0), at(50, 50), at(100, 102), at(160, 150, 42.0), at(210, 200, 90.0)]
    _, changed = counted(*turns, at(211, 900, 90.0))
    assert changed == [False, True, False, False, True, True]


def test_a_control_loop_that_starts_does_not_go_by_how_long_gateways_have_run() -> None:
    def at(rows: int) -> Mapping[str, Mapping[str, Any]]:
        return {
            "g1": told("core", open=10_000_000 + rows),
            "g2": told("edge", open=5_000 + rows),
        }

    counts, changed = counted(at(0), at(50))
    assert changed == [False, True]
    assert counts.known.usual == {"core": 0.5, "edge": 0.5}


def test_a_control_loop_that_starts_looks_for_a_while_first() -> None:
    counts = ZoneCounts()
    seen = [
        counts.count({"g": told("edge", 40.0, open=9 * second)}, CATALOG, float(second))
        for second in range(int(REST_S) + 1)
    ]
    assert seen == [False] * int(REST_S) + [True]


def test_a_way_that_is_longer_for_a_moment_is_not_planned_by() -> None:
    counts = ZoneCounts()

    def at(second: int, *away_ms: float) -> float:
        reports = {
            f"g{n}": told("edge", one_ms, open=9 * second) for n, one_ms in enumerate(away_ms)
        }
        counts.count(reports, CATALOG, float(second))
        return counts.known.away_ms("edge", "core")

    for second in range(11):
        at(second, 20.0)
    assert [at(second, 60.0) for second in range(11, 16)] == [20.0] * 5
    assert [at(second, 20.0) for second in range(16, 18)] == [20.0] * 2
    assert [at(second, 60.0) for second in range(18, 29)] == [20.0] * 10 + [60.0]
    assert at(29, 20.0) == 20.0  # at once
    assert [at(second, 20.0, 300.0, 20.0) for second in range(30, 45)] == [20.0] * 15


def test_without_zones_nothing_is_known_of_them() -> None:
    counts, changed = counted(*({"g": told("", open=50 * at)} for at in range(4)))
    assert not any(changed)
    assert counts.known is NOWHERE


def test_without_names_of_zones_no_way_makes_any() -> None:
    reports = [{"g": {**told("", open=50 * at), "round_trips_ms": {"": 60.0}}} for at in range(4)]
    counts, changed = counted(*reports)
    assert not any(changed)
    assert not ZoneDemand(usual={"": 1.0}, round_trips_ms={("", ""): 60.0}).matters({""})
    assert counts.known is NOWHERE


def test_a_gateway_that_starts_anew_counts_from_its_second_report() -> None:
    counts, _ = counted(
        {"g1": told("edge", open=1_000)},
        {"g1": told("edge", open=1_010), "g2": told("core", open=5_000)},
        {"g1": told("edge", open=1_010), "g2": told("core", open=5_000)},
    )
    assert counts.known.usual == {"edge": 1.0}


def test_a_kind_stands_where_its_nodes_are_or_where_its_workers_were_seen() -> None:
    settings = load_settings(
        ray_address="auto",
        slices="1-4xcpu-4:nodes=topology.kubernetes.io/zone=edge,1xcpu-2,1xcpu-1:nodes=rack=7",
    )
    kinds = KindZones()
    assert kinds.of(settings.kinds, (), 0.0) == {"cpu-4": {"edge"}}
    workers = [
        replace(worker("a"), device_kind="cpu-2", zone="core"),
        replace(worker("b"), device_kind="cpu-2", zone="edge"),
        replace(worker("c"), device_kind="cpu-1", zone="core"),
    ]
    seen = {"cpu-4": {"edge"}, "cpu-2": {"core", "edge"}, "cpu-1": {"core"}}
    assert kinds.of(settings.kinds, workers, 0.0) == seen
    # A worker that is lost comes back; for how long all are away says nothing.
    assert kinds.of(settings.kinds, workers[1:2], FORGET_S) == seen
    assert kinds.of(settings.kinds, (), 9 * FORGET_S) == seen
    moved = {**seen, "cpu-2": {"edge"}}
    assert kinds.of(settings.kinds, workers[1:2], 9 * FORGET_S + 1.0) == moved


def test_workers_go_by_zones_only_when_something_was_asked_and_ways_had_time_to_be_told() -> None:
    counts = ZoneCounts()

    def settled(second: float, rows: int) -> bool:
        counts.count({"g": told("", open=rows)}, CATALOG, second)
        return counts.settled

    assert [settled(at, 0) for at in (0.0, 1.0, SETTLED_S, SETTLED_S + 1.0)] == [False] * 4
    assert settled(SETTLED_S + 2.0, 5)
    assert counts.known is NOWHERE
    early = ZoneCounts()
    for at in (0.0, 1.0, SETTLED_S - 1.0):
        early.count({"g": told("edge", open=int(at))}, CATALOG, at)
    assert not early.settled
