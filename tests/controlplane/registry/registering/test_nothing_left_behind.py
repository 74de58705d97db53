"""A registration that ends early, or beside a removal: whole or absent."""

from pathlib import Path

import pytest

from controlplane.building.types import Progress
from tests import onnx_models as models
from tests.controlplane.registry.house import BrokenCatalog, House
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.errors import Conflict, StateUnavailable
from variants.types import Registration, TaskName

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


def test_what_the_catalog_names_is_in_the_store_and_nothing_else_is(first: House) -> None:
    snapshot = first.catalog.snapshot()
    named = {v.artifact for v in snapshot.variants} | {v.source for v in snapshot.versions}
    assert set(first.store.digests()) == named
    assert [first.store.path(v.artifact).stat().st_size for v in snapshot.variants] == [
        v.size_bytes for v in snapshot.variants
    ]
    assert list(first.scratch.iterdir()) == []
    first.assert_nothing_runs()


@pytest.mark.parametrize(
    "error",
    [
        StateUnavailable("the disk is full"),
        pytest.param(KeyboardInterrupt(), marks=pytest.mark.campaign),
    ],
)
def test_a_catalog_that_fails_leaves_nothing_behind(tmp_path: Path, error: BaseException) -> None:
    house = House(tmp_path, BrokenCatalog(takes=0, error=error))
    with pytest.raises(type(error)):
        house.register()
    house.assert_untouched()


class FreeingCatalog(MemoryCatalog):
    """Just before it takes a registration, what used the same bytes has gone, and they with it."""

    store: FileArtifactStore

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        for variant in (one for registration in registrations for one in registration.variants):
            self.store.delete(variant.artifact)
        super().register(*registrations, joins=joins)


def test_what_is_freed_while_it_is_registered_again_is_stored_again(tmp_path: Path) -> None:
    catalog = FreeingCatalog()
    house = House(tmp_path, catalog)
    catalog.store = house.store
    result = house.register()
    named = {result.versions[0].source, *(v.artifact for v in result.variants)}
    assert set(house.store.digests()) == named


def test_a_task_that_is_removed_meanwhile_does_not_come_back(known: House) -> None:
    """It would have a canary alone, and nothing else of what it had."""

    def remove(one: Progress) -> None:
        if one.step == "store" and known.catalog.snapshot().tasks:
            known.catalog.remove_task(TaskName("shapes"))

    other = models.write(known.folder / "b.onnx", models.model(weights={"weight": models.WEIGHT}))
    with pytest.raises(Conflict, match="task 'shapes' was removed while 'b-v1' was prepared"):
        known.register(path=other, progress=remove)
    assert known.catalog.snapshot().tasks == ()


def test_a_failure_keeps_artifacts_that_somebody_uses(tmp_path: Path) -> None:
    house = House(tmp_path, BrokenCatalog(takes=1, error=StateUnavailable("gone")))
    house.register(kinds=())
    before = sorted(house.store.digests())
    with pytest.raises(StateUnavailable):
        house.register(task="twins", kinds=())  # the same bytes for another task
    assert sorted(house.store.digests()) == before


@pytest.mark.parametrize(
    "step",
    [
        "check",
        pytest.param("build", marks=pytest.mark.campaign),
        pytest.param("measure", marks=pytest.mark.campaign),
        "store",
    ],
)
def test_an_interrupt_at_any_step_leaves_nothing_behind(house: House, step: str) -> None:
    def interrupt(one: Progress) -> None:
        if one.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        house.register(progress=interrupt)
    house.assert_untouched()
