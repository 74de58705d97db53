"""Registrations, in every catalog: whole or not at all."""

from dataclasses import replace

import pytest

from tests.contracts.catalog.known import DIGITS, MLP
from tests.variants.catalog_builders import kind, profile, registration, task, variant
from variants.catalog.protocol import Catalog
from variants.errors import Conflict, InvalidInput
from variants.types import CatalogSnapshot, ModelName, Registration, Slo, TaskName, TensorSpec


def test_versions_and_tasks_add_up(catalog: Catalog) -> None:
    assert catalog.next_version(DIGITS, MLP) == 1
    catalog.register(registration(number=1))
    catalog.register(registration(number=2))
    catalog.register(registration("cnn", 7))
    catalog.register(registration(of="letters"))
    assert catalog.revision() == 4
    assert catalog.next_version(DIGITS, MLP) == 3
    assert catalog.next_version(DIGITS, ModelName("cnn")) == 8
    assert catalog.next_version(TaskName("letters"), MLP) == 2
    assert [t.name for t in catalog.snapshot().tasks] == ["digits", "letters"]


def test_registering_nothing_changes_nothing(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    catalog.register()
    assert catalog.snapshot() == before
    assert catalog.revision() == 1


def test_a_device_kind_is_replaced(catalog: Catalog) -> None:
    catalog.register(registration())
    dearer = kind(usd_per_hour=9.0)
    catalog.register(registration(number=2, device_kinds=(dearer,)))
    assert catalog.snapshot().device_kinds == (dearer,)


def test_a_task_that_exists_keeps_its_default_slo(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(number=2, task=task(slo=Slo(latency_ms=5))))
    assert catalog.snapshot().tasks == (task(),)


CONFLICTS = {
    "the version exists": registration(variants=(variant(name="new"),), profiles=()),
    "a variant's name is taken": registration(
        number=2,
        variants=(variant(number=2, name="new"), variant(number=2, name="mlp-v1-onnx-fp32")),
        profiles=(),
    ),
    "another input": registration(
        number=2, task=task(inputs=(TensorSpec(name="pixels", dtype="float32", shape=(63,)),))
    ),
    "another output": registration(
        number=2,
        task=task(outputs=(TensorSpec(name="scores", dtype="float64", shape=(3,)),)),
    ),
    "other labels": registration(number=2, task=task(labels=("c", "b", "a"))),
    "another metric": registration(number=2, task=task(metric="top5")),
}


@pytest.mark.parametrize("wrong", CONFLICTS.values(), ids=CONFLICTS.keys())
def test_a_conflict_leaves_nothing_behind(catalog: Catalog, wrong: Registration) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(Conflict):
        catalog.register(replace(wrong, device_kinds=(kind("cpu-2"), kind(usd_per_hour=9))))
    assert catalog.snapshot() == before


def test_what_joins_a_task_does_not_make_it(catalog: Catalog) -> None:
    with pytest.raises(Conflict, match="task 'digits' was removed while 'mlp-v1' was prepared"):
        catalog.register(registration(), joins=True)
    assert catalog.snapshot() == CatalogSnapshot(revision=0)
    catalog.register(registration())
    catalog.register(registration(number=2), joins=True)
    assert [one.label for one in catalog.snapshot().versions] == ["mlp-v1", "mlp-v2"]


def test_an_invalid_registration_leaves_nothing_behind(catalog: Catalog) -> None:
    with pytest.raises(InvalidInput, match="unknown device kind 'cpu-9'"):
        catalog.register(registration(profiles=(profile(kind="cpu-9"),)))
    assert catalog.snapshot() == CatalogSnapshot(revision=0)
