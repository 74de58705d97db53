"""What a registration says of a version and the live one of its model."""

from dataclasses import replace

import pytest

from controlplane.building.beside_live import beside_live
from tests.controlplane.building.test_worse_classes import version
from tests.planner.builders import task, variant
from variants.types import CatalogSnapshot, ModelName, Registration, Stage, Task, Variant


def of(number: int, accuracy: float, rows: int, kind: str = "fp32") -> Variant:
    made = variant(f"net-v{number}-onnx-{kind}", accuracy)
    return replace(made, model=ModelName("net"), version=number, accuracy_rows=rows)


def said(
    ours: float, theirs: float = 0.95, rows: int = 1_000, stage: Stage = Stage.LIVE,
    judged: Task | None = None,
) -> str:  # fmt: skip
    known = judged or task()
    before = CatalogSnapshot(
        revision=1, tasks=(known,), versions=(version(1, stage),),
        variants=(of(1, theirs, rows), of(1, 0.1, rows, "int8")),
    )  # fmt: skip
    variants = (of(2, 0.2, rows, "int8"), of(2, ours, rows))
    new = Registration(
        task=known, version=version(2, Stage.CANARY), variants=variants, profiles=(),
        device_kinds=(),
    )  # fmt: skip
    return beside_live(new, before)


def test_the_best_of_both_is_told() -> None:
    assert said(0.9) == (
        "net-v2 has an accuracy of 90.00 % at best, on 1,000 rows, and net-v1, which is live, of"
        " 95.00 %, on 1,000 rows"
    )


@pytest.mark.parametrize(("ours", "rows"), [(0.94, 1_000), (0.96, 1_000), (0.9, 50)])
def test_what_may_be_chance_is_told_as_that(ours: float, rows: int) -> None:
    assert said(ours, rows=rows).endswith("rows; so little may be chance")


def test_of_what_is_no_share_of_rows_no_chance_is_told() -> None:
    assert said(0.94, judged=replace(task(), metric="r2")).endswith("of 95.00 %, on 1,000 rows")


def test_one_that_is_as_accurate_is_told_as_that() -> None:
    assert said(0.95) == "net-v2 is as accurate as net-v1, which is live: 95.00 % at best"


def test_nothing_is_told_where_none_is_live() -> None:
    assert said(0.9, stage=Stage.RETIRED) == ""
