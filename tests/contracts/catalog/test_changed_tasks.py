"""What is changed of tasks and stages, in every catalog."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.catalog.known import DIGITS, MLP, change_slo
from tests.variants.catalog_builders import (
    registration,
    set_image,
    set_labels,
    set_sharing,
    set_slo,
    task,
    version,
)
from variants.catalog.protocol import Catalog
from variants.errors import InvalidInput, NotFound
from variants.types import (
    ImageScale,
    ModelName,
    Prefer,
    Sharing,
    Slo,
    Stage,
    Task,
    TaskName,
    TensorSpec,
)


def test_a_stage_is_changed(catalog: Catalog) -> None:
    catalog.register(registration(number=1))
    catalog.register(registration(number=2))
    catalog.set_stage([DIGITS], MLP, 1, Stage.RETIRED)
    assert catalog.snapshot().versions == (version(stage=Stage.RETIRED), version(number=2))
    assert catalog.revision() == 3


@pytest.mark.parametrize(
    ("of", "model", "number"), [("letters", "mlp", 1), ("digits", "cnn", 1), ("digits", "mlp", 2)]
)
def test_an_unknown_version_has_no_stage(
    catalog: Catalog, of: str, model: str, number: int
) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound):
        catalog.set_stage([TaskName(of)], ModelName(model), number, Stage.LIVE)
    assert catalog.revision() == 1


def test_a_default_slo_is_changed(catalog: Catalog) -> None:
    catalog.register(registration())
    set_sharing(catalog, DIGITS, Sharing(ttl_s=1.5, memory_mib=64.0))
    wanted = Slo(latency_ms=50.0, accuracy=0.9, cost=0.5, prefer=Prefer.ACCURACY)
    set_slo(catalog, DIGITS, wanted)
    before = catalog.snapshot()
    assert before.tasks[0].slo == wanted
    catalog.register(registration(number=2))
    assert catalog.snapshot().tasks == before.tasks
    set_slo(catalog, DIGITS, Slo(latency_ms=20.0))
    assert catalog.snapshot().tasks == (replace(before.tasks[0], slo=Slo(latency_ms=20.0)),)
    assert catalog.revision() == 5


@pytest.mark.parametrize(
    ("slo", "of"),
    [
        (Slo(latency_ms=0.0), "latency"),
        (Slo(latency_ms=math.inf), "latency"),
        (Slo(accuracy=1.1), "accuracy floor"),
        (Slo(cost=-1.0), "cost ceiling"),
        (Slo(cost=math.nan), "cost ceiling"),
    ],
)
def test_a_default_slo_that_no_query_can_have_is_refused(
    catalog: Catalog, slo: Slo, of: str
) -> None:
    catalog.register(registration())
    with pytest.raises(InvalidInput, match=f"the default {of} of task 'digits'"):
        set_slo(catalog, DIGITS, slo)
    assert (catalog.snapshot().tasks, catalog.revision()) == ((task(),), 1)


def test_a_default_slo_is_changed_by_what_it_is(catalog: Catalog) -> None:
    catalog.register(registration())
    before = catalog.snapshot().tasks[0].slo

    def halved(slo: Slo) -> Slo:
        return replace(slo, latency_ms=slo.latency_ms / 2)

    after = halved(before)
    assert change_slo(catalog, DIGITS, halved) == (before, after)
    assert change_slo(catalog, DIGITS, lambda slo: slo) == (after, after)
    assert (catalog.snapshot().tasks[0].slo, catalog.revision()) == (after, 2)
    with pytest.raises(InvalidInput, match="the default latency of task 'digits'"):
        change_slo(catalog, DIGITS, lambda slo: replace(slo, latency_ms=-1.0))
    assert (catalog.snapshot().tasks[0].slo, catalog.revision()) == (after, 2)


def test_an_unknown_task_has_no_default_slo(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        set_slo(catalog, TaskName("letters"), Slo())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        change_slo(catalog, TaskName("letters"), lambda slo: slo)
    assert catalog.revision() == 1


def test_the_classes_of_a_task_are_named_later_and_again(catalog: Catalog) -> None:
    unnamed = registration(task=task(labels=()))
    catalog.register(unnamed)
    names = ("cat", "dog", "owl")
    for labels in (names, names[::-1], ()):
        set_labels(catalog, DIGITS, labels)
        assert catalog.snapshot().tasks == (replace(unnamed.task, labels=labels),)
    assert catalog.revision() == 4
    set_labels(catalog, DIGITS, names)
    catalog.register(registration(number=2, task=task(labels=names)))


@pytest.mark.parametrize(
    ("labels", "wrong"),
    [
        (("a", "b"), "has 2 labels, but output 'scores' has 3 classes"),
        (("a", "b", "a"), "has the same label for two classes"),
        (("", "b", "c"), "label 1 is empty"),
        (("a", "b\nc", "d"), r"label 2 has a line break or another control character: 'b\\nc'"),
        (("a", "b", "\u2028"), "label 3 is empty"),
        (("a", "b", "c\x1b[2J"), "label 3 has a line break or another control character"),
    ],
)
def test_names_that_are_not_those_of_a_tasks_classes_are_refused(
    catalog: Catalog, labels: tuple[str, ...], wrong: str
) -> None:
    catalog.register(registration())
    before = catalog.snapshot()
    with pytest.raises(InvalidInput, match=wrong):
        set_labels(catalog, DIGITS, labels)
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        set_labels(catalog, TaskName("letters"), ())
    assert catalog.snapshot() == before


def test_how_answers_of_a_task_are_shared_is_kept(catalog: Catalog) -> None:
    catalog.register(registration())
    assert catalog.snapshot().tasks[0].sharing is None
    shared = Sharing(ttl_s=1.5, memory_mib=64.0)
    set_sharing(catalog, DIGITS, shared)
    assert catalog.snapshot().tasks[0].sharing == shared
    catalog.register(registration(number=2))
    assert catalog.snapshot().tasks[0].sharing == shared
    set_sharing(catalog, DIGITS, None)
    assert catalog.snapshot().tasks[0].sharing is None
    assert catalog.revision() == 4


@pytest.mark.parametrize(
    ("ttl_s", "memory_mib"),
    [(-1.0, 64.0), (math.nan, 64.0), (700_000.0, 64.0), (60.0, 0.0), (60.0, 65_537.0)],
)
def test_limits_that_nobody_can_mean_are_refused(
    catalog: Catalog, ttl_s: float, memory_mib: float
) -> None:
    catalog.register(registration())
    with pytest.raises(InvalidInput, match="answers of task 'digits' cannot"):
        set_sharing(catalog, DIGITS, Sharing(ttl_s=ttl_s, memory_mib=memory_mib))
    assert catalog.revision() == 1


def test_an_unknown_task_shares_nothing(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        set_sharing(catalog, TaskName("letters"), Sharing(ttl_s=1.0, memory_mib=1.0))
    assert catalog.revision() == 1


def pictured(**changes: Any) -> Task:
    return task(inputs=(TensorSpec(name="pixels", dtype="float32", shape=(3, 8, 8)),), **changes)


def test_how_pictures_of_a_task_become_numbers_is_kept(catalog: Catalog) -> None:
    said = ImageScale(mean=(0.485, 0.456, 0.406), std=(0.25,))
    catalog.register(registration(task=pictured(image=said)))
    assert catalog.snapshot().tasks[0].image == said
    catalog.register(registration(number=2, task=pictured()))
    assert catalog.snapshot().tasks[0].image == said
    anew = ImageScale(std=(0.0625,))
    set_image(catalog, DIGITS, anew)
    assert catalog.snapshot().tasks[0].image == anew
    set_sharing(catalog, DIGITS, Sharing(ttl_s=1.0, memory_mib=1.0))
    assert catalog.snapshot().tasks[0].image == anew
    set_image(catalog, DIGITS, None)
    assert catalog.snapshot().tasks[0].image is None
    assert catalog.revision() == 5


@pytest.mark.parametrize(
    "image", [ImageScale(std=(0.0,)), ImageScale(mean=(0.1, 0.2)), ImageScale(mean=(math.nan,))]
)
def test_numbers_that_no_picture_can_have_are_refused(catalog: Catalog, image: ImageScale) -> None:
    catalog.register(registration(task=pictured()))
    with pytest.raises(InvalidInput, match="of task 'digits'"):
        set_image(catalog, DIGITS, image)
    assert (catalog.snapshot().tasks[0].image, catalog.revision()) == (None, 1)
