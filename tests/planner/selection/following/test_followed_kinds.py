"""A plan over workers of two kinds: each kind is given its part, and its workers share that."""

from collections import Counter
from random import Random

from planner.selection.plan_following import follow
from planner.selection.route_targets import Alike
from planner.selection.routes import resolve
from planner.types import Snapshot
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
from variants.types import Prefer, Route, VariantName, WorkerId

RATES = {"f1": 30.0, "f2": 30.0, "s1": 15.0, "s2": 25.0}
"""Rows per second that the plan gives to two fast and two slow workers."""


def fleet(busy_ms: dict[str, float] | None = None) -> Snapshot:
    """A variant that takes 10 ms on fast devices and 40 on slow ones; all workers hold it."""
    known = catalog(
        [variant("a")],
        [profile("a", 10.0, kind="fast"), profile("a", 40.0, kind="slow")],
        kinds=[kind("fast"), kind("slow")],
    )
    on = {"f": "fast", "s": "slow"}
    return snapshot(
        known,
        *(
            (worker(name, kind=on[name[0]], busy_ms=(busy_ms or {}).get(name, 0.0)), [key("a")])
            for name in RATES
        ),
    )


def answered(busy_ms: dict[str, float] | None = None) -> Counter[str]:
    """Who answers 4,000 queries, in percent."""
    view = fleet(busy_ms)
    routes = [
        Route(
            task=DIGITS, latency_ms=1_000.0, accuracy=None, variant=VariantName("a"),
            worker=WorkerId(name), batch_size=1, qps=qps,
        )
        for name, qps in RATES.items()
    ]  # fmt: skip
    targets = resolve(routes, view, Prefer.COST).targets(query(latency_ms=1_000.0))
    draw = Random(1)
    found: Counter[str] = Counter()
    for _ in range(4_000):
        choice = follow(targets, query(latency_ms=1_000.0, draw=draw.getrandbits(56)), NOW_MS, 0.0)
        assert choice is not None
        found[choice.worker.id] += 1
    return Counter({name: round(count / 40) for name, count in found.items()})


def test_each_kind_gets_its_part_although_one_is_done_first_always() -> None:
    found = answered()

    assert abs(found["f1"] + found["f2"] - 60) <= 2
    assert abs(found["s1"] + found["s2"] - 40) <= 2


def test_of_the_workers_of_a_kind_the_less_busy_takes_more() -> None:
    found = answered({"f1": 50.0, "s1": 50.0})

    assert abs(found["f1"] + found["f2"] - 60) <= 2
    assert found["f2"] > 40
    assert found["s2"] > 30


def test_a_target_knows_which_of_its_workers_are_alike() -> None:
    view = fleet()
    routes = [
        Route(
            task=DIGITS, latency_ms=1_000.0, accuracy=None, variant=VariantName("a"),
            worker=WorkerId(name), batch_size=1, qps=qps,
        )
        for name, qps in reversed(RATES.items())
    ]  # fmt: skip

    (target,) = resolve(routes, view, Prefer.COST).targets(query(latency_ms=1_000.0))

    assert [one.id for one in target.workers] == ["f1", "f2", "s1", "s2"]
    assert target.bounds == (30.0, 60.0, 75.0, 100.0)
    assert target.alike == (*[Alike(0, 2, 0.0, 60.0)] * 2, *[Alike(2, 2, 60.0, 40.0)] * 2)
