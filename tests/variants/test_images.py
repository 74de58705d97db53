"""Which tasks take pictures, and how these become numbers."""

from dataclasses import replace

import pytest

from tests.variants.catalog_builders import task
from variants.catalog.validity.tasks import check_task
from variants.errors import InvalidInput
from variants.images import (
    Geometry,
    described_picture,
    expects_images,
    geometry_of,
    image_input,
    numbers_in,
)
from variants.types import ImageScale, Task, TensorSpec


def taking(*shape: int, dtype: str = "float32", image: ImageScale | None = None) -> Task:
    spec = TensorSpec(name="x", dtype=dtype, shape=shape)
    return replace(task(), inputs=(spec,), image=image)


@pytest.mark.parametrize(
    ("shape", "geometry"),
    [
        ((64,), Geometry(8, 8, 1, False)),
        ((28, 20), Geometry(28, 20, 1, False)),
        ((1, 28, 20), Geometry(28, 20, 1, True)),
        ((3, 224, 200), Geometry(224, 200, 3, True)),
        ((224, 200, 3), Geometry(224, 200, 3, False)),
        ((28, 20, 1), Geometry(28, 20, 1, False)),
        ((63,), None),
        ((4, 8, 8), None),
        ((), None),
        ((1, 3, 8, 8), None),
    ],
)
def test_how_a_picture_lies_in_an_input(shape: tuple[int, ...], geometry: Geometry | None) -> None:
    assert geometry_of(shape) == geometry


@pytest.mark.parametrize(
    "image",
    [ImageScale(), ImageScale(mean=(0.5,), std=(-2.0,)), ImageScale(mean=(0.1, 0.2, 0.3))],
)
def test_a_task_of_floats_may_have_a_mean_and_std(image: ImageScale) -> None:
    check_task(taking(3, 8, 8, image=image))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (taking(5, image=ImageScale()), "takes no image"),
        (taking(8, 8, dtype="uint8", image=ImageScale()), "is uint8: it gets pixels from 0 to 255"),
        (taking(8, 8, image=ImageScale(std=(0.0,))), "the image std of task 'digits' is a divisor"),
        (taking(8, 8, image=ImageScale(mean=(1.0, 2.0, 3.0))), "has 3 numbers, and the task's"),
        (taking(8, 8, 3, image=ImageScale(std=(1.0, 2.0))), "has 2 numbers, and the task's"),
        (taking(8, 8, image=ImageScale(mean=(float("inf"),))), "a number that is not finite"),
    ],
)
def test_numbers_that_no_picture_can_have_are_refused(wrong: Task, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        check_task(wrong)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((64,), "int64"),  # ids of words: a task of texts was said to take pictures
        ((16, 16), "int32"),
        ((3, 8, 8), "int8"),
        ((3, 8, 8), "bool"),
    ],
)
def test_numbers_that_are_hardly_pixels_are_no_picture(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(InvalidInput, match=f"takes no image: its input is {dtype}"):
        image_input(taking(*shape, dtype=dtype))
    assert described_picture(taking(*shape, dtype=dtype)) is None


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((64,), "float32"), ((8, 8), "uint8"), ((3, 8, 8), "int32"), ((4, 4, 1), "float16")],
)
def test_pictures_are_described_where_they_are_likely(shape: tuple[int, ...], dtype: str) -> None:
    task = taking(*shape, dtype=dtype)
    assert described_picture(task) == image_input(task)


def test_of_a_few_numbers_somebody_has_to_say_that_they_are_a_picture() -> None:
    """A task of four measures of a flower was said to take pictures of 2 x 2."""
    assert described_picture(taking(4)) is None
    assert described_picture(taking(16, 4)) is None
    said = taking(4, image=ImageScale())
    assert described_picture(said) == image_input(said)


def test_pictures_are_expected_where_channels_are_or_somebody_has_said_so() -> None:
    assert expects_images(taking(3, 8, 8))
    assert expects_images(taking(64, image=ImageScale()))
    assert not expects_images(taking(64))
    assert not expects_images(taking(3, 8, 8, dtype="bool"))


def test_numbers_as_they_are_written() -> None:
    assert numbers_in("0.0625", "it") == (0.0625,)
    assert numbers_in(" 1, 2,3e-1", "it") == (1.0, 2.0, 0.3)
    for wrong in ("", "1,2", "1,2,3,4", "a", "nan", "1,,2"):
        with pytest.raises(InvalidInput, match=r"^it "):
            numbers_in(wrong, "it")
