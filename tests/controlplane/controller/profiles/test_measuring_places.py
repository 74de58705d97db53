"""Where a kind is measured: on one machine, on a slice of its own, and anew when it is calm."""

from dataclasses import replace
from pathlib import Path

from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.places import PATIENCE_S
from controlplane.profiling.due.setbacks import DISTURBED_REST_S
from tests.controlplane.controller.profiles.nodes_to_measure import (
    CPU_2,
    NODE,
    Cluster,
    House,
    hanging,
    measured_there,
    status,
)
from tests.variants.catalog_builders import CPU
from variants.errors import DeadlineExceeded
from variants.types import Profile


async def test_a_kind_without_room_holds_up_no_other(tmp_path: Path) -> None:
    """A try takes five minutes, and only one slice of its own is looked for at a time."""
    slices = "0-1xcpu-1,0-1xcpu-2"
    house = House(Cluster({}), tmp_path, "one", "two", "three", slices=slices)
    house.running = {CPU: 0, CPU_2: 0}

    async def no_room(order: MeasuringOrder) -> Profile:
        if order.due.kind.name == CPU:
            house.now_s += 300.0
            raise DeadlineExceeded(f"no room for {order.due.variant.name}")
        return await measured_there(order)

    house.cluster.beginning = no_room
    for _ in range(4):
        assert len(await house.look()) == 1
    measured = {(one.variant, one.device_kind) for one in house.catalog.snapshot().profiles}
    names = ("one-v1-onnx-fp32", "two-v1-onnx-fp32", "three-v1-onnx-fp32")
    assert measured == {(name, "cpu-2") for name in names}
    assert await house.look() == []
    assert len(await house.look(300.0)) == 1
    assert [event.kind for event in await house.events()].count("measuring_failed") == 1


async def test_one_machine_leaves_to_checks_what_was_measured_beside_other_work(
    tmp_path: Path,
) -> None:
    cluster = Cluster({"cpu-1-a": "n-1"}, one_machine=True)
    house = House(cluster, tmp_path, "one", host=NODE)
    disturbed = replace(house.catalog.snapshot().profiles[0], beside_load=True)
    house.catalog.put_profiles((disturbed,))

    assert await house.look() == []
    house.request("3 lone batches took 0.1 ms each, its profile says 1 ms", "noon")
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]


async def test_one_machine_measures_all_its_kinds_where_any_worker_runs(tmp_path: Path) -> None:
    """One after the other without a pause, and nothing on a GPU."""
    cluster = Cluster({"cpu-1-a": "n-1"}, one_machine=True)
    house = House(cluster, tmp_path, "one", "two", slices="0-1xcpu-1,0-1xcpu-2")
    house.running = {CPU: 1, CPU_2: 0}

    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    assert await house.look(0.0) == [("one-v1-onnx-fp32", "n-1")]
    assert await house.look(0.0) == [("two-v1-onnx-fp32", "n-1")]
    assert await house.look(0.0) == [("two-v1-onnx-fp32", "n-1")]
    measured = {(one.variant, one.device_kind) for one in house.catalog.snapshot().profiles}
    assert {kind for _, kind in measured} == {CPU, CPU_2}
    assert len(measured) == 4


async def test_a_disturbed_measurement_is_repeated_when_it_is_calm(tmp_path: Path) -> None:
    house = House(Cluster({"cpu-1-a": "n-1"}), tmp_path, "one", host=NODE)
    disturbed = replace(house.catalog.snapshot().profiles[0], beside_load=True)
    house.catalog.put_profiles((disturbed,))
    house.workers = {"cpu-1-a": status(0.9)}

    assert await house.look() == []
    assert await house.look(2 * PATIENCE_S) == []
    house.workers = {"cpu-1-a": status(0.1)}

    async def disturbed_again(order: MeasuringOrder) -> Profile:
        return replace(await measured_there(order), beside_load=True)

    house.cluster.answer = disturbed_again
    assert len(await house.look()) == 1
    assert await house.look(DISTURBED_REST_S / 2) == []
    house.cluster.answer = measured_there
    assert len(await house.look(DISTURBED_REST_S)) == 1
    assert not house.catalog.snapshot().profiles[0].beside_load


async def test_a_kind_without_workers_is_measured_on_a_slice_until_they_are_wanted(
    tmp_path: Path,
) -> None:
    house = House(hanging({}), tmp_path, "one", "two")
    house.running = {CPU: 0}

    assert await house.look() == [("one-v1-onnx-fp32", "")]
    assert await house.look() == []
    house.running = {CPU: 1}
    assert await house.look() == []
    house.cluster.placed = {"cpu-1-a": "n-1"}
    house.workers = {"cpu-1-a": status(0.0)}
    assert await house.look() == [("one-v1-onnx-fp32", "n-1")]
    await house.measuring.close()
