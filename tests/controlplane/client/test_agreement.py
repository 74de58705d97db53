"""When two answers are the same."""

from typing import Any

import numpy as np
import pytest

from controlplane.client.exporting.agreement import close, largest_difference
from controlplane.client.exporting.exported import ExportError


def floats(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("given", "wanted", "same"),
    [
        (1.0009, 1.0, True),
        (1.002, 1.0, False),
        (np.inf, np.inf, True),
        (-np.inf, -np.inf, True),
        (np.inf, -np.inf, False),
        (np.inf, 1.0, False),
        (np.nan, np.nan, False),
        (np.nan, 1.0, False),
        (0.0, 0.0, True),
    ],
)
def test_one_number(given: float, wanted: float, same: bool) -> None:
    assert close(floats(given), floats(wanted)).tolist() == [same]


def test_a_small_number_beside_large_ones_is_a_sum_that_nearly_cancels() -> None:
    assert close(floats(1000, 0.05), floats(1000, 0.0)).all()
    assert not close(floats(1000, 0.2), floats(1000, 0.0)).all()


def test_the_largest_difference_is_of_finite_numbers() -> None:
    wanted = {"a": floats(1.0, np.inf), "b": np.array([1, 2])}
    given = {"a": floats(1.0005, np.inf), "b": np.array([1, 2])}
    assert largest_difference(given, wanted, where="it") == pytest.approx(5e-4, rel=1e-3)


@pytest.mark.parametrize(
    ("given", "wanted", "sentence"),
    [
        (floats(1, 2), floats(1, 3), "it answers 'a' differently from the model: 1 of 2 numbers, "
         "by up to 1"),
        (np.array([1, 5]), np.array([1, 2]), "1 of 2 numbers, by up to 3"),
        (np.array([True]), np.array([False]), "1 of 1 numbers, by up to 1"),
        (floats(1), floats(1, 2), r"it gives 'a' as float32 \(1,\), but the model as float32 \(2,"),
        (np.array([1]), floats(1), r"it gives 'a' as int64 \(1,\), but the model as float32"),
    ],
)  # fmt: skip
def test_what_is_not_the_same_is_told(given: Any, wanted: Any, sentence: str) -> None:
    with pytest.raises(ExportError, match=sentence):
        largest_difference({"a": given}, {"a": wanted}, where="it")
