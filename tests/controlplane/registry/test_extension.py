"""Building more variants of a version that is there: all of them or none."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.building.types import RegistrationRequest, RegistrationResult
from controlplane.registry.extension import extend
from tests.controlplane.registry.house import CPU, QUICK, House
from variants.errors import Conflict, InvalidInput, ModellessError, NotFound, TaskNotFound
from variants.types import Stage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("first"))
    made.register(kinds=())
    return made


@pytest.fixture
def house(first: House, tmp_path: Path) -> House:
    """One version with the model itself as its only variant."""
    return House.like(first, tmp_path)


def more(house: House, *kinds: str, model: str = "tiny", **changes: Any) -> RegistrationResult:
    request = RegistrationRequest(
        path=house.model, task=changes.pop("task", "shapes"), evaluation=house.rows, kinds=kinds
    )
    return extend(
        request, model, changes.pop("number", None), house.catalog, house.store, (CPU,),
        limits=QUICK, scratch=house.scratch,
    )  # fmt: skip


def names(house: House) -> list[str]:
    return [variant.name for variant in house.catalog.snapshot().variants]


def test_a_kind_that_was_not_built_joins_the_version(house: House) -> None:
    assert names(house) == ["tiny-v1-onnx-fp32"]
    (before,) = house.catalog.snapshot().variants
    result = more(house, "onnx-int8")
    assert [variant.name for variant in result.variants] == ["tiny-v1-onnx-int8"]
    first, second = house.catalog.snapshot().variants
    assert (first, second.name) == (before, "tiny-v1-onnx-int8")
    assert second.agreement is not None
    assert second.agreement > 0.8
    assert second.accuracy_rows == first.accuracy_rows
    assert {p.variant for p in house.catalog.snapshot().profiles} == {first.name, second.name}
    assert set(house.store.digests()) >= {first.artifact, second.artifact}
    assert list(house.scratch.iterdir()) == []
    house.assert_nothing_runs()


def test_what_is_there_is_not_built_again(house: House) -> None:
    more(house, "onnx-int8")
    before = house.catalog.snapshot()
    with pytest.raises(Conflict, match="tiny-v1 has onnx-fp32, onnx-int8 already"):
        more(house, "onnx-fp32", "onnx-int8")
    assert house.catalog.snapshot() == before


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"task": "letters"}, TaskNotFound, "there is no task 'letters'"),
        ({"model": "huge"}, NotFound, "task 'shapes' has no model 'huge'"),
        ({"number": 7}, NotFound, "model 'tiny' has no version 7; there are: 1"),
    ],
)
def test_what_is_not_there_cannot_be_extended(
    house: House, changes: dict[str, Any], error: type[ModellessError], text: str
) -> None:
    with pytest.raises(error, match=text):
        more(house, "onnx-int8", **changes)


def test_an_unknown_kind_is_refused_with_those_that_there_are(house: House) -> None:
    with pytest.raises(InvalidInput, match="no kind of variant 'onnx-int3'; there are: onnx-fp32"):
        more(house, "onnx-int3")
    assert names(house) == ["tiny-v1-onnx-fp32"]


def test_a_kind_that_cannot_be_built_is_left_out_with_its_reason(house: House) -> None:
    result = more(house, "tensorrt-fp32")
    assert result.variants == ()
    (skipped,) = result.skipped
    assert skipped.name == "tiny-v1-tensorrt-fp32"
    assert "GPU" in skipped.reason


@pytest.mark.campaign
def test_the_newest_version_that_is_not_retired_is_extended(house: House) -> None:
    house.register(path=house.model.rename(house.folder / "other.onnx"), model="other", kinds=())
    result = more(house, "onnx-int8", model="other", number=1)
    assert [v.model for v in result.versions] == ["other"]
    (version,) = result.versions
    house.catalog.set_stage([version.task], version.model, version.version, Stage.RETIRED)
    assert more(house, "onnx-int8-dynamic", model="other").versions[0].version == 1
