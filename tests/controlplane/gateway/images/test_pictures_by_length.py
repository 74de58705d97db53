"""Queries by image of a task for rows of several lengths, such as lines that are read."""

from dataclasses import replace

import numpy as np
import pytest

from controlplane.gateway.images.asked import asked_by_image
from controlplane.gateway.images.pixels import parse_image
from controlplane.gateway.query.parsing import ParsedQuery
from controlplane.views.catalog.task_schemas import ImageSchema
from tests.controlplane.gateway.images.pictures import picture, task_with
from variants.buckets import TaskTable
from variants.errors import InvalidInput, PayloadTooLarge
from variants.types import FollowingAxis, ImageScale, LengthBucket, OpenAxis, Task, TaskName

SCALE = ImageScale(mean=(0.5,), std=(0.5,))


def lines(*shape: int, lengths: tuple[int, ...] = (16, 32), follows: bool = False) -> TaskTable:
    """Tasks ``lines.16`` and ``lines.32``; -1 stands where rows are open, filled up with 7."""
    axis = shape.index(-1)
    outputs = (FollowingAxis(output="y", axis=0, step=4, offset=0),) if follows else ()

    def bucket(length: int) -> Task:
        of_length = task_with(*(length if size == -1 else size for size in shape))
        return replace(
            of_length,
            name=TaskName(f"lines.{length}"),
            image=SCALE,
            bucket=LengthBucket(
                of=TaskName("lines"),
                length=length,
                axes=(OpenAxis(input="x", axis=axis, pad=7.0),),
                outputs=outputs,
            ),
        )

    return TaskTable(bucket(length) for length in lengths)


def asked(body: bytes, tasks: TaskTable, name: str = "lines") -> ParsedQuery:
    return parse_image(body, asked_by_image({}, {"task": name}), tasks, 5.0, 9)


def white(width: int, height: int, **options: object) -> bytes:
    return picture(np.full((height, width), 255), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "place"),
    [
        ((1, 8, -1), (0, slice(None))),
        ((8, -1), (slice(None),)),
        ((8, -1, 1), (slice(None), slice(None), 0)),
    ],
    ids=["channels first", "none", "channels last"],
)
def test_it_keeps_its_form_at_the_height_and_is_filled_up_to_the_next_length(
    shape: tuple[int, ...], place: tuple[int | slice, ...]
) -> None:
    parsed = asked(white(40, 32), lines(*shape))
    assert parsed.task.name == parsed.query.task == "lines.16"
    [tensor] = parsed.tensors
    found = tensor[0][place]
    assert found.shape == (8, 16)
    assert found[:, :10] == pytest.approx(1.0)  # white is (1 - 0.5) / 0.5
    assert (found[:, 10:] == 7.0).all()


@pytest.mark.parametrize(
    ("size", "task", "width"),
    [((32, 16), "lines.16", 16), ((33, 16), "lines.16", 16), ((34, 16), "lines.32", 17),
     ((1, 64), "lines.16", 1), ((128, 32), "lines.32", 32)],
)  # fmt: skip
def test_the_shortest_length_that_holds_it_answers(
    size: tuple[int, int], task: str, width: int
) -> None:
    parsed = asked(white(*size), lines(1, 8, -1, follows=True))
    assert (parsed.task.name, parsed.lengths) == (task, (width,))
    assert parsed.tensors[0].shape == (1, 1, 8, parsed.task.inputs[0].shape[2])


def test_a_picture_is_the_row_that_its_numbers_are() -> None:
    pixels = np.arange(8 * 12).reshape(8, 12) * 2
    [tensor] = asked(picture(pixels), lines(1, 8, -1)).tensors
    assert tensor[0, 0, :, :12] == pytest.approx((pixels / 255 - 0.5) / 0.5)


def test_one_that_a_camera_has_turned_is_measured_upright() -> None:
    turned = white(8, 32, kind="JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03"
                   b"\0\0\0\x01\0\x06\0\0\0\0\0\0")  # fmt: skip
    parsed = asked(turned, lines(1, 8, -1))
    assert (parsed.task.name, parsed.query.rows) == ("lines.32", 1)


def test_what_is_too_wide_is_refused_with_how_wide_it_may_be() -> None:
    with pytest.raises(InvalidInput, match=r"33 wide at the height of 8, .* up to 32: send"):
        asked(white(66, 16), lines(1, 8, -1))
    with pytest.raises(PayloadTooLarge, match="pixels at the task's height, and may have"):
        asked(white(60_000, 1), lines(1, 300, -1))


@pytest.mark.parametrize("shape", [(-1,), (1, -1, 8), (-1, 8)], ids=["words", "height", "speech"])
def test_rows_that_are_open_elsewhere_take_no_pictures(shape: tuple[int, ...]) -> None:
    tasks = lines(*shape)
    with pytest.raises(InvalidInput, match=r"^task 'lines' takes no image: "):
        asked(white(8, 8), tasks)
    assert ImageSchema.of(tasks.bucketed[TaskName("lines")].face) is None


def test_the_task_says_that_pictures_keep_their_form() -> None:
    described = ImageSchema.of(lines(3, 48, -1).bucketed[TaskName("lines")].face)
    assert described is not None
    assert (described.width, described.height, described.mean) == (-1, 48, [0.5])


def test_a_length_that_is_asked_by_its_own_name_stretches_as_any_task_does() -> None:
    [tensor] = asked(white(66, 16), lines(1, 8, -1), "lines.16").tensors
    assert tensor.shape == (1, 1, 8, 16)
    assert tensor == pytest.approx(1.0)
