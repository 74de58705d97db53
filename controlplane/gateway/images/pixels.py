"""A picture as one row of a task's input.

It is turned as its camera says, stretched to the input's height and width, and made grey or RGB by
the input's channels. An input of floats gets ``(value / 255 - mean) / std`` of each pixel, by what
the query says, else the task, else with 0 and 1; one of whole numbers gets the values from 0 to
255.

Of a task for rows of several lengths along the width, it is as wide as it is at the input's height,
and filled up on the right to the next length as all rows are.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from controlplane.gateway.images.asked import BESIDE
from controlplane.gateway.lengths.filling import filled_tensor
from controlplane.gateway.query.parsing import ParsedQuery, query_v1
from controlplane.gateway.query.query_fields import AskedByLength, task_of
from variants.buckets import OPEN, BucketedTask
from variants.errors import InvalidInput, ModellessError, PayloadTooLarge
from variants.figures import counted
from variants.images import GREY, Geometry, image_input
from variants.types import ImageScale, Task, TaskName, TensorSpec
from workers.runtimes.protocol import Tensor

Image.preinit()
FORMATS = ("PNG", "JPEG")
MOST_PIXELS = 2**24
"""Of the picture as it is sent."""
FINER = 2
"""A JPEG is unpacked in a half, a quarter or an eighth of its size, which takes a half of the time,
if each side of that is still so many times as long as the input's. With 1 a picture of 640 x 480
for an input of 224 x 224 was 10 % of its contrast away from the one that is unpacked whole."""
DOCUMENT = ("slo", *BESIDE.values())
"""What is asked as by the fields of a JSON body."""


def parse_image(
    body: bytes | bytearray,
    asked: Mapping[str, Any],
    tasks: Mapping[TaskName, Task],
    received_ms: float,
    draw: int,
) -> ParsedQuery:
    """Read a query by image.

    Args:
        asked: as ``asked_by_image`` gives it.

    Raises:
        InvalidInput: the body is no picture, or the task takes none.
        PayloadTooLarge: it has too many pixels.
        TaskNotFound: there is no such task.
    """
    document = {name: asked[name] for name in DOCUMENT if asked[name] is not None}
    scale = {"mean": asked["mean"], "std": asked["std"]}
    try:
        task = task_of(asked["task"], tasks)
    except AskedByLength as by:
        task, row, width = row_of_length(body, by.task, **scale)
        query = query_v1(document, task, 1, received_ms, draw)
        return ParsedQuery(
            task, query, [row[None]], lengths=(width,) if by.task.following else None
        )
    spec, geometry = image_input(task)
    query = query_v1(document, task, 1, received_ms, draw)
    row = picture_row(body, spec, geometry, task.image, **scale)
    return ParsedQuery(task, query, [row[None]])


def row_of_length(
    body: bytes | bytearray,
    of: BucketedTask,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> tuple[Task, Tensor, int]:
    """The shortest task of several lengths that holds a picture, the picture as a row of its input,
    and how wide it is in that.

    Raises:
        InvalidInput: as ``picture_row``; or it is wider than the longest, or the task's rows are
            not open along the width of pictures.
        PayloadTooLarge: it has too many pixels.
    """
    spec, geometry = image_input(of.face)
    axis = of.axes[0]
    if geometry.width != OPEN:
        raise InvalidInput(
            f"task {of.name!r} takes no image: its rows may have any length along axis"
            f" {axis.axis} of {list(spec.shape)}, and a picture has a height that is given and any"
            " width"
        )
    pixels = _pixels(body, geometry)
    width = pixels.shape[1]
    if width > of.lengths[-1]:
        raise InvalidInput(
            f"the image is {width} wide at the height of {geometry.height}, and task {of.name!r}"
            f" takes up to {of.lengths[-1]}: send it in parts"
        )
    task = of.holding(width)
    row = _row(pixels, of.inputs_at(width)[0], geometry, task.image, mean, std)
    return task, filled_tensor(row[None], task.inputs[0], axis)[0], width


def picture_row(
    body: bytes | bytearray,
    spec: TensorSpec,
    geometry: Geometry,
    usual: ImageScale | None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Tensor:
    """A picture as a row ``spec.shape`` of an input.

    Args:
        usual: how pictures of the task become numbers, where ``mean`` and ``std`` say nothing.

    Raises:
        InvalidInput: it is no picture, or the numbers do not suit the input.
        PayloadTooLarge: it has too many pixels.
    """
    return _row(_pixels(body, geometry), spec, geometry, usual, mean, std)


def _row(
    pixels: Tensor,
    spec: TensorSpec,
    geometry: Geometry,
    usual: ImageScale | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> Tensor:
    """Pixels as a row ``spec.shape``."""
    if geometry.first:
        pixels = pixels.transpose(2, 0, 1)
    row = _values(pixels, spec, geometry, usual, mean, std)
    return np.ascontiguousarray(row).reshape(spec.shape)


def _pixels(body: bytes | bytearray, geometry: Geometry) -> Tensor:
    """The picture as bytes of shape (height, width, channels); where the width is open, as wide as
    it is at that height."""
    mode = "L" if geometry.channels == GREY else "RGB"
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise PayloadTooLarge(
                    f"the image has {image.width} x {image.height} pixels, and may have"
                    f" {MOST_PIXELS:,} in all"
                )
            if image.mode.startswith(("I", "F")):
                raise InvalidInput("the image has more than 8 bits for a pixel's value")
            longest = max(geometry.width, geometry.height)
            image.draft(mode, (FINER * longest,) * 2)  # whichever side it is turned to
            upright = ImageOps.exif_transpose(image)
            size = _width(upright, geometry), geometry.height
            made = upright.convert(mode).resize(size, Image.Resampling.BILINEAR)
    except (MemoryError, ModellessError):
        raise
    except UnidentifiedImageError:
        raise InvalidInput(f"the body is no image of these formats: {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError as error:
        raise PayloadTooLarge(f"the image has too many pixels: {error}") from None
    except Exception as error:  # whatever a damaged file makes of its readers
        raise InvalidInput(f"the image cannot be read: {error}") from None
    pixels: Tensor = np.asarray(made)
    return pixels.reshape(geometry.height, size[0], geometry.channels)


def _width(image: Image.Image, geometry: Geometry) -> int:
    """How wide a picture that is upright becomes."""
    if geometry.width != OPEN:
        return geometry.width
    width = max(1, round(image.width * geometry.height / image.height))
    if width * geometry.height > MOST_PIXELS:
        raise PayloadTooLarge(
            f"the image would have {width} x {geometry.height} pixels at the task's height, and may"
            f" have {MOST_PIXELS:,} in all"
        )
    return width


def _values(
    pixels: Tensor,
    spec: TensorSpec,
    geometry: Geometry,
    usual: ImageScale | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> Tensor:
    """Pixels as the values of an input, in its dtype."""
    dtype = np.dtype(spec.dtype)
    if dtype.kind != "f":
        if mean is not None or std is not None:
            raise InvalidInput(
                f"the task's input is {spec.dtype}, and Image-Mean and Image-Std are for floats"
            )
        return pixels.astype(dtype)
    by_channel = (geometry.channels, 1, 1) if geometry.first else (1, 1, geometry.channels)
    usual = usual or ImageScale()
    means, stds = (
        np.broadcast_to(_for_each(told, of_task, geometry.channels), geometry.channels)
        for told, of_task in ((mean, usual.mean), (std, usual.std))
    )
    scaled: Tensor = (pixels / 255.0 - means.reshape(by_channel)) / stds.reshape(by_channel)
    return scaled.astype(dtype)


def _for_each(
    told: Sequence[float] | None, usual: Sequence[float], channels: int
) -> Sequence[float]:
    if told is None:
        return usual
    if len(told) not in (1, channels):
        raise InvalidInput(
            f"the task's input has {counted(channels, 'channel')}, and Image-Mean or Image-Std"
            f" {counted(len(told), 'number')}"
        )
    return told
