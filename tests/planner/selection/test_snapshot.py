"""The snapshot: what becomes a candidate, at what price, on which workers."""

from dataclasses import replace

import pytest

from planner.latency_table import LatencyTable
from planner.selection.snapshot import build_snapshot
from planner.types import Candidate, TaskView
from tests.planner.builders import (
    DIGITS,
    catalog,
    key,
    kind,
    profile,
    snapshot,
    variant,
    worker,
)
from variants.types import LatencyPoint, Profile, ProfileSource, Stage


def only(*profiles: Profile) -> Candidate:
    view = snapshot(catalog([variant("a")], profiles))
    (candidate,) = view.tasks[DIGITS].by_cost
    return candidate


def on_the_frontier(view: TaskView) -> list[str]:
    return [c.variant for branch in view.cost_frontier for b in branch.leaves for c in b.candidates]


def test_the_price_is_the_median_of_one_row_without_margin() -> None:
    points = (
        LatencyPoint(batch_size=1, p50_ms=10, p95_ms=20, p99_ms=30),
        LatencyPoint(batch_size=2, p50_ms=15, p95_ms=30, p99_ms=40),
    )
    measured = Profile(
        task=DIGITS,
        variant=key("a")[1],
        device_kind=kind().name,
        points=points,
        memory_mib=100,
        load_s=2,
    )
    candidate = only(measured)
    assert candidate.price_usd_per_1k == pytest.approx(0.001)
    assert candidate.table.ms == (24.0, 24.0, 36.0)
    assert candidate.load_ms == 2_000.0


@pytest.mark.parametrize(
    ("working_mib", "counted_mib"), [(None, 300.0), (80.0, 220.0), (250.0, 175.0)]
)
def test_what_the_variants_of_a_worker_share_is_not_counted(
    working_mib: float | None, counted_mib: float
) -> None:
    measured = replace(profile("a", memory_mib=300.0), working_mib=working_mib)
    assert kind().memory_mib == 1_000.0  # and an eighth of that may come on top
    assert only(measured).memory_mib == counted_mib


def test_a_predicted_profile_has_the_wider_margin_and_the_same_price() -> None:
    candidate = only(profile("a", 10, source=ProfileSource.PREDICTED))
    assert candidate.table.ms[1] == 15.0
    assert candidate.price_usd_per_1k == pytest.approx(0.001)


@pytest.mark.parametrize(("error", "table_ms"), [(0.1, 14.145), (0.3, 19.657), (2.0, 50.0)])
def test_the_less_sure_a_prediction_is_the_wider_is_its_margin(
    error: float, table_ms: float
) -> None:
    predicted = profile("a", 10, source=ProfileSource.PREDICTED)
    points = tuple(replace(point, error=error) for point in predicted.points)
    candidate = only(replace(predicted, points=points))
    assert candidate.table.ms[1] == pytest.approx(table_ms, abs=0.001)


def test_a_measured_point_of_a_predicted_profile_has_the_margin_of_a_measured_one() -> None:
    first, last = profile("a", 10, source=ProfileSource.PREDICTED).points
    predicted = replace(
        profile("a", 10, source=ProfileSource.PREDICTED), points=(first, replace(last, error=0.1))
    )
    assert only(predicted).table.ms[1] == 12.0


def test_between_profiled_sizes_latency_is_linear_and_never_falls() -> None:
    assert LatencyTable([(2, 10.0), (4, 20.0), (6, 15.0)]).ms == (10, 10, 10, 15, 20, 20, 20)


def test_only_live_and_canary_versions_become_candidates() -> None:
    names = [stage.value for stage in Stage]
    view = snapshot(
        catalog(
            [variant(name) for name in names],
            [profile(name) for name in names],
            stages={stage.value: stage for stage in Stage},
        )
    ).tasks[DIGITS]
    assert {c.variant: c.canary for c in view.by_cost} == {"live": False, "canary": True}
    assert view.excluded == {
        "candidate": (
            "its version candidate-v1 is a candidate, which answers nothing until"
            " `modelless promote digits candidate 1`"
        ),
        "retired": "its version retired-v1 is retired",
    }


def test_workers_hold_host_or_drain() -> None:
    holder, host = worker("w1"), worker("w2")
    draining, other_kind = worker("w3", draining=True), worker("g1", kind="gpu-a")
    view = snapshot(
        catalog([variant("a")], [profile("a")]),
        (holder, [key("a")]), (host, []), (draining, [key("a")]), (other_kind, [key("a")]),
    )  # fmt: skip
    (candidate,) = view.tasks[DIGITS].by_cost
    assert (candidate.ready, candidate.hosts) == ((holder,), (host,))
    assert list(view.workers) == ["w1", "w2", "w3", "g1"]


def test_a_dominated_variant_is_a_candidate_but_not_on_the_frontier() -> None:
    view = snapshot(
        catalog([variant("a", 0.95), variant("b", 0.9)], [profile("a", 10), profile("b", 20)]),
        (worker(), [key("a"), key("b")]),
    ).tasks[DIGITS]
    assert [c.variant for c in view.by_cost] == ["a", "b"]
    assert on_the_frontier(view) == ["a"]


def test_a_dominated_variant_on_other_workers_stays_on_the_frontier() -> None:
    view = snapshot(
        catalog([variant("a", 0.95), variant("b", 0.9)], [profile("a", 10), profile("b", 20)]),
        (worker("w1"), [key("a")]),
        (worker("w2"), [key("b")]),
    ).tasks[DIGITS]
    assert on_the_frontier(view) == ["a", "b"]


def test_accuracies_are_the_steps_of_slo_classes() -> None:
    view = snapshot(
        catalog(
            [variant("a", 0.9), variant("b", 0.9), variant("c", 0.8), variant("d", 0.7)],
            [profile(name) for name in "abcd"],
            stages={"d": Stage.CANARY},
        )
    )
    assert view.tasks[DIGITS].accuracies == (0.8, 0.9)


def test_profiles_of_what_the_catalog_does_not_know_are_passed_over() -> None:
    known = catalog([variant("a")], [profile("ghost"), profile("a", kind="gpu-a")])
    view = build_snapshot(known, ()).tasks[DIGITS]
    assert view.by_cost == ()
    assert view.excluded == {"a": "has no profile on any device kind"}
