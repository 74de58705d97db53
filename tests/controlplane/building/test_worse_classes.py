"""What is said of a later version that is worse than the live one on some classes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controlplane.building.worse_classes import worse_classes
from tests.planner.builders import task, variant
from variants.types import (
    CatalogSnapshot,
    Digest,
    ModelName,
    ModelVersion,
    Registration,
    Stage,
    Task,
    TaskName,
    Variant,
)

TASK = replace(
    task(),
    labels=("cat", "dog", "fox"),
    outputs=(replace(task().outputs[0], shape=(3,)),),
)
Found = Sequence[tuple[int, int]]
LIVE: Found = ((90, 100), (95, 100), (17, 20))


def version(number: int, stage: Stage) -> ModelVersion:
    return ModelVersion(
        task=TaskName("digits"), model=ModelName("net"), version=number, stage=stage,
        source=Digest(str(number) * 64),
    )  # fmt: skip


def of(number: int, found: Found, kind: str = "fp32", agreement: float = 1.0) -> Variant:
    made = variant(f"net-v{number}-onnx-{kind}", 0.9)
    return replace(
        made, model=ModelName("net"), version=number, found=tuple(found), agreement=agreement
    )


def said(found: Found, live: Found = LIVE, stage: Stage = Stage.LIVE, judged: Task = TASK) -> str:
    before = CatalogSnapshot(
        revision=1, tasks=(judged,), versions=(version(1, stage),), variants=(of(1, live),)
    )
    new = Registration(
        task=judged,
        version=version(2, Stage.CANARY),
        variants=(of(2, ((0, 100),) * 3, "int8", 0.4), of(2, found)),
        profiles=(),
        device_kinds=(),
    )
    return worse_classes(new, before)


def test_a_class_that_is_found_far_less_often_is_told_of() -> None:
    assert said(((99, 100), (99, 100), (5, 20))) == (
        "net-v2 finds 5 of 20 rows of class 'fox', and net-v1, which is live, 17 of 20: it is worse"
        " there, whatever its accuracy over all rows"
    )
    assert ", and less of 1 other class too: " in said(((40, 100), (99, 100), (2, 20)))


@pytest.mark.parametrize(
    "found",
    [LIVE, ((88, 100), (93, 100), (15, 20)), ((100, 100),) * 3, ((99, 100), (99, 100), (0, 5))],
    ids=["the same", "by chance", "better", "too few rows"],
)
def test_what_may_be_chance_is_not_told_of(found: Found) -> None:
    assert said(found) == ""


def test_nothing_is_said_where_there_is_nothing_to_compare_with() -> None:
    worse = ((10, 100), (10, 100), (1, 20))
    assert said(worse) != ""
    assert said(worse, stage=Stage.RETIRED) == ""
    assert said(worse, live=()) == ""
    assert said(worse, judged=replace(TASK, metric="within:0.5")) == ""
