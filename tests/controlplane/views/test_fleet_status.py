"""What is wanted against what is running."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controlplane.views.fleet_status import (
    CountSource,
    FleetStatus,
    KindStatus,
    Level,
    PlacedState,
    asked_words,
    fleet_status,
    kind_statuses,
)
from controlplane.views.lack_of_room import Room, lack_of_nodes, lack_of_room
from tests.controlplane.builders import worker
from variants.types import (
    DeviceKindName,
    Placement,
    Plan,
    ReplicaState,
    TaskName,
    VariantName,
    WorkerId,
)
from workers.types import WorkerStatus


def plan(*placed: tuple[str, str], workers: int = 1) -> Plan:
    """A plan that places variants of ``digits`` on workers ``cpu-4``."""
    return Plan(
        version=7,
        epoch=1,
        placements=tuple(
            Placement(
                worker=WorkerId(id_),
                task=TaskName("digits"),
                variant=VariantName(variant),
                share=0.0,
            )
            for id_, variant in placed
        ),
        workers={DeviceKindName("cpu-4"): workers} if workers else {},
    )


def now(
    made: Plan | None, workers: Sequence[WorkerStatus], *, asked: int = 1, elastic: bool = False
) -> FleetStatus:
    planned = dict(made.workers) if elastic and made else None
    kinds = kind_statuses({"cpu-4": 1}, {"cpu-4": asked}, workers, planned)  # type: ignore[arg-type]
    return fleet_status(kinds, made, workers)


def test_all_as_planned() -> None:
    found = now(plan(("w1", "a"), ("w1", "b")), [worker("w1", "a", "b")])
    assert (found.level, found.sentence) == (
        Level.AS_PLANNED,
        "As planned: 1 worker is running, 2 of 2 replicas loaded.",
    )


def test_what_was_loaded_for_queries_is_no_difference() -> None:
    found = now(plan(("w1", "a")), [worker("w1", "a", "b")])
    assert (found.level, found.sentence) == (
        Level.AS_PLANNED,
        "As planned: 1 worker is running, 1 of 1 replica loaded, 1 beside the plan.",
    )


def test_no_worker_left_whatever_the_old_plan_says() -> None:
    found = now(plan(("w1", "a"), ("w2", "a")), [], asked=2)
    assert (found.level, found.sentence) == (
        Level.DOWN,
        "No worker is running, 2 workers cpu-4 wanted: no query can be answered until one has "
        "started.",
    )
    assert set(found.placements.values()) == {PlacedState.WORKER_GONE}


def test_the_only_worker_goes_and_answers_meanwhile() -> None:
    going = replace(worker("w1", "a"), draining=True)
    found = now(plan(("w1", "a")), [going])
    assert (found.level, found.sentence) == (
        Level.DIFFERS,
        "Only 1 worker on the way out is running, 1 worker cpu-4 wanted.",
    )


def test_scaled_to_zero() -> None:
    found = now(plan(workers=0), [], asked=0)
    assert (found.level, found.sentence) == (
        Level.DOWN,
        "No worker is wanted and none is running: no query can be answered; "
        "`modelless workers scale cpu-4 1` asks for one.",
    )


def test_a_worker_is_missing_and_variants_load() -> None:
    made = plan(("w1", "a"), ("w1", "b"), ("w1", "c"), ("w2", "a"), workers=2)
    found = now(made, [worker("w1", "a", loading=["b"])], asked=2)
    assert (found.level, found.sentence) == (
        Level.DIFFERS,
        "1 of 2 workers cpu-4 running, 1 missing; "
        "1 of 4 planned replicas loaded, 1 loading, 2 missing.",
    )
    assert [state.value for state in found.placements.values()] == [
        "ready", "loading", "missing", "worker_gone",
    ]  # fmt: skip


def test_a_worker_that_no_plan_names_yet_stands_in_for_one_that_is_gone() -> None:
    """While no plan can be stored, as on a full disk: queries are answered all the same."""
    found = now(plan(("w1", "a"), ("w1", "b"), ("w1", "c")), [worker("w2", "a", "b", "d")])
    assert (found.level, found.sentence) == (
        Level.DIFFERS,
        "2 of 3 planned replicas loaded, 2 of them on workers that the plan does not name yet, "
        "1 missing.",
    )
    assert (found.replicas.ready, found.replicas.missing, found.replicas.instead) == (0, 3, 2)


def test_what_a_planned_worker_holds_beside_the_plan_makes_up_for_nothing() -> None:
    found = now(plan(("w1", "a"), ("w2", "b"), workers=2), [worker("w1", "a", "b")], asked=2)
    assert found.replicas.instead == 0
    assert found.sentence.endswith("1 of 2 planned replicas loaded, 1 missing.")


@pytest.mark.parametrize("state", ReplicaState)
def test_every_state_of_a_replica_is_one_of_a_placement(state: ReplicaState) -> None:
    holding = worker("w1", "a")
    holding = replace(holding, replicas=(replace(holding.replicas[0], state=state),))
    assert list(now(plan(("w1", "a")), [holding]).placements.values()) == [state.value]


def silent(
    made: Plan, workers: Sequence[WorkerStatus], silent_s: dict[str, float], asked: int
) -> FleetStatus:
    kinds = kind_statuses({"cpu-4": 1}, {"cpu-4": asked}, workers, None, silent_s)
    return fleet_status(kinds, made, workers, silent_s=silent_s)


def test_a_worker_that_does_not_answer_is_not_running() -> None:
    made = plan(("w1", "a"), ("w2", "a"), workers=2)
    found = silent(made, [worker("w1", "a"), worker("w2", "a", "b")], {"w2": 4.2}, asked=2)
    assert (found.level, found.sentence) == (
        Level.DIFFERS,
        "1 of 2 workers cpu-4 running; w2 has not answered for 4 s; "
        "1 of 2 planned replicas loaded, 1 missing.",
    )
    assert list(found.placements.values()) == [PlacedState.READY, PlacedState.WORKER_SILENT]
    assert found.replicas.unplanned == 0
    [kind] = found.kinds
    assert (kind.running, kind.silent, kind.missing) == (1, 1, 0)


def test_replicas_of_a_silent_worker_are_not_beside_a_plan_without_it() -> None:
    workers = [worker("w1", "a"), worker("w2", "a")]
    found = silent(plan(("w1", "a")), workers, {"w2": 12.0}, asked=2)
    assert (found.level, found.replicas.unplanned) == (Level.DIFFERS, 0)
    assert found.sentence == "1 of 2 workers cpu-4 running; w2 has not answered for 12 s."


def test_where_no_worker_answers_none_is_said_to_run() -> None:
    found = silent(plan(("w1", "a")), [worker("w1", "a")], {"w1": 3.0}, asked=1)
    assert (found.level, found.sentence) == (
        Level.DOWN,
        "No worker answers: w1 has not answered for 3 s. Queries wait until one answers or another "
        "one has started.",
    )


def test_of_many_silent_workers_those_are_named_that_are_so_for_longest() -> None:
    workers = [worker(f"w{number}", "a") for number in range(6)]
    silent_s = {f"w{number}": float(number) for number in range(1, 6)}
    found = silent(plan(("w0", "a")), workers, silent_s, asked=6)
    assert found.sentence == (
        "1 of 6 workers cpu-4 running; w5 has not answered for 5 s, w4 has not answered for 4 s, "
        "w3 has not answered for 3 s, nor have 2 others."
    )


def test_more_workers_than_wanted() -> None:
    draining = replace(worker("w3"), draining=True)
    found = now(plan(("w1", "a")), [worker("w1", "a"), worker("w2", "a"), draining])
    assert (found.level, found.sentence) == (
        Level.DIFFERS,
        "2 workers cpu-4 running where 1 is wanted, 1 worker cpu-4 draining.",
    )


def test_a_draining_worker_holds_nothing_of_the_plan() -> None:
    found = now(plan(("w1", "a")), [replace(worker("w1", "a"), draining=True), worker("w2")])
    assert found.placements == {("w1", "digits", "a"): PlacedState.WORKER_GONE}


def test_nothing_planned_yet() -> None:
    found = now(None, [worker("w1")])
    assert (found.level, found.sentence) == (Level.DIFFERS, "Nothing has been planned yet.")


def test_where_plans_decide_fewer_are_wanted_than_were_asked_for() -> None:
    found = now(plan(("w1", "a"), workers=1), [worker("w1", "a")], asked=4, elastic=True)
    assert found.level is Level.AS_PLANNED
    assert found.kinds == (
        KindStatus(
            device_kind="cpu-4",
            wanted=1,
            running=1,
            draining=0,
            missing=0,
            asked=4,
            source=CountSource.PLAN,
            settings=1,
        ),
    )


def test_workers_that_their_machine_has_no_cores_for_are_told_why() -> None:
    workers = [worker("w1", "a")]
    kinds = kind_statuses({"cpu-4": 1}, {"cpu-4": 3}, workers)
    why = "the workers that are wanted need 12 cores, and 4 were given to workers at the start"
    each = {"cpu-4": Room(cores=4)}
    assert lack_of_room(kinds, each, Room(cores=4)) == why
    assert lack_of_room(kinds, each, Room(cores=12)) == ""
    enough = kind_statuses({"cpu-4": 1}, {}, workers)
    assert lack_of_room(enough, each, Room(cores=2)) == ""  # what was wanted runs

    assert fleet_status(kinds, plan(("w1", "a")), workers, why).sentence == (
        f"1 of 3 workers cpu-4 running, 2 missing; {why}."
    )


def test_workers_that_their_machine_has_no_gpu_for_or_is_not_divided_into_are_told_why() -> None:
    each = {"cpu-4": Room(cores=4), "gpu": Room(cores=1, gpus=1)}
    given = Room(cores=5, gpus=1)
    kinds = kind_statuses({"cpu-4": 0, "gpu": 1}, {"gpu": 2}, [])
    assert lack_of_room(kinds, each, given) == (
        "the workers that are wanted need 2 GPUs, and 1 was given to workers at the start"
    )
    kinds = kind_statuses({"cpu-4": 1}, {"cpu-64": 1}, [worker("w1")])
    assert lack_of_room(kinds, each, given) == (
        "no worker cpu-64 can run on this machine, which is divided into cpu-4, gpu"
    )


def test_workers_that_the_nodes_have_no_room_for_are_told() -> None:
    [row] = kind_statuses({"cpu-4": 1}, {"cpu-4": 4}, [worker("w1")])
    nodes = [Room(cores=8), Room(cores=7, gpus=1)]
    assert lack_of_nodes(row, Room(cores=4), nodes) == (
        "the nodes that are there have room for at most 3 workers cpu-4; the rest waits for others"
    )
    assert lack_of_nodes(row, Room(cores=4), [*nodes, Room(cores=4)]) == ""
    assert lack_of_nodes(row, Room(cores=1, gpus=1), nodes).startswith(
        "the nodes that are there have room for at most 1 worker cpu-4"
    )
    assert lack_of_nodes(row, Room(cores=4), []).startswith(
        "the nodes that are there have room for no worker cpu-4"
    )


def test_kinds_are_told_apart() -> None:
    workers = [worker("w1", "a"), replace(worker("w2"), device_kind="gpu")]
    kinds = kind_statuses({"cpu-4": 1}, {"gpu": 2, "cpu-8": 1}, workers)
    assert [(k.device_kind, k.wanted, k.running, k.missing, k.source.value) for k in kinds] == [
        ("cpu-4", 1, 1, 0, "settings"),
        ("cpu-8", 1, 0, 1, "stored"),
        ("gpu", 2, 1, 1, "stored"),
    ]
    assert fleet_status(kinds, plan(("w1", "a")), workers).sentence == (
        "0 of 1 worker cpu-8 running, 1 missing; 1 of 2 workers gpu running, 1 missing."
    )


def test_the_number_asked_for_says_where_it_comes_from() -> None:
    own, other, same, given = (
        *kind_statuses({"cpu-2": 2}, {"cpu-2": 1, "gpu": 3}, []),
        *kind_statuses({"cpu-2": 2}, {"cpu-2": 2}, []),
        *kind_statuses({"cpu-2": 2}, {}, []),
    )
    assert asked_words(own) == (
        "1 worker cpu-2 (stored by `modelless workers scale`; MODELLESS_WORKERS says 2)"
    )
    assert asked_words(other) == "3 workers gpu (stored by `modelless workers scale`)"
    assert asked_words(same) == "2 workers cpu-2"
    assert asked_words(given) == "2 workers cpu-2"


@pytest.mark.parametrize(
    ("unmeasured", "words"),
    [
        ({}, ""),
        ({"gpu": 3}, ""),  # of which no worker runs
        ({"cpu-4": 1}, " 1 variant on cpu-4 is yet to be measured and answers from then on."),
        (
            {"cpu-4": 2, "cpu-8": 1, "cpu-9": 0},
            " 2 variants on cpu-4 and 1 variant on cpu-8 are yet to be measured and answer from"
            " then on.",
        ),
    ],
)
def test_what_is_not_measured_yet_is_told(unmeasured: dict[str, int], words: str) -> None:
    workers = [worker("w1", "a"), *(replace(worker(f"w{k}"), device_kind=f"cpu-{k}") for k in "89")]
    kinds = kind_statuses({one.device_kind: 1 for one in workers}, {}, workers)
    made = plan(("w1", "a"), workers=0)
    before = fleet_status(kinds, made, workers).sentence
    assert fleet_status(kinds, made, workers, unmeasured=unmeasured).sentence == before + words
