"""What is stored of a turn: all that it saw, and of a large fleet what does not stand elsewhere."""

import json
from dataclasses import asdict, replace
from time import process_time

from controlplane.controller.events.tick_records import MANY_REPLICAS, tick_record
from planner.types import Decision, ReplicaReport, Unload, WorkerReport
from tests.planner.builders import catalog, demand, observation, replica, report
from variants.types import (
    DeviceKindName,
    Plan,
    ReplicaState,
    TaskName,
    TickRecord,
    VariantName,
    WorkerId,
)

HELD = 20
"""Replicas of a worker."""


def recorded(*workers: WorkerReport) -> TickRecord:
    seen = observation(catalog([], []), *workers, demand=[demand(5.0, variant="a")])
    plan = Plan(version=3, epoch=1, placements=(), workers={}, explanation=("why",))
    begun = Unload(worker=WorkerId("w1"), task=TaskName("digits"), variant=VariantName("a"))
    decision = Decision(plan=plan, changed=True, actions=(begun,))
    return tick_record(seen, decision, decision.actions, epoch=2, version=3)


def fleet(workers: int) -> list[WorkerReport]:
    held = [replica(f"v{number}") for number in range(HELD - 1)]
    loading: ReplicaReport = replica("new", state=ReplicaState.LOADING)
    return [report(f"w{number}", *held, loading) for number in range(workers)]


def plain(value: object) -> object:
    return json.loads(json.dumps(value))


def test_a_turn_is_told_with_all_that_it_saw_field_by_field() -> None:
    workers = fleet(2)
    body = plain(recorded(*workers).body)
    assert isinstance(body, dict)
    assert body["workers"] == plain([asdict(worker) for worker in workers])
    assert body["demand"] == plain([asdict(demand(5.0, variant="a"))])
    assert (body["epoch"], body["actions"][0]["action"], body["explanation"]) == (
        2, "unload", ["why"],
    )  # fmt: skip


def test_a_turn_that_made_a_plan_says_what_differs_from_the_one_before() -> None:
    before, after = (
        Plan(version=n, epoch=1, placements=(), workers={DeviceKindName("cpu-1"): n})
        for n in (1, 2)
    )
    seen = replace(observation(catalog([], []), demand=[]), plan=before)
    told = [
        tick_record(seen, Decision(plan=after, changed=changed, actions=()), (), 2, 3).body[
            "changes"
        ]
        for changed in (True, False)
    ]
    assert told == [["2 workers cpu-1 instead of 1"], []]


def test_of_a_large_fleet_what_is_ready_is_counted() -> None:
    [row, *_] = recorded(*fleet(MANY_REPLICAS // HELD + 1)).body["workers"]
    assert (row["id"], row["ready"]) == ("w0", HELD - 1)
    assert [one.variant for one in row["replicas"]] == ["new"]
    assert len(recorded(*fleet(MANY_REPLICAS // HELD)).body["workers"][0]["replicas"]) == HELD


def test_the_record_of_a_thousand_workers_stays_small() -> None:
    assert len(json.dumps(recorded(*fleet(1_000)).body)) < 400_000


def test_a_record_is_made_in_a_small_part_of_the_time_that_copying_takes() -> None:
    workers = fleet(500)
    began_s = process_time()
    for worker in workers:
        asdict(worker)
    copied_s, began_s = process_time() - began_s, process_time()
    recorded(*workers)
    assert process_time() - began_s < copied_s / 5
