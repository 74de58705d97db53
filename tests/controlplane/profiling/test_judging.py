"""Registered variants are judged by other rows: all of a version by the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controlplane.profiling.judging import Judged, judge_again
from controlplane.views.catalog.tasks import find_task
from tests.controlplane.registry.house import CPU, QUICK, House
from variants.errors import InvalidArtifact
from variants.types import VariantName

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("house"))
    made.register()
    return made


def judge(house: House, rows: Path) -> Judged:
    known = house.catalog.snapshot()
    task = find_task(known, "shapes")
    return judge_again(task, known.variants, rows, house.store, (CPU,), limits=QUICK)


def wrong(house: House, folder: Path, first: int) -> Path:
    """The rows by which the house judged, of which the first ones have another label."""
    with np.load(house.rows) as arrays:
        rows = dict(arrays)
    rows["labels"] = (rows["labels"] + (np.arange(len(rows["labels"])) < first)) % 3
    np.savez(folder / "wrong.npz", **rows)
    return folder / "wrong.npz"


def test_all_are_judged_by_all_rows_and_keep_the_rest(house: House, tmp_path: Path) -> None:
    known = house.catalog.snapshot()
    right, less = judge(house, house.rows), judge(house, wrong(house, tmp_path, 10))

    assert right.skipped == less.skipped == ()
    assert {one.name for one in right.now} == {one.name for one in known.variants}
    assert {one.accuracy_rows for one in known.variants} == {24}  # the other six calibrated
    assert {one.accuracy_rows for one in right.now} == {30}
    for before, after in zip(right.now, less.now, strict=True):
        assert before.accuracy - after.accuracy == pytest.approx(10 / before.accuracy_rows)
        assert after.agreement == before.agreement
        assert after.answered == before.answered
        assert (
            sum(right for right, _ in before.found) == sum(right for right, _ in after.found) + 10
        )
        assert replace(after, accuracy=before.accuracy, found=before.found) == before
    assert right.now[0].agreement == 1.0
    house.assert_nothing_runs()


def test_rows_by_which_nothing_is_better_than_guessing_are_told_of(
    house: House, tmp_path: Path
) -> None:
    assert judge(house, house.rows).doubts == ()
    (said,) = judge(house, wrong(house, tmp_path, 30)).doubts
    assert said.startswith("tiny-v1 is right in 0.00 % of the rows, and always saying the most ")


def test_those_that_differ_in_threads_are_judged_once(house: House) -> None:
    known = house.catalog.snapshot()
    first = known.variants[0]
    fewer = replace(first, name=VariantName(f"{first.name}-t1"), options={"threads": "1"})
    found = judge_again(
        find_task(known, "shapes"), (fewer, first), house.rows, house.store, (CPU,), limits=QUICK
    )
    assert len({one.accuracy for one in found.now}) == 1
    assert [one.name for one in found.now] == [fewer.name, first.name]


def test_what_cannot_run_here_is_told_and_stays(house: House) -> None:
    known = house.catalog.snapshot()
    first, *_ = known.variants
    on_gpu = replace(first, name=VariantName("tiny-v1-trt-fp16"), runtime="tensorrt")
    found = judge_again(
        find_task(known, "shapes"), (first, on_gpu), house.rows, house.store, (CPU,), limits=QUICK
    )
    assert [one.name for one in found.now] == [first.name]
    assert [(one.name, one.reason) for one in found.skipped] == [
        (on_gpu.name, "no GPU of this machine is a device kind")
    ]


def test_rows_that_are_none_are_refused(house: House, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", labels=np.zeros(3, dtype=int))
    with pytest.raises(InvalidArtifact):
        judge(house, tmp_path / "bad.npz")
