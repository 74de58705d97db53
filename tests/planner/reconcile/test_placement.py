"""Greedy placement: what stays loaded when memory is short."""

import cProfile
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.reconcile.matching import match
from planner.reconcile.placement import place
from planner.reconcile.worker_memory import PlannedWork
from planner.types import Demand, WorkerReport
from tests.planner.builders import (
    catalog,
    demand,
    key,
    kind,
    placement,
    profile,
    replica,
    report,
    snapshot,
    task,
    variant,
)
from variants.types import CatalogSnapshot, Placement, ReplicaState, Slo, WorkerId

SIZES = {"small": 100.0, "medium": 300.0, "large": 600.0}


def three() -> CatalogSnapshot:
    """Small, medium and large take 1,000 MiB together."""
    return catalog(
        [variant("small", 0.90), variant("medium", 0.95), variant("large", 0.99)],
        [
            profile("small", 10, memory_mib=100),
            profile("medium", 20, memory_mib=300),
            profile("large", 50, memory_mib=600),
        ],
    )


def placed(
    *workers: WorkerReport,
    demand: tuple[Demand, ...] = (),
    before: tuple[Placement, ...] = (),
    registered: CatalogSnapshot | None = None,
) -> set[tuple[str, str]]:
    plan = place(snapshot(registered or three()), workers, demand, before)
    return {(p.worker, p.variant) for p in plan}


def test_everything_stays_loaded_while_memory_is_free() -> None:
    everything = {(w, v) for w in ("w1", "w2") for v in SIZES}
    assert placed(report("w1"), report("w2")) == everything


def test_once_all_memory_is_full_no_task_is_held_against_each_worker() -> None:
    """Each of them was, which took a minute at each tick with 10,000 tasks and 1,000 workers."""

    def steps(tasks: int, workers: int) -> int:
        names = [f"t{number}" for number in range(tasks)]
        registered = catalog(
            [variant(name, task=name) for name in names],
            [profile(name, task=name, memory_mib=500) for name in names],
        )
        reports = [report(f"w{number}") for number in range(workers)]
        seen, counts = snapshot(registered), cProfile.Profile()
        counts.enable()
        plan = place(seen, reports, ())
        counts.disable()
        assert len(plan) == 2 * workers
        return sum(each.callcount for each in counts.getstats())

    few, many = steps(200, 10), steps(400, 10)
    more = steps(400, 20)
    assert many < 2.5 * few
    assert more < 1.5 * many


def test_short_of_memory_the_demand_comes_first() -> None:
    short = report(memory_mib=700)
    floor = (demand(1, accuracy=0.99),)
    assert placed(short, demand=floor) == {("w1", "large"), ("w1", "small")}


def test_the_cheapest_variant_that_meets_a_class_is_taken() -> None:
    short = report(memory_mib=350)
    assert placed(short, demand=(demand(1, accuracy=0.95),)) == {("w1", "medium")}


def test_the_most_wanted_class_is_covered_first() -> None:
    wanted = (demand(1, accuracy=0.99), demand(9, accuracy=0.95))
    assert placed(report(memory_mib=600), demand=wanted) == {("w1", "medium"), ("w1", "small")}


def test_without_demand_each_task_gets_one_that_meets_its_default() -> None:
    needs = task("digits", Slo(latency_ms=100, accuracy=0.95))
    registered = CatalogSnapshot(
        revision=1,
        tasks=(needs,),
        versions=three().versions,
        variants=three().variants,
        profiles=three().profiles,
        device_kinds=three().device_kinds,
    )
    assert placed(report(memory_mib=300), registered=registered) == {("w1", "medium")}


def test_two_tasks_share_a_worker_that_holds_one_variant_of_each() -> None:
    registered = catalog(
        [variant(n, task=t) for t in ("digits", "letters") for n in ("a", "b")],
        [profile(n, 10, task=t, memory_mib=100) for t in ("digits", "letters") for n in ("a", "b")],
    )
    plan = place(snapshot(registered), [report(memory_mib=200)], ())
    assert plan == (
        placement("a", share=0.5, task="digits"),
        placement("a", share=0.5, task="letters"),
    )


def test_nothing_leaves_for_what_no_query_asked_for() -> None:
    """Neither what was used nor what was only loaded because memory was free."""
    used = report("w1", replica("medium", memory_mib=300, idle_s=5, asked=True), memory_mib=400)
    unused = report("w1", replica("medium", memory_mib=300, idle_s=900), memory_mib=300)
    assert placed(used) == {("w1", "small"), ("w1", "medium")}
    assert placed(unused) == {("w1", "medium")}


def test_demand_displaces_what_no_query_asked_for() -> None:
    filler = report("w1", replica("medium", memory_mib=300), memory_mib=600)
    assert placed(filler, demand=(demand(1, accuracy=0.99),)) == {("w1", "large")}


def around(
    worker: WorkerReport,
    planned: dict[str, PlannedWork],
    *,
    unserved: tuple[Demand, ...] = (),
    rule: str = "modelless",
    busy: float | None = None,
) -> set[str]:
    """What a worker holds, given its part of the demand."""
    work = {key(name): part for name, part in planned.items()}
    plan = place(
        snapshot(three()), [worker], (), (), {worker.id: work},
        unserved=unserved, rule=rule, busy=busy,
    )  # fmt: skip
    return {str(p.variant) for p in plan}


def test_what_was_loaded_for_a_query_a_moment_ago_stays_beside_the_plan() -> None:
    """Its demand has not been counted yet, and the plan is of before."""
    fresh = replica("medium", memory_mib=300, asked=True, loaded_for_s=1)
    settled = replica("medium", memory_mib=300, asked=True, loaded_for_s=60, idle_s=50)
    large = {"large": PlannedWork(0.5, 20.0)}
    assert around(report("w1", fresh, memory_mib=700), large) == {"medium"}
    assert around(report("w1", settled, memory_mib=700), large) == {"large", "small"}


def test_what_the_plan_has_no_part_for_stays_if_its_absence_costs_more() -> None:
    asked = replica("medium", memory_mib=300, asked=True, loaded_for_s=60, rate_qps=20)
    beside = (demand(15, accuracy=0.95),)
    worker = report("w1", asked, memory_mib=700)
    assert around(worker, {"large": PlannedWork(0.5, 20.0)}, unserved=beside) == {"medium", "small"}
    assert around(worker, {"large": PlannedWork(0.5, 90.0)}, unserved=beside) == {"large", "small"}


def test_what_other_tasks_lack_is_no_reason_to_keep_a_variant() -> None:
    """No query of another task can be answered by it, whatever its SLO."""
    asked = replica("medium", memory_mib=300, asked=True, loaded_for_s=60, rate_qps=200)
    others = tuple([demand(50, task=f"other-{number}") for number in range(4)])
    worker = report("w1", asked, memory_mib=700)
    held = around(worker, {"large": PlannedWork(0.5, 20.0)}, unserved=others)
    assert held == {"large", "small"}


@pytest.mark.parametrize(
    ("by_routes", "busy", "stays"), [(True, None, True), (True, 0.5, False), (False, None, False)]
)
def test_a_part_of_what_full_workers_are_asked_for_looks_elsewhere(
    by_routes: bool, busy: float | None, stays: bool
) -> None:
    """So ``medium`` stays before ``small``, which takes less of the memory that is left."""
    held = [
        replica(name, memory_mib=mib, asked=True, loaded_for_s=400, idle_s=400, rate_qps=rate)
        for name, mib, rate in (("medium", 300, 50), ("small", 100, 0))
    ]
    work = {key("large"): PlannedWork(0.0, 0.0)}
    worker = report("w1", *held, memory_mib=1_000)
    plan = place(
        snapshot(three()), [replace(worker, memory_mib=900)], (demand(100),), (),
        {worker.id: work}, busy=busy, by_routes=by_routes,
    )  # fmt: skip
    assert ("medium" in {p.variant for p in plan[:1]}) is stays


def test_what_is_planned_and_there_gives_way_to_what_costs_more_by_its_absence() -> None:
    """By its worker's own count it is asked for more often than the plan expects."""
    planned = {"large": PlannedWork(0.5, 90.0), "medium": PlannedWork(0.1, 5.0)}
    for rate_qps, held in ((5.0, {"large", "small"}), (60.0, {"medium", "small"})):
        there = replica("medium", memory_mib=300, asked=True, loaded_for_s=60, rate_qps=rate_qps)
        assert around(report("w1", there, memory_mib=700), planned) == held


def test_queries_that_cannot_wait_for_a_load_weigh_more() -> None:
    there = replica("medium", memory_mib=300, asked=True, loaded_for_s=60, rate_qps=20)
    beside = (demand(20, accuracy=0.95),)
    worker = report("w1", there, memory_mib=700)
    patient, urgent = PlannedWork(0.5, 40.0), PlannedWork(0.5, 40.0, urgent=1.0)
    assert "medium" in around(worker, {"large": patient}, unserved=beside)
    assert "large" in around(worker, {"large": urgent}, unserved=beside)


@pytest.mark.parametrize("rule", ["lru", "lfu", "gdsf"])
def test_under_a_published_rule_nothing_asked_for_leaves_for_a_plan(rule: str) -> None:
    there = replica("medium", memory_mib=300, asked=True, loaded_for_s=60, rate_qps=0.01)
    filler = replica("medium", memory_mib=300, loaded_for_s=60)
    planned = {"large": PlannedWork(0.5, 90.0)}
    held = around(report("w1", there, memory_mib=700), planned, rule=rule)
    assert held == {"medium", "small"}
    assert "large" in around(report("w1", filler, memory_mib=700), planned, rule=rule)


def test_where_much_comes_and_goes_only_what_pays_is_loaded_ahead() -> None:
    """Loads take 0.5 s; every second memory is evicted. At 0.1 queries per second the next query
    finds it there once in 11 times. Workers have time: who finds nothing there waits for a load."""
    for churn_per_s, qps, loaded_for_s, held in (
        (1.0, 0.1, 30, False), (1.0, 90.0, 30, False), (0.01, 90.0, 30, True),
        (1.0, 0.1, 90, True),
    ):  # fmt: skip
        came = replica("small", memory_mib=100, asked=True, loaded_for_s=loaded_for_s)
        worker = replace(report("w1", came, memory_mib=700), churn_per_s=churn_per_s)
        found = around(worker, {"large": PlannedWork(0.5, qps, urgent=0.001)}, busy=0.5)
        assert ("large" in found) is held, (churn_per_s, qps, loaded_for_s)


@pytest.mark.parametrize("rule", ["modelless", "lru"])
@pytest.mark.parametrize(
    ("qps", "elsewhere", "held"), [(1.0, False, False), (1.0, True, True), (8.0, False, True)]
)
def test_what_its_next_query_would_load_is_left_to_it_where_queries_load(
    qps: float, elsewhere: bool, held: bool, rule: str
) -> None:
    """A load takes 1 s, and a planned rate of 1 may be one query. Where another variant of the task
    answers, no query loads this one; and of 8 queries per second many would come meanwhile."""
    registered = catalog(
        [variant("wanted", task="one"), variant("other", task="one"), variant("came", task="two")],
        [
            profile("wanted", task="one", memory_mib=500),
            profile("other", task="one", memory_mib=700),
            profile("came", task="two", memory_mib=500),
        ],
    )
    came = replica("came", task="two", memory_mib=500, asked=True, loaded_for_s=30)
    there = [replica("other", task="one", memory_mib=700)] if elsewhere else []
    worker = replace(report("w1", came, memory_mib=1_000), churn_per_s=0.01)
    workers = (worker, report("w2", *there, memory_mib=700))
    work = {worker.id: {key("wanted", "one"): PlannedWork(0.5, qps, urgent=1.0)}}
    plan = place(snapshot(registered), workers, (), (), work, rule=rule, busy=0.5)
    assert (("w1", "wanted") in {(p.worker, p.variant) for p in plan}) is held


@pytest.mark.parametrize("busy", [None, 0.8])
@pytest.mark.parametrize(("share", "qps", "held"), [(0.5, 90.0, True), (0.001, 0.1, False)])
def test_what_full_workers_are_planned_to_do_is_loaded_though_much_comes_and_goes(
    busy: float | None, share: float, qps: float, held: bool
) -> None:
    """Nobody else has time for half of what a worker does; a query in ten seconds may wait."""
    came = replica("small", memory_mib=100, asked=True, loaded_for_s=30)
    worker = replace(report("w1", came, memory_mib=700), churn_per_s=1.0)
    found = around(worker, {"large": PlannedWork(share, qps)}, busy=busy)
    assert ("large" in found) is held


@pytest.mark.parametrize(
    ("qps", "rows", "copied"), [(90.0, 1.0, True), (1.0, 1.0, False), (32.0, 32.0, False)]
)
def test_where_much_comes_and_goes_a_class_has_the_copies_that_pay(
    qps: float, rows: float, copied: bool
) -> None:
    """A load takes 1 s; half of a memory is evicted each second. Half of 90 queries per second
    are refused for want of the copy, which weighs 27 times the load that it takes; not so of 1,
    however many rows it has."""
    names = ("own", "wanted", "beside")
    registered = catalog(
        [variant(name, task=f"task-{name}") for name in names],
        [profile(name, task=f"task-{name}", memory_mib=500) for name in names],
    )
    came = replica("beside", task="task-beside", memory_mib=500, asked=True, loaded_for_s=30)
    there = [replica(n, task=f"task-{n}", memory_mib=500) for n in ("own", "wanted")]
    workers = (
        report("w1", *there, memory_mib=1_000),
        replace(report("w2", came, memory_mib=1_000), churn_per_s=0.5),
    )
    work = {workers[0].id: {key("own", "task-own"): PlannedWork(0.5, 10.0)}}
    wanted = (demand(qps, task="task-wanted"),)
    for fallback in (True, False):
        plan = place(
            snapshot(registered), workers, wanted, (), work,
            rows={wanted[0].task: rows}, fallback=fallback,
        )  # fmt: skip
        held = {str(p.variant) for p in plan if p.worker == "w2"}
        assert ("wanted" in held) is (copied and fallback)


@pytest.mark.parametrize(("roomy", "copied"), [(False, True), (True, False)])
def test_copies_where_there_is_room_for_everything_have_their_part(
    roomy: bool, copied: bool
) -> None:
    """As above, with 4 queries per second: half of them pays for the load, a third does not."""
    names = ("own", "wanted", "beside")
    registered = catalog(
        [variant(name, task=f"task-{name}") for name in names],
        [profile(name, task=f"task-{name}", memory_mib=500) for name in names],
    )
    came = replica("beside", task="task-beside", memory_mib=500, asked=True, loaded_for_s=30)
    there = [replica(n, task=f"task-{n}", memory_mib=500) for n in ("own", "wanted")]
    workers = (
        report("w1", *there, memory_mib=1_000),
        replace(report("w2", came, memory_mib=1_000), churn_per_s=0.5),
        *([report("w3", *there, memory_mib=1_500)] if roomy else []),
    )
    work = {workers[0].id: {key("own", "task-own"): PlannedWork(0.5, 10.0)}}
    wanted = (demand(4, task="task-wanted"),)
    plan = place(snapshot(registered), workers, wanted, (), work, fallback=True)
    assert ("wanted" in {str(p.variant) for p in plan if p.worker == "w2"}) is copied


@pytest.mark.parametrize(
    ("busy", "qps", "used_mib", "copied"),
    [
        (None, 0.02, 500.0, True),
        (0.8, 0.02, 500.0, True),
        (0.5, 0.02, 500.0, False),
        (0.5, 0.02, 0.0, True),
        (0.5, 0.1, 500.0, True),
        (0.1, 0.1, 500.0, False),
    ],
)
def test_where_workers_have_time_a_copy_has_to_pay_for_what_it_replaces(
    busy: float | None, qps: float, used_mib: float, copied: bool
) -> None:
    """A load takes 0.1 s, and ``w2`` holds what nobody asks for, or nothing. Half of the queries
    are a copy's, which is expected to stay for a minute; at a load of 0.5 half of these would be
    refused without it, which costs as much as 0.3 s of loading."""
    names = ("own", "wanted", "beside")
    registered = catalog(
        [variant(name, task=f"task-{name}") for name in names],
        [profile(name, task=f"task-{name}", memory_mib=500, load_s=0.1) for name in names],
    )
    there = [replica(n, task=f"task-{n}", memory_mib=500) for n in ("own", "wanted")]
    beside = [replica("beside", task="task-beside", memory_mib=500)] if used_mib else []
    workers = (
        report("w1", *there, memory_mib=1_000),
        report("w2", *beside, memory_mib=500),
    )
    work = {workers[0].id: {key("own", "task-own"): PlannedWork(0.5, 10.0)}}
    wanted = (demand(qps, task="task-wanted"),)
    before = (placement("beside", "w2", task="task-beside"),) if used_mib else ()
    plan = place(snapshot(registered), workers, wanted, before, work, fallback=True, busy=busy)
    assert ("wanted" in {str(p.variant) for p in plan if p.worker == "w2"}) is copied


def second_copy(other_qps: float) -> set[str]:
    """What ``w2`` holds of "b" and "c", which find room there beside "a" one at a time. All three
    are covered on ``w1`` or ``w2`` already; "b" is asked for at 5 queries per second and was here.
    """
    names = ("own", "a", "b", "c")
    registered = catalog(
        [variant(name, task=f"task-{name}") for name in names],
        [profile(name, task=f"task-{name}", memory_mib=600) for name in names],
    )
    workers = (
        report("w1", *(replica(n, task=f"task-{n}", memory_mib=600) for n in ("b", "c", "own")),
               memory_mib=1_800),
        report("w2", *(replica(n, task=f"task-{n}", memory_mib=600) for n in ("a", "b")),
               memory_mib=1_200),
    )  # fmt: skip
    rates = {"a": 50.0, "b": 5.0, "c": other_qps}
    wanted = [demand(qps, task=f"task-{name}") for name, qps in rates.items()]
    work = {workers[0].id: {key("own", "task-own"): PlannedWork(0.5, 10.0)}}
    plan = place(snapshot(registered), workers, wanted, (), work)
    return {str(p.variant) for p in plan if p.worker == "w2"} - {"a"}


def test_a_class_that_is_wanted_more_only_by_chance_displaces_none() -> None:
    """The averaged rate of 5 queries per second varies by 0.75 either way."""
    assert second_copy(5.5) == {"b"}
    assert second_copy(6.0) == {"c"}


def test_a_pinned_variant_is_covered_whatever_it_costs() -> None:
    pinned = (demand(1, variant="large"), demand(5))
    assert placed(report(memory_mib=700), demand=pinned) == {("w1", "large"), ("w1", "small")}


def test_the_plan_before_stays_when_nothing_is_gained() -> None:
    before = (placement("a", "w1"), placement("b", "w2"))
    registered = catalog(
        [variant("a"), variant("b")], [profile(n, memory_mib=100) for n in ("a", "b")]
    )
    workers = (report("w1", memory_mib=100), report("w2", memory_mib=100))
    assert placed(*workers, before=before, registered=registered) == {("w1", "a"), ("w2", "b")}
    swapped = (placement("b", "w1"), placement("a", "w2"))
    assert placed(*workers, before=swapped, registered=registered) == {("w1", "b"), ("w2", "a")}


def test_the_plan_before_gives_way_to_demand_it_cannot_meet() -> None:
    before = (placement("small"), placement("medium"))
    wanted = (demand(1, accuracy=0.99),)
    assert placed(report(memory_mib=600), demand=wanted, before=before) == {("w1", "large")}


def test_a_quarantined_pair_is_not_placed_again() -> None:
    ill = report("w1", replica("small", state=ReplicaState.QUARANTINED, memory_mib=0))
    assert placed(ill, report("w2")) == {
        ("w1", "medium"), ("w1", "large"), ("w2", "small"), ("w2", "medium"), ("w2", "large"),
    }  # fmt: skip


def test_nothing_is_placed_without_a_profile_or_on_a_draining_worker() -> None:
    assert placed(report("w1", draining=True), report("g1", kind="gpu-a")) == set()


def test_shares_follow_the_work_that_demand_brings() -> None:
    registered = catalog(
        [variant("a", task="digits"), variant("b", task="letters")],
        [profile("a", 10, task="digits"), profile("b", 10, task="letters")],
    )
    wanted = (demand(30, task="digits"), demand(10, task="letters"))
    plan = place(snapshot(registered), [report()], wanted)
    shares = [sum(p.share for p in plan if p.task == t) for t in ("digits", "letters")]
    assert [round(share, 9) for share in shares] == [0.725, 0.275]
    nearly = (demand(31, task="digits"), demand(10, task="letters"))
    assert place(snapshot(registered), [report()], nearly, plan) == plan


# -- whatever the catalog, the workers and the demand --------------------------------------------

NAMES = ("a", "b", "c", "d")
TASKS = ("digits", "letters")


@st.composite
def catalogs(draw: st.DrawFn) -> CatalogSnapshot:
    names = [(t, n) for t in TASKS for n in draw(st.sets(st.sampled_from(NAMES)).map(sorted))]
    return catalog(
        [variant(n, draw(st.sampled_from((0.8, 0.9, 0.95))), task=t) for t, n in names],
        [
            profile(
                n,
                draw(st.sampled_from((1.0, 10.0, 50.0))),
                kind=on,
                task=t,
                memory_mib=draw(st.sampled_from((0.0, 100.0, 300.0, 700.0))),
            )
            for t, n in names
            for on in draw(st.sets(st.sampled_from(("cpu-1", "gpu-a"))).map(sorted))
        ],
        kinds=[kind("cpu-1"), kind("gpu-a", 3.6)],
        tasks=[task(t) for t in TASKS],
    )


@st.composite
def fleets(draw: st.DrawFn) -> tuple[WorkerReport, ...]:
    def one(index: int) -> WorkerReport:
        held = [
            replica(
                name,
                task=draw(st.sampled_from(TASKS)),
                state=draw(st.sampled_from(ReplicaState)),
                memory_mib=draw(st.sampled_from((0.0, 100.0))),
                in_flight=draw(st.integers(0, 1)),
                idle_s=draw(st.sampled_from((1.0, 1_000.0))),
            )
            for name in draw(st.sets(st.sampled_from((*NAMES, "foreign"))).map(sorted))
        ]
        return report(
            f"w{index}",
            *held,
            kind=draw(st.sampled_from(("cpu-1", "gpu-a"))),
            memory_mib=draw(st.sampled_from((500.0, 1_000.0))),
            draining=draw(st.sampled_from((False, False, True))),
        )

    return tuple(one(index) for index in range(draw(st.integers(0, 3))))


wanted_classes = st.lists(
    st.builds(
        demand,
        st.sampled_from((0.5, 1.0, 10.0)),
        st.sampled_from((5.0, 20.0, 100.0)),
        st.sampled_from((None, 0.9, 0.99)),
        st.sampled_from((*TASKS, "unknown")),
    ),
    max_size=4,
    unique_by=lambda d: (d.task, d.latency_ms, d.accuracy),
).map(tuple)


@given(catalogs(), fleets(), wanted_classes)
@settings(max_examples=75)
def test_memory_and_time_of_a_worker_are_never_exceeded(
    registered: CatalogSnapshot, workers: tuple[WorkerReport, ...], wanted: tuple[Demand, ...]
) -> None:
    plan = place(snapshot(registered), workers, wanted)
    sizes = {(p.device_kind, p.task, p.variant): p.memory_mib for p in registered.profiles}
    cells = [(p.worker, p.task, p.variant) for p in plan]
    assert len(cells) == len(set(cells))
    for worker in workers:
        own = [p for p in plan if p.worker == worker.id]
        ill = {
            (r.task, r.variant)
            for r in worker.replicas
            if r.state is ReplicaState.QUARANTINED
        }  # fmt: skip
        held_mib = sum(sizes[worker.device_kind, p.task, p.variant] for p in own)
        assert held_mib <= worker.memory_mib
        assert sum(p.share for p in own) <= 1.0 + 1e-9
        assert not ill & {(p.task, p.variant) for p in own}
        assert not (worker.draining and own)


@given(catalogs(), fleets(), wanted_classes)
@settings(max_examples=75)
def test_a_plan_is_its_own_successor(
    registered: CatalogSnapshot, workers: tuple[WorkerReport, ...], wanted: tuple[Demand, ...]
) -> None:
    plan = place(snapshot(registered), workers, wanted)
    assert place(snapshot(registered), workers, wanted, plan) == plan


def test_a_device_that_fits_no_worker_becomes_the_one_whose_loads_are_worth_least() -> None:
    asked_for = replace(report("w1"), evictable=((100.0, 2.0),))
    filled = replace(report("w2"), evictable=((400.0, 0.1), (500.0, 0.2)))
    assert match([(asked_for.device_kind, {key("new"): 1.0})], [asked_for, filled]) == ["w2"]
    assert match([(asked_for.device_kind, {key("new"): 1.0})], [asked_for]) == ["w1"]


def test_what_stays_as_it_was_is_the_same_placement() -> None:
    """To compare a plan with the one before then takes no look into either."""
    workers = (report("w1", memory_mib=1_000), report("w2", memory_mib=700))
    work = {workers[0].id: {key("large"): PlannedWork(0.5, 20.0)}, workers[1].id: {}}
    seen = snapshot(three())
    before = place(seen, workers, (), (), work)
    known = {id(each) for each in before}

    again = place(seen, workers, (), before, work)
    assert again == before
    assert {id(each) for each in again} == known

    more = {**work, workers[1].id: {key("small"): PlannedWork(0.5, 9.0)}}
    moved = {
        each.worker for each in place(seen, workers, (), before, more) if id(each) not in known
    }
    assert moved == {workers[1].id}


def test_where_all_is_in_place_the_placements_are_those_of_before() -> None:
    empty = (report("w1", memory_mib=1_000), report("w2", memory_mib=700))
    work = {empty[0].id: {key("large"): PlannedWork(0.5, 20.0)}, empty[1].id: {}}
    seen = snapshot(three())
    before = place(seen, empty, (), (), work)

    mib = {each.variant: each.memory_mib for each in three().profiles}

    def loaded(*missing: str) -> list[WorkerReport]:
        return [
            replace(
                worker,
                replicas=tuple(
                    replica(p.variant, memory_mib=mib[p.variant])
                    for p in before
                    if p.worker == worker.id and p.variant not in missing
                ),
            )
            for worker in empty
        ]

    assert place(seen, loaded(), (), before, work, settled=True) is before
    assert place(seen, loaded(), (), before, work) is not before
    assert place(seen, loaded("large"), (), before, work, settled=True) is not before
    assert place(seen, loaded("large"), (), before, work, settled=True) == before


def test_of_workers_that_hold_the_same_each_goes_on_with_what_it_does() -> None:
    both = [report(name, replica("a"), replica("b")) for name in ("w1", "w2")]
    devices = [(both[0].device_kind, {key(name): 1.0}) for name in "ab"]
    for first, second in (("w1", "w2"), ("w2", "w1")):
        serving = {WorkerId(first): [key("a")], WorkerId(second): [key("b")]}
        assert match(devices, both, serving) == [first, second]
