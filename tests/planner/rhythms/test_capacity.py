"""What a worker could serve follows from drawn latencies of one that has little to do."""

from dataclasses import replace
from math import log

import pytest

from planner.headroom.growth import Headroom, headroom
from planner.reconcile.live_corrections import LiveCorrections
from planner.reconcile.live_profiles import BusyRatio, SizeRatio, live_profile, with_busy
from planner.reconcile.problem_builder import build_problem
from planner.reconcile.sizing import cheapest
from planner.selection.snapshot import build_snapshot
from planner.solver.greedy import greedy
from planner.solver.options import Options
from planner.solver.problem import AvailableKind
from planner.types import Objective
from tests.planner.builders import (
    DIGITS,
    catalog,
    demand,
    kind,
    observation,
    profile,
    report,
    variant,
)
from tests.planner.rhythms.drawn_worker import PROFILED_MS, Worker
from variants.types import CatalogSnapshot, DeviceKindName, VariantName

CPU = DeviceKindName("cpu-1")
KEY = (DIGITS, VariantName("a"), CPU)
KNOWN = catalog([variant("a")], [profile("a", PROFILED_MS)], kinds=[kind("cpu-1")])
QPS = 2.0
SLO_MS = 500.0


def planned_by(worker: Worker, corrections: LiveCorrections | None = None) -> CatalogSnapshot:
    """The catalog of plans, by what a worker says now."""
    made = corrections or LiveCorrections()
    made.look(worker.now_s, [worker.says(KEY)])
    return made.alone(KNOWN)


def looked(planned: CatalogSnapshot) -> Headroom:
    """The headroom of 20 rows per second."""
    now = observation(planned, report("w"), demand=[demand(20.0, SLO_MS)], inventory={"cpu-1": 1})
    found = headroom(now, greedy, clock=lambda: 0.0)
    assert found is not None
    return found


def could_serve(planned: CatalogSnapshot) -> float:
    """Rows per second, by the headroom."""
    return looked(planned).factor * 20.0


@pytest.mark.parametrize("slow", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("load", [0.02, 0.1, 0.3, 0.95])
def test_headroom_is_what_a_full_worker_serves_whatever_it_is_asked_now(
    load: float, slow: float
) -> None:
    """Pauses cost 2.5 times. A tenth of its time is for chance, and for how sure it is."""
    for seed in range(3):
        found = could_serve(planned_by(Worker(seed, load, slow, 2.5).runs(300)))
        true = 1_000.0 / (PROFILED_MS * slow)
        assert 0.65 < found / true < 1.15


def test_a_worker_that_is_slowed_is_counted_with_less_within_two_ticks() -> None:
    """Two queries a second, one tick each: four slow batches, and it takes two ticks more."""
    worker, corrections = Worker(1, 0.02, 1.0, 2.5).runs(300), LiveCorrections()
    before = could_serve(planned_by(worker, corrections))
    worker.slow = 3.0
    worker.runs(4)
    planned_by(worker, corrections)
    worker.runs(1)
    assert could_serve(planned_by(worker, corrections)) < 0.5 * before


def test_it_says_how_sure_it_is() -> None:
    """After four lone batches it may be a third more or less, after some that followed hardly."""
    few, many = (Worker(2, load, 1.0, 2.5).runs(n) for load, n in ((0.001, 4), (0.5, 100)))
    assert looked(planned_by(few)).error > 0.3
    assert 0.0 < looked(planned_by(many)).error < 0.1
    assert looked(KNOWN).error == 0.0


def test_no_more_workers_are_wanted_than_at_a_higher_load() -> None:
    asked, kinds = [demand(300.0, SLO_MS)], {one.name: one for one in KNOWN.device_kinds}

    def wanted(worker: Worker) -> int:
        snapshot = build_snapshot(planned_by(worker), ())
        return cheapest(snapshot, kinds, {CPU: 20}, asked, greedy, Objective.COST, {})[CPU]

    idle, busy = (wanted(Worker(1, load, 1.0, 2.5).runs(300)) for load in (0.02, 0.9))
    assert busy <= idle <= busy + 1


def test_queries_are_still_sent_by_what_lone_batches_take() -> None:
    corrections = LiveCorrections()
    worker = Worker(1, 0.02, 1.0, 2.5).runs(300)
    corrections.look(worker.now_s, [worker.says(KEY)])
    [sent], [planned] = corrections.corrected(KNOWN).profiles, corrections.alone(KNOWN).profiles

    assert sent.points[0].p50_ms == pytest.approx(2.5 * PROFILED_MS, rel=0.15)
    assert (sent.busy, planned.points) == ((), sent.points)
    assert planned.busy[0][1] == pytest.approx(PROFILED_MS, rel=0.3)


def test_what_would_be_too_late_for_a_lone_query_is_not_planned_for_it() -> None:
    """A row takes 10 ms on a busy worker and 40 after a pause: too late for 30 ms, not for 90."""
    found = with_busy(
        live_profile(KNOWN.profiles[0], {0: SizeRatio(log(4.0), log(4.0))}),
        KNOWN.profiles[0],
        {0: BusyRatio(0.0, 0.1)},
    )
    snapshot = build_snapshot(replace(KNOWN, profiles=(found,)), ())
    kinds = [AvailableKind(name=CPU, count=1, memory_mib=1_000.0, usd_per_hour=1.0)]

    def served(slo_ms: float) -> list[float]:
        made = build_problem(snapshot, kinds, [demand(10.0, slo_ms)])
        return [option.alone.unit_ms for option in Options(made.problem).all]

    assert served(30.0) == []
    assert served(90.0) == [pytest.approx(PROFILED_MS)]
