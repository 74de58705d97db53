"""The right classes of evaluation rows, which files say by numbers or by names."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.errors import InvalidArtifact

NAMED = 8
"""Names of classes that a sentence tells, where there are more."""


def right_classes(
    where: str,
    array: NDArray[Any],
    classes: int | None,
    names: Sequence[str] = (),
    place: Callable[[int], str] = "row {}".format,
) -> NDArray[np.int64]:
    """The array ``(rows,)`` as numbers of classes, each in ``[0, classes)``.

    Texts are names of classes: their numbers are their places in ``names``. So are integers where
    the names are integers other than the places, such as 1, 2 and 3, and all of the array are among
    them. Where there are no classes, as for neighbours, any integers or texts do, the same ones for
    what is alike.

    Args:
        place: what an element of the array is called in a sentence.

    Raises:
        InvalidArtifact: one sentence, which begins with ``where``.
    """
    if array.ndim != 1:
        told = f"{where} has shape {array.shape}, not (rows)"
        if array.ndim == 2 and array.dtype.kind in "iufb":
            told += ": .ravel()" if array.shape[1] == 1 else ": of one-hot rows .argmax(axis=1)"
            told += " makes one number for each row"
        raise InvalidArtifact(told)
    if array.dtype.kind == "U":
        return _numbered(where, array, classes, names, place)
    if array.dtype.kind == "b" and (classes == 2 or classes is None):
        array = array.astype(np.int64)  # the second of two classes, or not
    if array.dtype.kind not in "iu":
        raise InvalidArtifact(
            f"{where} has type {array.dtype}; labels are integers, from 0, or names of classes"
        )
    called = np.char.mod("%d", array)
    if _are_other_numbers(names) and np.isin(called, names).all():
        return _numbered(where, called, classes, names, place)
    if classes is not None:
        wrong = np.flatnonzero((array < 0) | (array >= classes))
        if len(wrong):
            raise InvalidArtifact(
                f"{where} has {array[wrong[0]]} in {place(int(wrong[0]))}; "
                f"the task's labels are 0 to {classes - 1}"
                + (f", or {', '.join(_some(names))}" if _are_other_numbers(names) else "")
            )
    return array.astype(np.int64)


def _are_other_numbers(names: Sequence[str]) -> bool:
    """Whether classes are called by integers that are not just their places, from 0 on."""
    integers = all(one.removeprefix("-").isdecimal() for one in names)
    return bool(names) and integers and {*names} != {str(place) for place in range(len(names))}


def _some(names: Sequence[str]) -> list[str]:
    return [*names[:NAMED], *(["..."] if len(names) > NAMED else [])]


def _numbered(
    where: str,
    array: NDArray[Any],
    classes: int | None,
    names: Sequence[str],
    place: Callable[[int], str],
) -> NDArray[np.int64]:
    if classes is None:
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    if not names:
        raise InvalidArtifact(
            f"{where} holds names, and the task's classes have none: --labels names them, in the"
            " order of the model's scores, and `modelless tasks label` those of a task that exists"
        )
    numbers = {name: number for number, name in enumerate(names)}
    found = np.array([numbers.get(str(name), -1) for name in array], np.int64)
    if len(wrong := np.flatnonzero(found < 0)):
        told = ", ".join(_some(names))
        raise InvalidArtifact(
            f"{where} has {str(array[wrong[0]])[:80]!r} in {place(int(wrong[0]))}; the task's"
            f" classes are called {told}"
        )
    return found
