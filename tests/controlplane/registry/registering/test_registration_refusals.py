"""What registration refuses besides bad files: wrong names, labels and rows to calibrate on.

Bad files are in ``tests/corpus``. Each wrong input gets one typed sentence and leaves nothing
behind. A case makes its files in a folder where the right ones lie already and returns what differs
in the request.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.controlplane.registry.house import House
from variants.errors import InvalidArtifact, InvalidInput, ModellessError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

Changes = dict[str, Any]
Case = Callable[[Path], Changes]
CASES: list[Any] = []


def case(sentence: str, error: type[ModellessError] = InvalidArtifact) -> Callable[[Case], Case]:
    """Add a case; ``sentence`` is what its refusal says, from anywhere in it."""

    def add(make: Case) -> Case:
        name = make.__name__.removeprefix("_").replace("_", "-")
        CASES.append(pytest.param(make, sentence, error, id=name))
        return make

    return add


@case("'No Task' cannot be the name of a task", InvalidInput)
def _task_name(folder: Path) -> Changes:
    return {"task": "No Task"}


@case("'../up' cannot be a model's name", InvalidInput)
def _model_name(folder: Path) -> Changes:
    return {"model": "../up"}


@case("2 labels were given, but output 'scores' of tiny.onnx has 3 classes", InvalidInput)
def _label_count(folder: Path) -> Changes:
    return {"labels": ("a", "b")}


@case("a label is given twice: number 1 and number 3 are both 'a'", InvalidInput)
def _label_twice(folder: Path) -> Changes:
    return {"labels": ("a", "b", "a")}


@case("label 2 has a line break or another control character: 'b\\r'", InvalidInput)
def _label_of_two_lines(folder: Path) -> Changes:
    return {"labels": ("a", "b\r", "c")}


@case("there is no metric 'vibes'; there are: top1", InvalidInput)
def _unknown_metric(folder: Path) -> Changes:
    return {"metric": "vibes"}


@case("rows.npz: all its rows are evaluation rows")
def _calibration_on_evaluation_rows(folder: Path) -> Changes:
    return {"calibration": folder / "rows.npz"}


@case("narrow.npz: array 'pixels' has shape (20, 2), not (rows, 4)")
def _calibration_of_another_shape(folder: Path) -> Changes:
    np.savez(folder / "narrow.npz", pixels=np.zeros((20, 2), np.float32))
    return {"calibration": folder / "narrow.npz"}


@pytest.mark.parametrize(("make", "sentence", "error"), CASES)
def test_a_wrong_input_gets_one_sentence_and_leaves_nothing(
    tmp_path: Path, make: Case, sentence: str, error: type[ModellessError]
) -> None:
    house = House(tmp_path)
    changes = make(tmp_path)
    with pytest.raises(error) as refusal:
        house.register(**changes)
    assert sentence in refusal.value.message
    assert "\n" not in refusal.value.message
    assert type(refusal.value) is error
    house.assert_untouched()
