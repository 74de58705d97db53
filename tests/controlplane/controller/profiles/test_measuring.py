"""What is missing is measured where workers run, and gives way."""

import asyncio
from pathlib import Path

from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.places import CALM, PATIENCE_S, PAUSE
from controlplane.profiling.due.profiles import ASKED_FOR
from planner.types import Demand
from tests.controlplane.controller.profiles.nodes_to_measure import (
    HEAD,
    NODE,
    Cluster,
    House,
    hanging,
    measured_there,
    status,
)
from tests.controlplane.fleet import eventually
from variants.types import ModelName, Profile, Stage, VariantName


async def test_what_is_missing_is_measured_where_workers_run_one_at_a_time(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1", "cpu-1-b": "n-1"}), tmp_path, "one", "two")

    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]
    assert await house.look() == []
    kept = house.catalog.snapshot()
    assert {p.measured_on for p in kept.profiles} == {"a node (10.0.0.3)"}
    assert [one.memory_mib for one in kept.device_kinds] == [100.0]
    assert house.cluster.looks == 1
    assert [(event.kind, event.subject) for event in await house.events()] == [
        ("profile_measured", "digits/two-v1-onnx-fp32"),
        ("profile_measured", "digits/one-v1-onnx-fp32"),
    ]


async def test_queries_that_nothing_measured_answers_do_not_wait_for_calm(tmp_path: Path) -> None:
    """Neither do those of a task of which something was measured, but nothing so quick."""
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "three", "two")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    house.workers = {"cpu-1-a": status(0.9)}
    task = house.catalog.snapshot().tasks[0].name
    house.demand = (Demand(task=task, latency_ms=500.0, accuracy=None, qps=5.0),)
    assert await house.look() == []

    house.demand += (Demand(task=task, latency_ms=0.5, accuracy=None, qps=5.0),)
    assert await house.look() == [("three-v1-onnx-fp32", "n-1")]
    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]  # three was no quicker


async def test_what_was_removed_since_it_was_found_is_not_measured(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "three", "two")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    task, model = house.catalog.snapshot().tasks[0].name, ModelName("three")
    house.catalog.set_stage([task], model, 1, Stage.RETIRED)
    house.catalog.remove_version([task], model, 1)

    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]
    assert {event.kind for event in await house.events()} == {"profile_measured"}


async def test_nodes_measure_beside_each_other(tmp_path: Path) -> None:
    cluster = hanging({"cpu-1-a": "n-1", "cpu-1-b": "n-2"})
    house = House(cluster, tmp_path, "one", "two", "three")

    assert sorted(node for _, node in await house.look()) == ["n-1", "n-2"]
    assert await house.look() == []
    await house.measuring.close()


async def test_what_is_measured_gives_way_to_what_hurries_and_goes_on_after_it(
    tmp_path: Path,
) -> None:
    """Queries of a class waited for up to half a minute until something else was measured."""
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two", "three", host=HEAD)
    ends = {name: asyncio.Event() for name in ("one", "two", "three")}

    async def answer(order: MeasuringOrder) -> Profile:
        house.cluster.hanging += 1
        try:
            await ends[str(order.due.variant.model)].wait()
        finally:
            house.cluster.hanging -= 1
        return await measured_there(order)

    house.cluster.answer = answer
    assert [name for name, _ in await house.look()] == ["one-v1-onnx-fp32"]
    assert await house.look() == []
    names = [variant.name for variant in house.catalog.snapshot().variants]
    house.request(
        ASKED_FOR, "2026-01-01T00:00:00+00:00", names.index(VariantName("two-v1-onnx-fp32"))
    )

    assert await house.look() == [("two-v1-onnx-fp32", "n-1")]
    assert house.cluster.given_way == [("one-v1-onnx-fp32", True)]
    assert await house.look() == []
    ends["two"].set()
    await eventually(lambda: len(house.cluster.given_way) > 1)
    assert house.cluster.given_way[1:] == [("one-v1-onnx-fp32", False)]
    assert await house.look() == []
    ends["one"].set()
    ends["three"].set()
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
    assert await house.look() == [("three-v1-onnx-fp32", "n-1")]
    assert len([e for e in await house.events() if e.kind == "profile_measured"]) == 3


async def test_of_two_that_hurry_alike_none_gives_way(tmp_path: Path) -> None:
    house = House(hanging({"cpu-1-a": "n-1"}), tmp_path, "one", "two", host=HEAD)
    for place in (0, 1):
        house.request(ASKED_FOR, "2026-01-01T00:00:00+00:00", place)
    assert len(await house.look()) == 1
    assert await house.look() == []
    assert house.cluster.given_way == []
    await house.measuring.close()


async def test_a_profile_of_another_machine_waits_for_a_calm_node(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1", "cpu-1-b": "n-2"}), tmp_path, "one", host=HEAD)
    house.workers = {"cpu-1-a": status(0.9), "cpu-1-b": status(0.7)}

    assert await house.look() == []
    assert await house.look(PATIENCE_S + 1) == [("one-v1-onnx-fp32", "n-2")]
    assert await house.look() == []


async def test_only_what_a_task_cannot_be_answered_without_is_measured_on_a_busy_node(
    tmp_path: Path,
) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two", "three")
    house.workers = {"cpu-1-a": status(0.9)}

    async def taking_30_s(order: MeasuringOrder) -> Profile:
        house.now_s += 30.0
        return await measured_there(order)

    house.cluster.answer = taking_30_s
    [first] = await house.look()
    assert first == ("one-v1-onnx-fp32", "n-1")
    assert await house.look() == []  # the task can be answered
    [_] = await house.look(PATIENCE_S + 1)
    assert await house.look(PAUSE * 30.0 - 10.0) == []
    [_] = await house.look(10.0)


async def test_an_operator_does_not_wait_for_calm(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)
    house.workers = {"cpu-1-a": status(0.9)}

    house.request("its latency is doubted", at="2026-11-20T08:00:00Z")
    assert await house.look() == []
    house.request(f"{ASKED_FOR}8 o'clock", at="2026-11-20T09:00:00Z")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]


async def test_a_calm_node_needs_no_pauses(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", "two", "three")
    house.workers = {"cpu-1-a": status(CALM / 2)}

    assert [len(await house.look()) for _ in range(4)] == [1, 1, 1, 0]


async def test_a_profile_that_a_machine_of_the_kind_gave_is_true(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)

    assert await house.look() == []
