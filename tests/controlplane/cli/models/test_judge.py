"""``modelless variants judge``: what it writes, and what it says."""

from pathlib import Path

import pytest

from tests.controlplane.cli.shell import Shell
from tests.controlplane.profiling.test_judging import wrong
from tests.controlplane.registry.house import House
from tests.variants.catalog.copies import copy_registrations
from variants.catalog.sql import open_catalog
from variants.types import CatalogSnapshot

pytestmark = pytest.mark.slow


def test_the_command_writes_what_it_found_unless_it_is_a_dry_run(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "house").mkdir()
    house = House(tmp_path / "house")
    house.register()
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("MODELLESS_CORES", "1")
    (tmp_path / "artifacts").symlink_to(house.folder / "store")
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    copy_registrations(house.catalog.snapshot(), catalog)
    before = catalog.snapshot()
    rows = str(wrong(house, tmp_path, 10))
    asked = ("variants", "judge", "shapes", "--eval", rows, "--progress", "none")

    dry = shell(*asked, "--dry-run", "-o", "json").json()
    assert dry["written"] is False
    assert catalog.snapshot() == before

    assert shell(*asked, "tiny", "1").code == 0
    after = catalog.snapshot()
    said = {row["variant"]: row["accuracy"] for row in dry["variants"]}
    assert {one.name: one.accuracy for one in after.variants} == said
    assert accuracies(after) != accuracies(before)
    assert after.profiles == before.profiles
    (event,) = catalog.events(1)
    assert (event.kind, event.subject) == ("judged", "shapes")
    assert "the best accuracy was" in event.message
    none = shell(*asked, "tiny", "7")
    assert "model 'tiny' of task 'shapes' has no version 7" in none.err
    unknown = shell(*asked, "huge")
    assert "task 'shapes' has no model 'huge'; there are: tiny" in unknown.err
    catalog.close()


def accuracies(catalog: CatalogSnapshot) -> list[float]:
    return [one.accuracy for one in catalog.variants]
