"""Inventory and plans, in every catalog."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.variants.catalog_builders import plan, registration, route
from variants.catalog import protocol
from variants.catalog.protocol import Catalog, Marks
from variants.catalog.sql import open_catalog
from variants.errors import InvalidInput, NotFound, StaleEpoch
from variants.types import AcceptedAnswers, DeviceKindName, QuarantineLift, VariantName


def test_the_inventory_is_what_was_asked_for_last(catalog: Catalog) -> None:
    before = catalog.revision()
    assert catalog.inventory() == {}
    catalog.set_inventory(DeviceKindName("cpu-2"), 2)
    catalog.set_inventory(DeviceKindName("cpu-1"), 0)
    catalog.set_inventory(DeviceKindName("cpu-2"), 1)
    assert catalog.inventory() == {"cpu-1": 0, "cpu-2": 1}
    assert catalog.revision() == before


def test_the_marks_are_revision_plan_and_inventory(catalog: Catalog) -> None:
    assert catalog.marks() == Marks(revision=0, plan_version=0, inventory={})
    catalog.register(registration())
    catalog.put_plan(plan(catalog.acquire_leadership("controller-1")))
    catalog.set_inventory(DeviceKindName("cpu-2"), 2)
    assert catalog.marks() == Marks(
        revision=1, plan_version=1, inventory={DeviceKindName("cpu-2"): 2}
    )
    assert catalog.marks().inventory == catalog.inventory()


def test_the_latest_lift_of_a_quarantine_counts(catalog: Catalog) -> None:
    made = registration()
    catalog.register(made)
    before, (variant, *_) = catalog.revision(), made.variants

    def lift(at_s: float) -> QuarantineLift:
        return QuarantineLift(task=variant.task, variant=variant.name, at_s=at_s)

    assert catalog.quarantine_lifts() == ()
    for at_s in (5.0, 7.5, 6.0):
        catalog.lift_quarantine(lift(at_s))
    assert catalog.quarantine_lifts() == (lift(7.5),)
    for at_s in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidInput):
            catalog.lift_quarantine(lift(at_s))
    with pytest.raises(NotFound):
        catalog.lift_quarantine(replace(lift(8.0), variant=VariantName("none")))
    assert (catalog.quarantine_lifts(), catalog.revision()) == ((lift(7.5),), before)


def test_the_last_word_on_answers_of_a_variant_counts(catalog: Catalog) -> None:
    made = registration()
    catalog.register(made)
    before, (variant, *_) = catalog.revision(), made.variants

    def word(since_s: float, at_s: float, why: str = "sale") -> AcceptedAnswers:
        return AcceptedAnswers(
            task=variant.task, variant=variant.name, since_s=since_s, at_s=at_s, by="ann", why=why
        )

    assert catalog.accepted_answers() == ()
    for since_s, at_s in ((1764547200.1234567, 7.5), (5.0, 7.5), (2.0, 1.0)):
        catalog.accept_answers(word(since_s, at_s))
        assert catalog.accepted_answers() == (word(since_s, at_s),)
    for since_s, at_s, why in ((-1.0, 1.0, ""), (1.0, float("nan"), ""), (1.0, 1.0, "x" * 201)):
        with pytest.raises(InvalidInput):
            catalog.accept_answers(word(since_s, at_s, why))
    with pytest.raises(NotFound):
        catalog.accept_answers(replace(word(3.0, 8.0), variant=VariantName("none")))
    assert (catalog.accepted_answers(), catalog.revision()) == ((word(2.0, 1.0),), before)


def test_of_large_plans_fewer_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest is planned by; of hundreds of tasks each takes some 100 KiB."""
    monkeypatch.setattr(protocol, "LEAST_KEPT", 2)
    monkeypatch.setattr(protocol, "PLAN_PARTS_KEPT", 12)
    with closing(open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}")) as catalog:
        catalog.register(registration())
        epoch = catalog.acquire_leadership("controller-1")

        def versions(routes: int) -> list[int]:
            made = replace(plan(epoch), routes=(route(100.0),) * routes)
            catalog.put_plan(replace(made, placements=()))
            with closing(sqlite3.connect(tmp_path / "catalog.db")) as file:
                return [
                    one for (one,) in file.execute("SELECT version FROM plans ORDER BY version")
                ]

        assert [versions(routes=3) for _ in range(6)][-1] == [3, 4, 5, 6]
        assert versions(routes=12) == [6, 7]
        assert versions(routes=0) == [6, 7, 8]


@pytest.mark.parametrize(("name", "count"), [("cpu-1", -1), ("cpu-1", 10_001), ("CPU 1", 1)])
def test_an_inventory_that_cannot_be_is_refused(catalog: Catalog, name: str, count: int) -> None:
    with pytest.raises(InvalidInput):
        catalog.set_inventory(DeviceKindName(name), count)
    assert catalog.inventory() == {}


def test_plans_get_versions_that_grow(catalog: Catalog) -> None:
    epoch = catalog.acquire_leadership("controller-1")
    assert epoch == 1
    assert catalog.put_plan(plan(epoch, share=0.1)) == plan(epoch, share=0.1, number=1)
    assert catalog.put_plan(plan(epoch, share=0.2)) == plan(epoch, share=0.2, number=2)
    assert catalog.latest_plan() == plan(epoch, share=0.2, number=2)
    assert catalog.marks().plan_version == 2


def test_plans_keep_their_routes(catalog: Catalog) -> None:
    epoch = catalog.acquire_leadership("controller-1")
    routes = (route(100.0, slo_ms=180.0), route(200.0))
    catalog.put_plan(replace(plan(epoch), routes=routes))
    assert catalog.latest_plan() == replace(plan(epoch, number=1), routes=routes)


def test_an_older_leader_cannot_plan(catalog: Catalog) -> None:
    old = catalog.acquire_leadership("controller-1")
    catalog.put_plan(plan(old))
    new = catalog.acquire_leadership("controller-2")
    with pytest.raises(StaleEpoch):
        catalog.put_plan(plan(old, share=0.9))
    assert catalog.latest_plan() == plan(old, number=1)
    assert catalog.put_plan(plan(new)).version == 2


@pytest.mark.parametrize("epoch", [0, 2])
def test_nobody_plans_under_an_epoch_that_was_not_given_out(catalog: Catalog, epoch: int) -> None:
    if epoch:
        catalog.acquire_leadership("controller-1")
    with pytest.raises(StaleEpoch):
        catalog.put_plan(plan(epoch))
    assert catalog.latest_plan() is None


def test_a_plan_does_not_advance_the_revision(catalog: Catalog) -> None:
    catalog.put_plan(plan(catalog.acquire_leadership("controller-1")))
    assert catalog.revision() == 0
