"""A machine that plans split anew: what starts, what waits, and what is told of it."""

from dataclasses import replace

import pytest

from planner.simulate import simulate
from planner.simulation.fleet import Fleet, Worker
from planner.simulation.results import Report
from planner.simulation.setting import Setting, Split
from planner.simulation.shared_cores import on_shared_cores
from planner.solver.problem import AvailableKind
from tests.planner.builders import catalog, kind, profile, variant
from tests.planner.simulation.builders import Asked, Fifo, trace
from variants.types import DeviceKindName, ProfileSource, WorkerId

ONE, TWO = DeviceKindName("cpu-1"), DeviceKindName("cpu-2")
SPLIT = Split(layouts=({TWO: 1}, {ONE: 2}), cores={ONE: 1, TWO: 2})
EXACT = ProfileSource.EXACT
KNOWN = catalog(
    [variant("small", task="small"), variant("large", task="large")],
    [
        profile("small", 10.0, kind="cpu-1", task="small", max_batch=1, source=EXACT),
        profile("small", 10.0, kind="cpu-2", task="small", max_batch=1, source=EXACT),
        profile("large", 400.0, kind="cpu-1", task="large", max_batch=1, source=EXACT),
        profile("large", 200.0, kind="cpu-2", task="large", max_batch=1, source=EXACT),
    ],
    kinds=[kind("cpu-1", 0.5), kind("cpu-2", 1.0)],
)


def setting(split: Split | None = SPLIT, **other: object) -> Setting:
    kinds = (
        AvailableKind(name=ONE, count=2, memory_mib=1_000.0, usd_per_hour=0.5),
        AvailableKind(name=TWO, count=1, memory_mib=1_000.0, usd_per_hour=1.0),
    )
    made = Setting(
        catalog=KNOWN, kinds=kinds, split=split, tick_s=1.0, provision_s=10.0, linger_s=30.0
    )
    return replace(made, **other)  # type: ignore[arg-type]


def played(made: Setting, *rows: Asked) -> Report:
    return simulate(made, trace(*rows), "modelless", clock=lambda: 0.0)


def smalls(begin_s: float, end_s: float, qps: float) -> list[Asked]:
    """Queries at even distances, which can wait for a second."""
    count = int((end_s - begin_s) * qps)
    return [Asked(begin_s + n / qps, 1_000.0, "small") for n in range(count)]


def larges(begin_s: float, end_s: float, qps: float) -> list[Asked]:
    """Ones that no worker of one core answers in time."""
    count = int((end_s - begin_s) * qps)
    return [Asked(begin_s + n / qps, 390.0, "large") for n in range(count)]


def test_more_small_queries_than_one_worker_serves_split_the_machine() -> None:
    report = played(setting(), *smalls(0.0, 90.0, 150.0))

    [change] = report.layout_changes
    assert change.layout == "2xcpu-1"
    assert change.why.startswith("The machine is split into 2xcpu-1: this serves all of ")
    assert change.done_s is not None
    assert change.done_s >= change.at_s + 10.0  # what a worker takes to start
    assert change.given_up == ""
    alone = played(
        setting(None, elastic=False, kinds=setting().kinds[1:]), *smalls(0.0, 90.0, 150.0)
    )
    assert report.violation_ratio < alone.violation_ratio
    assert alone.layout_changes == ()


@pytest.mark.campaign
def test_a_large_model_with_a_tight_slo_has_it_put_together_again() -> None:
    asked = sorted([*smalls(0.0, 60.0, 150.0), *larges(100.0, 200.0, 2.0)])
    report = played(setting(), *asked)

    assert [one.layout for one in report.layout_changes] == ["2xcpu-1", "1xcpu-2"]
    assert "can answer queries of 2 tasks" in report.layout_changes[1].why
    assert report.layout_changes[1].at_s > 100.0


def test_it_stays_as_it_is_where_nothing_is_gained() -> None:
    report = played(setting(), *smalls(0.0, 60.0, 20.0))

    assert report.layout_changes == ()
    # Those of two seconds: `large`, which nobody asks for, is being loaded when the first comes.
    assert report.in_time >= report.requests - 40
    # The one worker of two cores throughout, by the second.
    assert report.cost_usd == pytest.approx(60.0 / 3_600, rel=0.01)


def test_it_may_not_change_back_before_it_has_rested() -> None:
    asked = sorted([*smalls(0.0, 60.0, 150.0), *larges(25.0, 200.0, 2.0)])
    first, *others = played(setting(linger_s=100.0), *asked).layout_changes

    assert others
    assert others[0].at_s >= first.at_s + 100.0


def test_workers_of_two_layouts_share_the_cores() -> None:
    made = setting()
    fleet = Fleet({}, made.kinds)
    there = [
        Worker(WorkerId(f"w{n}"), one, Fifo(), 0.0)
        for n, one in enumerate((made.kinds[1], made.kinds[0], made.kinds[0]))
    ]
    fleet.workers = {worker.id: worker for worker in there}
    plays = on_shared_cores(made, fleet, None)
    assert plays is not None

    class Begins:
        worker = there[1]

    begins = Begins()
    assert plays(begins, 10.0) == 10.0  # type: ignore[arg-type]
    there[0].batch = []
    assert plays(begins, 10.0) == 15.0  # type: ignore[arg-type]
    there[2].batch = []
    assert plays(begins, 10.0) == 20.0  # type: ignore[arg-type]


def test_plans_leave_what_all_layouts_have_alike() -> None:
    gpu = DeviceKindName("gpu")
    split = Split(layouts=({TWO: 1, gpu: 1}, {ONE: 2, gpu: 1}), cores={ONE: 1, TWO: 2, gpu: 0})
    assert split.most == {TWO: 1, gpu: 1, ONE: 2}
    assert split.least == {TWO: 0, gpu: 1, ONE: 0}
    assert split.machine_cores == 2
