"""Route targets: which replicas a query tries, in which order, and how long it may wait there."""

from dataclasses import replace

import pytest

from planner.reconcile.corrections.correction import profile_key
from planner.reconcile.live_profiles import scaled
from planner.selection.plan_following import CongestionWindow, choose, follow
from planner.selection.route_targets import RouteTargets
from planner.selection.routes import resolve
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Snapshot
from tests.planner.builders import (
    DIGITS,
    NOW_MS,
    catalog,
    key,
    kind,
    profile,
    query,
    snapshot,
    variant,
    worker,
)
from variants.types import CatalogSnapshot, Prefer, Route, VariantName, WorkerId


def family() -> CatalogSnapshot:
    """``best`` takes 40 ms, ``good`` 36 ms, ``fair`` 20 ms, ``poor`` 10 ms, on both kinds."""
    speeds = {"best": (0.99, 40.0), "good": (0.95, 36.0), "fair": (0.9, 20.0), "poor": (0.8, 10.0)}
    return catalog(
        [variant(name, accuracy) for name, (accuracy, _) in speeds.items()],
        [
            profile(name, ms, kind=on)
            for name, (_, ms) in speeds.items()
            for on in ("cpu-1", "gpu-a")
        ],
        kinds=[kind("cpu-1"), kind("gpu-a", 3.6)],
    )


ALL = ("best", "good", "fair", "poor")


def fleet(busy_ms: dict[str, float] | None = None) -> Snapshot:
    """``w1`` and ``w2`` of one kind, ``w3`` of another; all hold everything."""
    busy = busy_ms or {}
    kinds = {"w1": "cpu-1", "w2": "cpu-1", "w3": "gpu-a"}
    return snapshot(
        family(),
        *(
            (worker(name, kind=on, busy_ms=busy.get(name, 0.0)), [key(each) for each in ALL])
            for name, on in kinds.items()
        ),
    )


def route(name: str, on: str = "w1", qps: float = 20.0) -> Route:
    """At 20 queries per second, ``best`` takes 0.8 of a worker's time."""
    return Route(
        task=DIGITS,
        latency_ms=100.0,
        accuracy=None,
        variant=VariantName(name),
        worker=WorkerId(on),
        batch_size=1,
        qps=qps,
    )


def targets(*routes: Route) -> RouteTargets:
    return resolve(routes, fleet(), Prefer.COST).targets(query())


def named(found: RouteTargets) -> list[tuple[str, list[str]]]:
    """The first variant of each target, with its workers."""
    return [(t.candidates[0].variant, [w.id for w in t.workers]) for t in found]


def test_what_is_planned_comes_before_the_quickest() -> None:
    assert named(targets(route("best"))) == [("best", ["w1"]), ("poor", ["w1"])]
    assert [t.last for t in targets(route("best"))] == [False, True]


def test_the_cheapest_target_comes_first() -> None:
    found = targets(route("best"), route("fair", "w2"))

    assert named(found) == [("fair", ["w2"]), ("best", ["w1"]), ("poor", ["w1", "w2"])]


def chosen(busy_ms: dict[str, float], *routes: Route, window: float = 1.0) -> tuple[str, str]:
    """Where there is room, or else where the query waits until its deadline."""
    found_targets = resolve(routes, fleet(busy_ms), Prefer.COST).targets(query())
    found = follow(found_targets, query(), NOW_MS, 0.0, window) or follow(
        found_targets, query(), NOW_MS, 0.0, window, patient=True
    )
    assert found is not None
    return found.candidate.variant, found.worker.id


BUSY = [route("best", name) for name in ("w1", "w2", "w3")]


def test_patience_limits_the_wait_and_not_the_time_to_run() -> None:
    slow = catalog([variant("slow", 0.99), variant("quick", 0.5)],
                   [profile("slow", 80.0), profile("quick", 10.0)])  # fmt: skip
    view = snapshot(slow, (worker("w1"), [key("slow"), key("quick")]))
    table = resolve([route("slow", qps=1.0)], view, Prefer.COST)
    found = follow(table.targets(query()), query(), NOW_MS, 0.0, window=0.1)

    assert found is not None
    assert found.candidate.variant == "slow"


@pytest.mark.parametrize(("wait_ms", "variant"), [(0.0, "best"), (40.0, "best"), (60.0, "poor")])
def test_without_room_the_quickest_answers(wait_ms: float, variant: str) -> None:
    everywhere = dict.fromkeys(("w1", "w2", "w3"), wait_ms)

    assert chosen(everywhere, *BUSY)[0] == variant


def test_refusals_shorten_the_wait() -> None:
    waits = dict.fromkeys(("w1", "w2", "w3"), 25.0)

    assert chosen(waits, *BUSY)[0] == "best"
    assert chosen(waits, *BUSY, window=0.1)[0] == "poor"


def test_a_class_without_routes_takes_what_it_prefers_while_none_is_refused() -> None:
    view = fleet()
    table = resolve([replace(route("best"), latency_ms=10_000.0)], view, Prefer.COST)
    found = choose(view, table, CongestionWindow(), query(), NOW_MS)

    assert isinstance(found, Choice)
    assert found.candidate.variant == "poor"


def test_targets_are_taken_over_where_nothing_changed() -> None:
    view, plan = fleet(), (route("best"), route("fair", "w2"))
    first = resolve(plan, view, Prefer.COST)
    again = resolve(plan, view, Prefer.COST, first)

    assert again.targets(query())
    assert all(
        one is other
        for one, other in zip(first.targets(query()), again.targets(query()), strict=True)
    )


def test_a_task_of_which_nothing_is_ready_is_not_looked_at_again_for_another_task() -> None:
    known, plan = family(), (route("best"),)
    view = build_snapshot(known, [(worker("w1"), [])])
    first = resolve(plan, view, Prefer.COST)
    assert not first.used
    assert first.targets(query()) == ()
    assert first.kept(first.basis(plan, view, Prefer.COST), Prefer.COST) == {DIGITS: {}}

    ready = build_snapshot(known, [(view.workers[WorkerId("w1")], [key("best")])], before=view)
    now = resolve(plan, ready, Prefer.COST, first)

    assert now.used
    assert named(now.targets(query())) == [("best", ["w1"])]


def test_latencies_that_were_corrected_count_for_how_long_queues_may_be() -> None:
    """``best`` takes six times as long on ``w3`` as its profile says."""
    view, plan = fleet(), (*BUSY,)
    first = resolve(plan, view, Prefer.COST)
    known = family()
    profiles = [
        scaled(p, 6.0) if profile_key(p)[1:] == ("best", "gpu-a") else p for p in known.profiles
    ]
    corrected = build_snapshot(
        replace(known, profiles=tuple(profiles)),
        [(view.workers[name], [key(each) for each in ALL]) for name in view.workers],
        before=view,
    )
    again = resolve(plan, corrected, Prefer.COST, first)

    assert max(room for t in first.targets(query()) for room in t.rooms_ms) == 0.9 * 50.0
    assert max(room for t in again.targets(query()) for room in t.rooms_ms) == pytest.approx(
        0.9 * 288.0
    )
    assert again.targets(query()) == resolve(plan, corrected, Prefer.COST).targets(query())
