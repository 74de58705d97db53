"""Device kinds that joined since the start, as a gateway knows them."""

from pathlib import Path

from controlplane.gateway.gateway import Gateway
from controlplane.settings import load_settings
from tests.controlplane.builders import digits_catalog
from variants.artifacts.store import FileArtifactStore
from variants.types import DeviceKindName, Plan

CPU_2, CPU_8 = DeviceKindName("cpu-2"), DeviceKindName("cpu-8")


async def test_they_are_wanted_while_nobody_can_say_them(tmp_path: Path) -> None:
    settings = load_settings(
        state_dir=tmp_path, ray_address="auto", redis_url="", slices="cpu-2:source=found"
    )
    store = FileArtifactStore(settings.artifacts_dir)
    known = Gateway(settings, digits_catalog(), store, b"secret").known
    both = "cpu-2:source=found,cpu-8:source=found"

    async def wanted(seen: dict[str, str] | None) -> set[DeviceKindName]:
        known.refresh_wanted((await known.marks()).inventory, seen)
        return set(known.meeting.wanted(()).kinds())

    assert await wanted(None) == {CPU_2}
    assert await wanted({"slices": both}) == {CPU_2, CPU_8}
    assert await wanted(None) == {CPU_2, CPU_8}


async def test_of_layouts_only_that_of_the_plan_is_wanted(tmp_path: Path) -> None:
    """A kind of another layout may never come: nobody is told to wait for it."""
    cpu_1 = DeviceKindName("cpu-1")
    settings = load_settings(state_dir=tmp_path, redis_url="", slices="1xcpu-2|2xcpu-1")
    catalog = digits_catalog()
    known = Gateway(settings, catalog, FileArtifactStore(settings.artifacts_dir), b"secret").known

    async def wanted() -> set[DeviceKindName]:
        marks = await known.marks()
        await known.refresh_plan(marks)
        known.refresh_wanted(marks.inventory, None)
        return set(known.meeting.wanted(()).kinds())

    assert await wanted() == {CPU_2}
    epoch = catalog.acquire_leadership("one")
    catalog.put_plan(Plan(version=0, epoch=epoch, placements=(), workers={cpu_1: 2}))
    assert await wanted() == {cpu_1}
    catalog.set_inventory(cpu_1, 0)
    assert await wanted() == set()


async def test_demand_is_counted_for_each_kind_that_may_come(tmp_path: Path) -> None:
    """Of another layout, or of an elastic fleet that has none now: queries have them come."""
    cpu_1 = DeviceKindName("cpu-1")
    for slices, coming in (
        ("1xcpu-2|2xcpu-1", {cpu_1, CPU_2}),
        ("0-2xcpu-1,1xcpu-2", {cpu_1, CPU_2}),
        ("2xcpu-1", {cpu_1}),
    ):
        settings = load_settings(state_dir=tmp_path, redis_url="", slices=slices)
        store = FileArtifactStore(settings.artifacts_dir)
        gateway = Gateway(settings, digits_catalog(), store, b"secret")
        gateway.known.refresh_wanted({}, None)
        assert gateway.path.demand.coming == coming
        gateway.known.refresh_wanted({cpu_1: 0}, None)
        assert gateway.path.demand.coming == coming - {cpu_1}
