"""Pictures as one row of a task's input: which tasks take any, and how these become numbers.

``controlplane.gateway.images`` reads the pictures themselves.
"""

from collections.abc import Sequence
from math import isfinite, isqrt
from typing import NamedTuple

from variants.errors import InvalidInput
from variants.figures import counted, read_number
from variants.types import Task, TensorSpec

GREY, RGB = 1, 3
SMALLEST = 8
"""Pixels of each side of the smallest picture that a row without channels is taken for: fewer
numbers are hardly one, such as the four of a flower. Rows of any length are taken for none."""
_LONGEST = 200
"""Characters of a text with numbers that are looked at."""


class Geometry(NamedTuple):
    """How a picture lies in a row."""

    height: int
    width: int
    channels: int
    first: bool
    """Whether channels come before height and width."""


def geometry_of(shape: Sequence[int]) -> Geometry | None:
    """How a picture lies in an input of this shape; None where that cannot be told. An axis along
    which rows have any length is of the size -1."""
    if len(shape) == 1 and shape[0] > 0 and isqrt(shape[0]) ** 2 == shape[0]:
        return Geometry(isqrt(shape[0]), isqrt(shape[0]), GREY, False)
    if len(shape) == 2:
        return Geometry(shape[0], shape[1], GREY, False)
    if len(shape) == 3 and shape[0] in (GREY, RGB):
        return Geometry(shape[1], shape[2], shape[0], True)
    if len(shape) == 3 and shape[2] in (GREY, RGB):
        return Geometry(shape[0], shape[1], shape[2], False)
    return None


def image_input(task: Task) -> tuple[TensorSpec, Geometry]:
    """The input that takes a picture.

    Raises:
        InvalidInput: the task takes none.
    """
    if len(task.inputs) != 1:
        raise InvalidInput(f"task {task.name!r} has {len(task.inputs)} inputs, and an image is one")
    spec = task.inputs[0]
    geometry = geometry_of(spec.shape)
    if geometry is None or not _holds_pixels(spec):
        raise InvalidInput(
            f"task {task.name!r} takes no image: its input is {spec.dtype} {list(spec.shape)}, not"
            " numbers of [height, width], [1 or 3, height, width], [height, width, 1 or 3] or a"
            " square, floats or uint8 where there are no channels"
        )
    return spec, geometry


def _holds_pixels(spec: TensorSpec) -> bool:
    """Whether values from 0 to 255 fit its type, and it is likely that they are pixels: whole
    numbers of more than a byte are that with channels only; others are ids, of words mostly."""
    if spec.dtype.startswith("float") or spec.dtype == "uint8":
        return True
    return len(spec.shape) == 3 and spec.dtype not in ("bool", "int8")


def described_picture(task: Task) -> tuple[TensorSpec, Geometry] | None:
    """The input that takes a picture, for those who ask what a task takes; None where none is
    likely to be sent: there is no such input, or it is too small and nobody has said how pictures
    become its numbers."""
    try:
        spec, geometry = image_input(task)
    except InvalidInput:
        return None
    if geometry.height < 0:  # of any height, as no picture is
        return None
    small = min(geometry.height, geometry.width) < SMALLEST
    if small and len(spec.shape) < 3 and task.image is None:
        return None
    return spec, geometry


def expects_images(task: Task) -> bool:
    """Whether pictures are likely to be sent: somebody has said how they become numbers, or the
    input has channels."""
    if task.image is not None:
        return True
    try:
        spec, _ = image_input(task)
    except InvalidInput:
        return False
    return len(spec.shape) == 3


def check_image(task: Task) -> None:
    """Refuse numbers for pictures that a task cannot have; none are fine.

    Raises:
        InvalidInput: it takes no pictures, or as whole numbers, or the numbers are not such.
    """
    if task.image is None:
        return
    spec, geometry = image_input(task)
    if not spec.dtype.startswith("float"):
        raise InvalidInput(
            f"the input of task {task.name!r} is {spec.dtype}: it gets pixels from 0 to 255, and"
            " mean and std of images are for floats"
        )
    for name, numbers in (("mean", task.image.mean), ("std", task.image.std)):
        check_numbers(numbers, geometry.channels, f"the image {name} of task {task.name!r}")
    if not all(task.image.std):
        raise InvalidInput(f"the image std of task {task.name!r} is a divisor, and may not be 0")


def check_numbers(numbers: Sequence[float], channels: int, where: str) -> None:
    """Refuse a mean or std that is not one number for all channels or one for each.

    Raises:
        InvalidInput: it is none; ``where`` names it.
    """
    if len(numbers) not in (1, channels):
        raise InvalidInput(
            f"{where} has {counted(len(numbers), 'number')}, and the task's input"
            f" {counted(channels, 'channel')}"
        )
    if not all(map(isfinite, numbers)):
        raise InvalidInput(f"{where} has a number that is not finite")


def numbers_in(text: str, where: str) -> tuple[float, ...]:
    """A mean or std as it is written: ``0.5``, or ``0.485,0.456,0.406``.

    Raises:
        InvalidInput: it is none; ``where`` names it.
    """
    found = tuple(number_in(part, where) for part in text[:_LONGEST].split(","))
    if len(found) not in (GREY, RGB):
        raise InvalidInput(f"{where} has one number, or one for each of three channels")
    return found


def number_in(text: str, where: str) -> float:
    """A finite number as it is written.

    Raises:
        InvalidInput: it is none; ``where`` names it.
    """
    try:
        found = read_number(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise InvalidInput(f"{where} must be a number, not {text.strip()[:40]!r}")
    return found
