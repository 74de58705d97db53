"""What every export promises: the file answers as the model does."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.client.exporting.exported import ExportError

Arrays = Mapping[str, NDArray[Any]]
"""Name of an input or output to an array ``(rows, *shape)``."""

_RELATIVE = 1e-3
_OF_THE_LARGEST = 1e-4
"""Frameworks sum in different orders. A small number beside large ones is a sum that nearly
cancels, so its error is that of the large ones."""


def close(given: NDArray[Any], wanted: NDArray[Any]) -> NDArray[Any]:
    """Which numbers are the same but for rounding, by a thousandth of themselves or by a
    ten-thousandth of the largest one. Equal infinities are the same; NaN never is.
    """
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
    same: NDArray[Any] = np.isclose(given, wanted, rtol=_RELATIVE, atol=_OF_THE_LARGEST * largest)
    return same


def largest_difference(given: Arrays, wanted: Arrays, *, where: str) -> float:
    """The largest absolute difference of all finite numbers, once they are found to be the same.

    ``where`` begins the sentence: ``the ONNX``. Whole numbers must be equal, others ``close``.

    Raises:
        ExportError: they are not the same.
    """
    largest = 0.0
    for name, right in wanted.items():
        left = given[name]
        if left.shape != right.shape or left.dtype != right.dtype:
            raise ExportError(
                f"{where} gives {name!r} as {left.dtype} {left.shape}, "
                f"but the model as {right.dtype} {right.shape}"
            )
        same = close(left, right) if right.dtype.kind == "f" else left == right
        finite = np.isfinite(left) & np.isfinite(right)
        apart = np.abs(left[finite].astype(np.float64) - right[finite].astype(np.float64))
        if not same.all():
            raise ExportError(
                f"{where} answers {name!r} differently from the model: {int((~same).sum())} of "
                f"{same.size} numbers, by up to {apart.max(initial=0.0):.3g}"
            )
        largest = max(largest, float(apart.max(initial=0.0)))
    return largest
