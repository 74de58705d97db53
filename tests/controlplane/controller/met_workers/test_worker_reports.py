"""Reports stay the same objects while nothing that counts has changed, and decisions the same."""

from dataclasses import replace
from random import Random

import pytest

from controlplane.controller.met_workers.worker_reports import Reports, report_of
from planner.reconcile.tick import tick
from planner.solver.greedy import greedy
from planner.types import Decision
from tests.planner.builders import catalog, demand, observation, profile, variant
from variants.types import ReplicaState, TaskName, VariantName
from workers.types import ReplicaStatus, WorkerStatus

CATALOG = catalog(
    [variant("small", 0.8), variant("large", 0.95), variant("other", 0.9, task="letters")],
    [
        profile("small", 5.0),
        profile("large", 20.0, memory_mib=600.0),
        profile("other", 10.0, task="letters", memory_mib=500.0),
    ],
)


def held(name: str = "small", task: str = "digits", mib: float = 100.0) -> ReplicaStatus:
    return ReplicaStatus(
        task=TaskName(task),
        variant=VariantName(name),
        state=ReplicaState.READY,
        memory_mib=mib,
        idle_s=10.0,
        loaded_for_s=20.0,
    )


def status(*replicas: ReplicaStatus, worker: str = "w1") -> WorkerStatus:
    return WorkerStatus(
        worker=worker,
        device_kind="cpu-1",
        memory_mib=1_000.0,
        reserved_mib=sum(replica.memory_mib for replica in replicas),
        draining=False,
        backlog_us=0,
        busy_ratio=0.0,
        replicas=replicas,
    )


def test_a_report_is_the_same_object_when_only_time_went_on() -> None:
    reports = Reports()
    [first] = reports.of([status(held())])

    [second] = reports.of([status(replace(held(), idle_s=11.0, loaded_for_s=21.0))])

    assert second is first


def test_what_was_used_is_reported_anew_and_the_rest_is_kept() -> None:
    reports = Reports()
    used = replace(held(), asked=True)
    [first] = reports.of([status(used, held("large"))])

    [second] = reports.of([status(replace(used, idle_s=0.0), held("large"))])

    assert second == report_of(status(replace(used, idle_s=0.0), held("large")))
    assert second.replicas[1] is first.replicas[1]


@pytest.mark.parametrize(
    "later",
    [
        status(),
        status(held(), held("large")),
        status(held("large")),
        status(replace(held(), state=ReplicaState.FAILED)),
        status(replace(held(), queued=1)),
        status(replace(held(), load_no=2)),
        status(replace(held(), asked=True)),
        replace(status(held()), draining=True),
        replace(status(held()), evictable=((100.0, 0.5),)),
    ],
)
def test_every_change_that_counts_is_reported(later: WorkerStatus) -> None:
    reports = Reports()
    reports.of([status(held())])

    assert reports.of([later]) == (report_of(later),)


def test_a_worker_that_was_away_is_reported_anew() -> None:
    reports = Reports()
    [first] = reports.of([status(held())])
    reports.of([])

    later = status(replace(held(), idle_s=400.0))

    assert reports.of([later]) == (report_of(later),) != (first,)


def noisy(draw: Random, before: WorkerStatus) -> WorkerStatus:
    def again(old: ReplicaStatus) -> ReplicaStatus:
        if draw.random() < 0.5:
            return replace(old, idle_s=old.idle_s + 1.0, loaded_for_s=old.loaded_for_s + 1.0)
        return replace(
            old,
            idle_s=draw.choice([1.0, 299.0, 300.0, 1_000.0]),
            loaded_for_s=draw.choice([5.0, 59.0, 60.0, 1_000.0]),
            queued=draw.choice([0, 0, 1]),
            asked=draw.random() < 0.5,
            rate_qps=draw.choice([0.0, 5.0]),
        )

    replicas = tuple(map(again, before.replicas))
    if draw.random() < 0.2:
        some = [held(), held("large", mib=600.0), held("other", "letters", 500.0)]
        replicas = tuple(draw.sample(some, draw.randrange(3)))
    return status(*replicas, worker=before.worker)


@pytest.mark.parametrize("seed", range(8))
def test_decisions_are_those_of_reports_that_are_all_made_anew(seed: int) -> None:
    draw, reports = Random(seed), Reports()
    statuses = [status(worker=name) for name in ("w1", "w2", "w3")]
    base = observation(CATALOG, inventory={"cpu-1": 3}, demand=[demand(20.0)])
    decision: Decision | None = None
    for _ in range(40):
        statuses = [noisy(draw, one) for one in statuses]
        anew = replace(base, workers=tuple(map(report_of, statuses)))
        alone = tick(anew, greedy)
        decision = tick(replace(base, workers=reports.of(statuses)), greedy, decision)
        assert decision == alone
        if draw.random() < 0.3:
            base = replace(base, demand=(demand(draw.uniform(0.0, 150.0)),))
        base = replace(base, plan=decision.plan, now_s=base.now_s + 1.0)
