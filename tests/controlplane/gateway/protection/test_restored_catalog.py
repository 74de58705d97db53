"""A database that goes back: its replica takes over without the newest writes, and gives their
numbers to others."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.gateway.gateway import Gateway
from controlplane.settings import load_settings
from tests.contracts.places import Place, migrated_place
from tests.variants.catalog.copies import fail_over, rows_of
from tests.variants.catalog_builders import plan, registration
from variants.artifacts.store import FileArtifactStore
from variants.catalog.protocol import Catalog


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def somewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with migrated_place(request.param, request, tmp_path) as made:
        yield made


def planned(catalog: Catalog, epoch: int, share: float, second: int) -> None:
    made = plan(epoch, share=share)
    workers = dict.fromkeys(made.workers, second)
    catalog.put_plan(replace(made, created_at=f"2026-01-01T00:00:0{second}Z", workers=workers))


async def test_what_has_the_number_of_a_lost_revision_is_read(
    somewhere: Place, tmp_path: Path
) -> None:
    """Gateways of several machines may not look between the two: they cannot reach it either."""
    settings = load_settings(state_dir=tmp_path / "state", redis_url="")
    store = FileArtifactStore(settings.artifacts_dir)
    known = Gateway(settings, somewhere.open(), store, b"secret").known
    elsewhere = somewhere.open()
    elsewhere.register(registration())
    epoch = elsewhere.acquire_leadership("controller-1")
    lagging = rows_of(somewhere.url)
    elsewhere.register(registration(of="lost"))
    planned(elsewhere, epoch, 0.1, 1)
    before = await known.marks()
    assert await known.refresh_catalog(before)
    await known.refresh_plan(before)
    assert set(known.tasks) == {"digits", "lost"}

    fail_over(somewhere.url, lagging)
    elsewhere.register(registration(of="letters"))
    planned(elsewhere, epoch, 0.2, 2)

    after = await known.marks()
    assert (after.revision, after.plan_version) == (before.revision, before.plan_version)
    assert await known.refresh_catalog(after)
    assert set(known.tasks) == {"digits", "letters"}
    await known.refresh_plan(after)
    assert set(known._planned.values()) == {2}
    assert not await known.refresh_catalog(await known.marks())
