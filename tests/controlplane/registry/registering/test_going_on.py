"""Registering again goes on from what was built and measured; what is killed leaves a note."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.building import known_builds
from controlplane.building.build_cache import BuildCache
from controlplane.building.types import (
    Progress,
    RegistrationRequest,
    RegistrationResult,
    Thoroughness,
)
from controlplane.registry.extension import extend
from controlplane.registry.registration import register
from profiler.sandbox.probe import Probe
from tests import onnx_models as models
from tests.controlplane.registry.house import CPU, QUICK, BrokenCatalog, House
from variants.artifacts.storing_notes import StoringNotes
from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable
from variants.types import CatalogSnapshot, Digest, Registration, TaskName

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

FIRST, INT8 = "tiny-v1-onnx-fp32", "tiny-v1-onnx-int8"


def trying(house: House, *, reads: bool = True, **changes: Any) -> RegistrationResult:
    """Register with the build cache."""
    given: dict[str, Any] = {
        "path": house.model, "task": "shapes", "evaluation": house.rows, "kinds": ("onnx-int8",),
    } | changes  # fmt: skip
    house.told.clear()
    return register(
        RegistrationRequest(**given),
        house.catalog,
        house.store,
        (CPU,),
        house.told.append,
        limits=QUICK,
        scratch=house.scratch,
        cache=BuildCache(house.folder / "build-cache", 64 * 2**20, reads=reads),
    )


def begun(house: House, step: str) -> list[str]:
    return [one.message for one in house.told if one.step == step]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Everything was built and measured, and then the catalog was away."""
    house = House(
        tmp_path_factory.mktemp("first"), BrokenCatalog(takes=0, error=StateUnavailable("away"))
    )
    with pytest.raises(StateUnavailable):
        trying(house)
    assert list(house.store.digests()) == []
    return house


@pytest.fixture
def house(first: House, tmp_path: Path) -> House:
    """One that has the build cache of that."""
    made = House(tmp_path)
    source = first.folder / "build-cache"
    (tmp_path / "build-cache").mkdir()
    for path in source.iterdir():
        (tmp_path / "build-cache" / path.name).write_bytes(path.read_bytes())
    return made


def test_a_second_try_builds_and_measures_nothing(house: House) -> None:
    result = trying(house)
    assert result.reused.built == (FIRST, INT8)
    assert set(result.reused.measured) >= {FIRST, INT8}
    folder = house.folder / "build-cache"
    assert begun(house, "build") == [
        f"{name} was built before, taken from {folder}" for name in (FIRST, INT8)
    ]
    assert begun(house, "measure") == [
        *(f"{name} was judged before, taken from {folder}" for name in (FIRST, INT8)),
        *(f"{name} was measured before, taken from {folder}" for name in (FIRST, INT8)),
    ]
    for variant in result.variants:
        house.store.check(variant.artifact)
    assert list(house.scratch.iterdir()) == []


def test_what_is_taken_is_what_was_measured(house: House) -> None:
    taken = trying(house)
    house.catalog.remove_task(TaskName("shapes"))
    again = trying(house)
    assert [(v.accuracy, v.accuracy_rows, v.agreement) for v in taken.variants] == [
        (v.accuracy, v.accuracy_rows, v.agreement) for v in again.variants
    ]
    assert taken.variants[0].accuracy == 1.0
    assert [p.points for p in taken.profiles] == [p.points for p in again.profiles]
    assert all(point.p50_ms > 0 for profile in taken.profiles for point in profile.points)


def test_what_could_not_be_run_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was, with all the time that a trial may take."""
    house = House(tmp_path)
    models.write(house.model, models.greedy(125))
    said = [trying(house, kinds=()).variants[0].note]
    house.catalog.remove_task(TaskName("shapes"))
    monkeypatch.setattr(Probe, "__enter__", lambda _: pytest.fail("something is measured"))
    again = trying(house, kinds=())
    assert "rows at once and more take more memory than there is: left out" in said[0]
    assert [again.variants[0].note] == said


def test_whoever_wants_it_anew_gets_it_anew(house: House) -> None:
    result = trying(house, reads=False)
    assert (result.reused.built, result.reused.measured) == ((), ())
    assert begun(house, "build") == [f"building {FIRST}", f"building {INT8}"]


def other_rows(house: House) -> dict[str, Any]:
    return {"evaluation": models.write_rows(house.folder / "other.npz", **models.rows(40, seed=9))}


def other_model(house: House) -> dict[str, Any]:
    models.write(house.model, models.model(weights={"weight": models.WEIGHT * 2}))
    return {}


@pytest.mark.parametrize("change", [other_rows, other_model])
def test_other_rows_and_other_models_are_no_match(
    house: House, change: Callable[[House], dict[str, Any]]
) -> None:
    result = trying(house, **change(house))
    assert INT8 not in result.reused.built
    assert result.reused.measured == ()


def test_the_same_model_by_another_name_for_another_task_is(house: House) -> None:
    result = trying(house, task="forms", model="small")
    assert result.reused.built == ("small-v1-onnx-fp32", "small-v1-onnx-int8")
    assert {profile.task for profile in result.profiles} == {"forms"}
    assert {profile.variant for profile in result.profiles} == {v.name for v in result.variants}


def test_another_version_of_a_library_is_no_match(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_builds, "building_tools", lambda kind, **_: "other tools")
    assert trying(house).reused.built == ()


def test_what_is_damaged_in_the_cache_is_done_again(house: House) -> None:
    for path in (house.folder / "build-cache").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    result = trying(house)
    assert (result.reused.built, result.reused.measured) == ((), ())
    assert [variant.name for variant in result.variants][:1] == [FIRST]


def test_an_interrupt_keeps_what_was_done_until_then(tmp_path: Path) -> None:
    house = House(tmp_path)

    def interrupt(one: Progress) -> None:
        if one.message.startswith(f"judging {INT8}"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        register(
            RegistrationRequest(
                path=house.model, task="shapes", evaluation=house.rows, kinds=("onnx-int8",)
            ),
            house.catalog, house.store, (CPU,), interrupt,
            limits=QUICK, scratch=house.scratch,
            cache=BuildCache(tmp_path / "build-cache", 64 * 2**20),
        )  # fmt: skip
    house.assert_untouched()
    result = trying(house)
    assert result.reused.built == (FIRST, INT8)
    assert f"judging {INT8} on cpu-1" in begun(house, "measure")
    assert any(f"{FIRST} was judged before" in said for said in begun(house, "measure"))


def test_a_sampled_family_goes_on_as_well(tmp_path: Path) -> None:
    house = House(tmp_path, BrokenCatalog(takes=0, error=StateUnavailable("away")))
    with pytest.raises(StateUnavailable):
        trying(house, measure=Thoroughness.SAMPLED)
    house.catalog = MemoryCatalog()
    result = trying(house, measure=Thoroughness.SAMPLED)
    assert set(result.reused.measured) == {variant.name for variant in result.variants}
    assert all(
        "as it was timed before" in one.message
        for one in house.told
        if one.message.startswith("sampling")
    )


def test_what_could_not_be_built_is_not_tried_at_once_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    nothing = models.model(
        nodes=[models.node("Slice", ("pixels", "from", "to", "axis"), "scores")],
        weights={name: np.array([value]) for name, value in (("from", 0), ("to", 3), ("axis", 1))},
    )
    models.write(house.model, nothing)
    reasons = []
    for task in ("shapes", "forms"):
        (skipped,) = trying(house, task=task).skipped
        reasons.append(skipped.reason)
    nothing_there = "the model has nothing that can be quantised"
    again = " (so it was within the last hour; --fresh tries again)"
    assert reasons == [nothing_there, nothing_there + again]
    assert f"{INT8} is not tried again, as it failed within the last hour" in begun(house, "build")


def test_kinds_that_are_added_later_are_kept_as_well(house: House) -> None:
    """The model itself, which they are compared with, was judged before."""
    house.register(kinds=())
    told: list[Progress] = []
    result = extend(
        RegistrationRequest(
            path=Path(), task="shapes", evaluation=house.rows, kinds=("onnx-int8",)
        ),
        "tiny", None, house.catalog, house.store, (CPU,), told.append,
        limits=QUICK, scratch=house.scratch,
        cache=BuildCache(house.folder / "build-cache", 64 * 2**20),
    )  # fmt: skip
    assert result.reused.built == (INT8,)
    assert INT8 in result.reused.measured


# -- artifacts that nothing registered uses -------------------------------------------------------


class Meeting(MemoryCatalog):
    """When one registration has failed here, another one of the same bytes is written: as late as
    it can be, between what the first reads and what it does about it."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = True
        self.meets: Callable[[], None] = lambda: None

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        if self.fails and registrations[0].task.name == "shapes":
            self.fails = False
            raise StateUnavailable("the disk is full")
        super().register(*registrations, joins=joins)

    def snapshot(self) -> CatalogSnapshot:
        found = super().snapshot()
        if not self.fails:
            meets, self.meets = self.meets, lambda: None
            meets()
        return found

    def discard(self, digests: Any, delete: Callable[[Digest], None]) -> tuple[Digest, ...]:
        meets, self.meets = self.meets, lambda: None
        meets()
        return super().discard(digests, delete)


def test_a_failure_takes_nothing_from_one_that_registers_the_same_meanwhile(
    house: House,
) -> None:
    catalog = house.catalog = Meeting()

    def meets() -> None:
        assert trying(house, task="twins").variants

    catalog.meets = meets
    with pytest.raises(StateUnavailable, match="the disk is full"):
        trying(house)
    named = {v.artifact for v in catalog.snapshot().variants}
    assert named
    assert named <= set(house.store.digests())


class Killed(BaseException):
    """In place of SIGKILL: nothing is cleaned up."""


def test_what_a_killed_registration_has_stored_is_noted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = StoringNotes(house.store.root, url="", name=house.folder / "catalog.id")

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(MemoryCatalog, "register", killed)
    monkeypatch.setattr(MemoryCatalog, "discard", killed)
    request = RegistrationRequest(
        path=house.model, task="shapes", evaluation=house.rows, kinds=("onnx-int8",)
    )
    with pytest.raises(Killed):
        register(
            request, house.catalog, house.store, (CPU,), limits=QUICK, scratch=house.scratch,
            cache=BuildCache(house.folder / "build-cache", 64 * 2**20), notes=notes,
        )  # fmt: skip
    stored = set(house.store.digests())
    assert len(stored) == 3
    with notes.abandoned(0.0) as found:
        assert [note.digests for note in found] == [stored]


class Full(StoringNotes):
    """On a disk that is full."""

    def ensure_room(self, size_bytes: int) -> None:
        assert size_bytes > 0
        raise StateUnavailable("no room")


def test_a_full_disk_is_told_before_anything_is_built(house: House) -> None:
    """It was told after all had been built and measured, and none of that could be kept."""
    notes = Full(house.store.root, url="", name=house.folder / "catalog.id")
    request = RegistrationRequest(path=house.model, task="shapes", evaluation=house.rows)
    with pytest.raises(StateUnavailable, match="no room"):
        register(
            request, house.catalog, house.store, (CPU,), house.told.append, limits=QUICK,
            scratch=house.scratch, notes=notes,
        )  # fmt: skip
    assert {one.step for one in house.told} <= {"check"}


def test_a_registration_that_ends_leaves_no_note(house: House) -> None:
    notes = StoringNotes(house.store.root, url="", name=house.folder / "catalog.id")
    request = RegistrationRequest(
        path=house.model, task="shapes", evaluation=house.rows, kinds=("onnx-int8",)
    )
    broken = BrokenCatalog(takes=0, error=StateUnavailable("away"))
    for catalog in (broken, house.catalog):
        try:
            register(
                request, catalog, house.store, (CPU,), limits=QUICK, scratch=house.scratch,
                cache=BuildCache(house.folder / "build-cache", 64 * 2**20), notes=notes,
            )  # fmt: skip
        except StateUnavailable:
            assert catalog is broken
        with notes.abandoned(0.0) as found:
            assert found == []
