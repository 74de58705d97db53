"""Overflow: where queries go that find no room where the plan has them."""

from dataclasses import replace
from typing import Any

import pytest

from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.route_targets import batching
from planner.selection.routes import resolve
from planner.types import Choice, Refusal, RefusalCode, Snapshot
from tests.planner.builders import (
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
from variants.types import Prefer, Profile, Route, TaskName, VariantName, WorkerId


def at_once(of: Profile, most_ms: float) -> Profile:
    """A profile whose batches take little longer than one row: all of eight take ``most_ms``."""
    one_ms = of.points[0].p95_ms
    step_ms = (most_ms - one_ms) / 7
    return replace(
        of,
        points=tuple(
            replace(
                point,
                p50_ms=one_ms + step_ms * (point.batch_size - 1),
                p95_ms=one_ms + step_ms * (point.batch_size - 1),
            )
            for point in of.points
        ),
    )


def fleet(gpu_ms: float, *cpus_ms: float) -> Snapshot:
    """A GPU on which one row takes 16 ms and eight take 20, and CPUs on which each takes 20. They
    hold variants of the tasks ``a`` and ``b``, and are busy for so long."""
    names = [("a-1", "a"), ("b-1", "b")]
    known = catalog(
        [variant(name, task=task) for name, task in names],
        [
            *[profile(name, 20.0, kind="cpu-1", task=task) for name, task in names],
            *[at_once(profile(name, 16.0, kind="gpu-a", task=task), 20.0) for name, task in names],
        ],
        kinds=[kind("cpu-1"), kind("gpu-a", 3.6)],
    )
    held = [key(name, task) for name, task in names]
    return snapshot(
        known,
        (worker("gpu", kind="gpu-a", busy_ms=gpu_ms), held),
        *[(worker(f"cpu{n}", busy_ms=ms), held) for n, ms in enumerate(cpus_ms, 1)],
    )


def route(task: str, on: str, qps: float, rows: int = 1) -> Route:
    return Route(
        task=TaskName(task),
        latency_ms=100.0,
        accuracy=None,
        variant=VariantName(f"{task}-1"),
        worker=WorkerId(on),
        batch_size=rows,
        qps=qps,
    )


PLAN = (route("a", "gpu", 390.0, 8), route("b", "cpu1", 50.0))
"""The GPU is there for ``a`` in batches of eight, the first CPU for ``b``."""


def chosen(
    view: Snapshot,
    task: str,
    routes: tuple[Route, ...] = PLAN,
    *,
    refusals: int = 0,
    ago_s: float = 0,
    **asked: Any,
) -> str:
    """The worker of a query that has 100 ms and does not ask to come before others, or the code of
    its refusal."""
    congestion = CongestionWindow(overtaking=False)
    for number in range(refusals):
        congestion.refused(NOW_MS - ago_s * 1_000 * (1 - number / refusals))
    table = resolve(routes, view, Prefer.COST)
    found = choose(view, table, congestion, query(task=task, **asked), NOW_MS)
    if isinstance(found, Refusal):
        return found.code
    assert isinstance(found, Choice)
    return found.worker.id


def test_who_finds_no_room_keeps_off_a_worker_that_is_busy_with_batches() -> None:
    """It would be done first there, and eight rows of the other task would be late for it."""
    assert chosen(fleet(20.0, 95.0, 60.0), "b") == "cpu2"


def test_but_not_where_that_worker_is_idle() -> None:
    assert chosen(fleet(0.0, 95.0, 60.0), "b") == "gpu"


def test_who_is_planned_there_waits_there() -> None:
    assert chosen(fleet(70.0, 95.0, 95.0), "a") == "gpu"
    own = (*PLAN, route("b", "gpu", 10.0, 8))
    assert chosen(fleet(70.0, 95.0, 95.0), "b", own) == "gpu"


@pytest.mark.parametrize(
    ("gpu_ms", "own_ms", "spare_ms", "found"),
    [
        (20.0, 40.0, 0.0, "cpu1"),  # there is room for 45 ms
        (20.0, 60.0, 0.0, "cpu2"),
        (20.0, 60.0, 40.0, "cpu2"),
        (20.0, 60.0, 70.0, "cpu1"),  # sooner than there, and the GPU is busy with batches
        (0.0, 60.0, 70.0, "gpu"),
    ],
)
def test_a_worker_without_a_part_in_the_plan_answers_before_own_queues_outgrow_their_room(
    gpu_ms: float, own_ms: float, spare_ms: float, found: str
) -> None:
    """What nobody uses is paid for all the same; queues that are long when a burst goes on refuse
    the rest of it."""
    assert chosen(fleet(gpu_ms, own_ms, spare_ms), "b") == found


def test_while_queries_are_refused_idle_workers_wait_for_their_own() -> None:
    assert chosen(fleet(0.0, 60.0, 70.0), "b", refusals=1) == "cpu1"
    assert chosen(fleet(0.0, 60.0, 40.0), "b", refusals=1) == "cpu2"


def test_it_is_refused_rather_than_run_between_batches() -> None:
    assert chosen(fleet(20.0, 95.0, 95.0), "b") == RefusalCode.OVERLOADED


def test_who_has_no_time_asks_workers_of_its_class_to_come_before_others() -> None:
    """The worker of its class that is done first, unless that one had no time a moment ago; what is
    in no plan asks nobody."""
    routes = (*PLAN, route("b", "cpu2", 50.0))
    view, window = fleet(500.0, 300.0, 200.0), CongestionWindow()
    table = resolve(routes, view, Prefer.COST)

    def goes_to(task: str = "b", **asked: Any) -> str:
        found = choose(view, table, window, query(task=task, **asked), NOW_MS)
        return found.code if isinstance(found, Refusal) else found.worker.id

    assert goes_to() == "cpu2"
    assert goes_to(avoid=WorkerId("cpu2")) == "cpu1"
    assert goes_to("a") == "gpu"
    assert goes_to("a", latency_ms=15.0) == RefusalCode.SLO_INFEASIBLE
    window.had_no_time(WorkerId("cpu2"), query(task="b"), NOW_MS)
    assert goes_to() == "cpu1"
    window.had_no_time(WorkerId("cpu1"), query(task="b"), NOW_MS)
    assert goes_to() == RefusalCode.OVERLOADED
    unplanned = resolve(PLAN[:1], view, Prefer.COST)
    again = choose(view, unplanned, CongestionWindow(), query(task="b"), NOW_MS)
    assert isinstance(again, Refusal)


def test_floors_and_ceilings_are_kept_by_who_comes_before_others() -> None:
    view = fleet(500.0, 300.0, 200.0)
    table = resolve(PLAN, view, Prefer.COST)
    needs: tuple[dict[str, Any], ...] = ({"accuracy": 0.999}, {"cost": 1e-9})
    for asked in needs:
        found = choose(view, table, CongestionWindow(), query(task="b", **asked), NOW_MS)
        assert isinstance(found, Refusal)


def test_of_many_workers_some_are_asked_to_let_a_query_come_before_others() -> None:
    """From one drawn at random on, so that gateways ask different ones."""
    view = fleet(500.0, *[300.0] * 100)
    routes = tuple(route("b", f"cpu{n}", 50.0) for n in range(1, 101))
    table = resolve(routes, view, Prefer.COST)
    asked = set()
    for draw in range(0, 100, 20):
        found = choose(view, table, CongestionWindow(), query(task="b", draw=draw), NOW_MS)
        assert isinstance(found, Choice)
        asked.add(found.worker.id)
    assert len(asked) > 1


def test_what_has_no_place_in_the_plan_may_go_anywhere() -> None:
    """A class that is asked for once a minute is in no plan."""
    assert chosen(fleet(20.0, 95.0, 95.0), "b", PLAN[:1], refusals=1) == "gpu"


def test_a_worker_that_runs_row_by_row_is_open_to_all() -> None:
    rows = (route("a", "gpu", 60.0, 1), PLAN[1])
    assert chosen(fleet(20.0, 95.0, 60.0), "b", rows) == "gpu"


@pytest.mark.parametrize(("refusals", "found"), [(0, "cpu2"), (100, RefusalCode.OVERLOADED)])
def test_who_may_not_wait_long_is_refused_only_where_all_are_busy_for_longer(
    refusals: int, found: str
) -> None:
    """Refusals went on for 20 s: 0.3 of 80 ms of slack may be waited."""
    assert chosen(fleet(60.0, 95.0, 60.0), "b", refusals=refusals, ago_s=20.0) == found
    assert chosen(fleet(60.0, 95.0, 20.0), "b", refusals=refusals, ago_s=20.0) == "cpu2"


@pytest.mark.parametrize(
    "needs", [{"accuracy": 0.999}, {"latency_ms": 5.0}], ids=["accuracy", "latency"]
)
def test_best_effort_waits_no_longer_than_others_but_is_not_kept_from_idle_workers(
    needs: dict[str, float],
) -> None:
    """That others are refused elsewhere says nothing of a worker that has nothing to do."""
    how: dict[str, Any] = {"refusals": 100, "ago_s": 20.0, "best_effort": True, **needs}
    assert chosen(fleet(95.0, 95.0, 0.0), "b", **how) == "cpu2"
    assert chosen(fleet(95.0, 95.0, 60.0), "b", **how) == RefusalCode.OVERLOADED


def test_best_effort_waits_a_part_of_its_slack() -> None:
    how: dict[str, Any] = {"refusals": 100, "ago_s": 20.0, "best_effort": True}
    assert chosen(fleet(95.0, 95.0, 20.0), "b", accuracy=0.999, **how) == "cpu2"
    assert chosen(fleet(95.0, 95.0, 20.0), "b", latency_ms=5.0, **how) == RefusalCode.OVERLOADED


def test_of_many_the_one_that_is_free_first_is_taken() -> None:
    """Two drawn at random would both be full mostly, and what finds them full is refused."""
    busy = [95.0, *[75.0] * 19]
    for free in range(2, 20):
        view = fleet(75.0, *[10.0 if n == free else ms for n, ms in enumerate(busy)])
        assert chosen(view, "b") == f"cpu{free + 1}"


@pytest.mark.parametrize(("rows", "batches"), [(1, False), (3, False), (4, True), (8, True)])
def test_a_worker_batches_from_so_many_rows_on(rows: int, batches: bool) -> None:
    """Three rows take 17 ms, which is 2.8 in the time of one; four take 17.7, which is 3.6."""
    assert bool(batching([route("a", "gpu", 50.0, rows)], fleet(0.0))) is batches


def test_what_batches_is_known_by_all_that_is_planned_there() -> None:
    assert batching(PLAN, fleet(0.0, 0.0)) == {"gpu"}
    mixed = (route("a", "gpu", 1.0, 8), route("b", "gpu", 50.0, 1))
    assert not batching(mixed, fleet(0.0))
    gone = (route("a", "nobody", 390.0, 8), route("c", "gpu", 390.0, 8))
    assert not batching(gone, fleet(0.0))
