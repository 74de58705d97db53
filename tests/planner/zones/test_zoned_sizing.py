"""Where plans decide how many workers run, a zone keeps those that only it can ask in time."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from planner.reconcile.tick import tick
from planner.types import Demand, Observation
from planner.zone_demand import NOWHERE, ShareKey, Zone, ZoneDemand, share_key
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
from variants.types import DeviceKindName

NEAR, FAR = DeviceKindName("near"), DeviceKindName("far")
USD = {NEAR: 0.72, FAR: 0.36}
TIGHT_MS, LOOSE_MS, AWAY_MS = 50.0, 500.0, 80.0
MOST = 4


def seen(
    asked: Mapping[tuple[Zone, float], float],
    running: tuple[int, int] = (1, 1),
    stand: Mapping[DeviceKindName, frozenset[Zone]] | None = None,
    took_ms: float = 10.0,
) -> Observation:
    """Rows per second by zone and SLO. Workers of ``near`` are in the edge, those of ``far``, at
    half the price, in the core; both do a row in the same time."""
    names = [f"{zone}-{slo_ms:.0f}" for zone, slo_ms in asked]
    known = catalog(
        [variant(name, task=name) for name in names],
        [profile(name, took_ms, kind=of, task=name, max_batch=1) for name in names for of in USD],
        kinds=[kind(of, usd) for of, usd in USD.items()],
        tasks=[task(name) for name in names],
    )
    held = [replica(name, task=name) for name in names]
    workers = [
        replace(report(f"{of}{n}", *held, kind=of), zone=zone)
        for of, zone, count in zip(USD, ("edge", "core"), running, strict=True)
        for n in range(count)
    ]
    wanted: list[Demand] = []
    shares: dict[ShareKey, Mapping[Zone, float]] = {}
    for name, ((zone, slo_ms), qps) in zip(names, asked.items(), strict=True):
        wanted.append(demand(qps, slo_ms, task=name))
        shares[share_key(wanted[-1].task, slo_ms, None, None)] = {zone: 1.0}
    ways = {("edge", "core"): AWAY_MS, ("core", "edge"): AWAY_MS}
    made = observation(
        known, *workers, demand=wanted, inventory=dict.fromkeys(USD, MOST),
        running=dict(zip(USD, running, strict=True)),
    )  # fmt: skip
    alone = {NEAR: frozenset({"edge"}), FAR: frozenset({"core"})}
    return replace(
        made,
        elastic=True,
        zones=ZoneDemand(
            shares=shares, usual={"edge": 0.5, "core": 0.5}, round_trips_ms=ways
        ),
        kind_zones=alone if stand is None else stand,
    )  # fmt: skip


def counts(made: Observation) -> dict[DeviceKindName, int]:
    return {of: count for of, count in tick(made).plan.workers.items() if count}


def test_what_only_the_edge_answers_in_time_keeps_its_worker_though_another_costs_less() -> None:
    tight = {("edge", TIGHT_MS): 20.0}
    loose = {("edge", LOOSE_MS): 20.0}
    assert counts(seen(tight)) == {NEAR: 1}
    assert counts(seen(loose)) == {FAR: 1}
    # Where there are no zones the cheapest is enough for all.
    assert counts(replace(seen(tight), zones=NOWHERE, kind_zones={})) == {FAR: 1}
    said = tick(seen(tight)).plan.explanation[0]
    assert said == (
        "Asked for in zone edge: edge-50 in less time than the way to any other zone leaves. "
        "Workers stay for it: near."
    )


def test_a_worker_that_the_edge_needs_has_room_for_others() -> None:
    assert counts(seen({("edge", TIGHT_MS): 20.0, ("core", LOOSE_MS): 30.0})) == {NEAR: 1}
    assert counts(seen({("edge", TIGHT_MS): 20.0, ("core", TIGHT_MS): 30.0})) == {NEAR: 1, FAR: 1}


def test_it_is_let_go_when_nobody_asks_for_it_any_more() -> None:
    assert counts(seen({("edge", LOOSE_MS): 20.0}, running=(1, 1))) == {FAR: 1}
    assert counts(seen({("edge", TIGHT_MS): 20.0}, running=(3, 0))) == {NEAR: 1}


def test_of_a_kind_in_several_zones_none_goes_where_one_is_needed() -> None:
    both = {NEAR: frozenset({"edge", "core"}), FAR: frozenset({"core"})}
    tight = {("edge", TIGHT_MS): 20.0}
    assert counts(seen(tight, running=(2, 0), stand=both)) == {NEAR: 2}
    assert counts(seen({("edge", LOOSE_MS): 20.0}, running=(2, 1), stand=both)) == {FAR: 1}


def test_no_worker_goes_before_a_new_control_loop_knows_of_zones() -> None:
    tight = seen({("edge", TIGHT_MS): 20.0})
    new = replace(tight, zones=NOWHERE, zones_settled=False)
    both = {NEAR: 1, FAR: 1}
    assert counts(new) == both
    assert tick(new).actions == ()
    # The workers of one kind have not been heard of yet.
    only_far = {FAR: frozenset({"core"})}
    late = replace(new, kind_zones=only_far, workers=tight.workers[1:])
    assert counts(late) == both
    assert counts(replace(tight, kind_zones=only_far, workers=tight.workers[1:])) == both
    # A machine for them would have to come first: nothing is kept.
    absent = replace(late, zones=tight.zones, zones_settled=True, absent=frozenset({NEAR}))
    assert counts(absent) == {FAR: 1}
    # There are no zones, or all workers stand in one, or nobody asks anything.
    nameless = {NEAR: frozenset({""}), FAR: frozenset({""})}
    assert counts(replace(new, kind_zones=nameless)) == {FAR: 1}
    assert counts(replace(new, kind_zones=dict.fromkeys(USD, frozenset({"core"})))) == {FAR: 1}
    idle = replace(new, plan=tick(tight).plan, demand=(), expected=(), envelope=())
    assert sum(counts(idle).values()) == 1
    assert counts(tight) == {NEAR: 1}


def test_a_zone_that_has_lost_its_worker_for_a_while_keeps_those_of_its_kind() -> None:
    both = {NEAR: frozenset({"edge", "core"}), FAR: frozenset({"core"})}
    whole = seen({("edge", TIGHT_MS): 20.0}, running=(2, 1), stand=both)
    in_core, far = replace(whole.workers[1], zone="core"), whole.workers[2]
    plan = tick(replace(whole, workers=(whole.workers[0], in_core, far))).plan
    assert plan.workers == {NEAR: 2}
    lost = replace(whole, workers=(in_core, far), plan=plan)
    assert tick(lost).plan.workers[NEAR] == 2


def test_a_class_that_nobody_asks_for_now_keeps_the_workers_that_it_needs() -> None:
    made = seen({("edge", TIGHT_MS): 20.0, ("core", LOOSE_MS): 20.0})
    shares = {key: at for key, at in made.zones.shares.items() if "edge" not in at}
    forgotten = replace(made, zones=replace(made.zones, shares=shares, usual={"core": 1.0}))
    assert counts(forgotten)[NEAR] == 1
    # As soon as nobody is to be there for it any more they go.
    envelope = [each for each in made.demand if each.latency_ms == LOOSE_MS]
    assert counts(replace(forgotten, envelope=tuple(envelope))) == {FAR: 1}


def test_it_is_said_where_no_worker_is_near_enough() -> None:
    made = seen({("edge", TIGHT_MS): 20.0, ("core", TIGHT_MS): 20.0}, running=(0, 1))
    plan = tick(replace(made, elastic=False)).plan
    (said,) = [one for one in plan.explanation if one.startswith("Asked for in ")]
    assert said == (
        "Asked for in zone edge: no worker is near enough to answer edge-50 within 50 ms in time; "
        "the nearest are in zone core, 80 ms away."
    )
    again = tick(replace(made, elastic=False, plan=plan))
    assert not again.changed
    # It is a reason for another version of the plan, although nothing else differs.
    before = replace(plan, explanation=())
    assert tick(replace(made, elastic=False, plan=before)).changed


def cheapest(edge: float, core: float, free: float, room: float) -> float:
    """The least price of all numbers of workers with which each has room, by trying them all."""
    return min(
        near * USD[NEAR] + far * USD[FAR]
        for near, far in product(range(MOST + 1), repeat=2)
        if near * room >= edge and far * room >= core and (near + far) * room >= edge + core + free
    )


@pytest.mark.parametrize("edge", [200.0, 650.0, 1_300.0])
@pytest.mark.parametrize("core", [0.0, 400.0, 1_500.0])
@pytest.mark.parametrize("free", [0.0, 250.0, 1_000.0])
def test_no_fleet_that_has_room_costs_less(edge: float, core: float, free: float) -> None:
    asked = {("edge", TIGHT_MS): edge, ("core", TIGHT_MS): core, ("core", LOOSE_MS): free}
    asked = {key: qps for key, qps in asked.items() if qps}
    tight, wide = cheapest(edge, core, free, 750.0), cheapest(edge, core, free, 970.0)
    found = counts(seen(asked, running=(MOST, MOST), took_ms=1.0))
    price = sum(count * USD[of] for of, count in found.items())
    assert wide - 1e-9 <= price <= tight + 1e-9
    assert found.get(NEAR, 0) * 970.0 >= edge
    assert found.get(FAR, 0) * 970.0 >= core
