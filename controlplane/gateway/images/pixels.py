"""A picture as one row of a task's input.

It is turned as its camera says, stretched to the input's height and width, and made grey or RGB by
the input's channels. An input of floats gets ``(value / 255 - mean) / std`` of each pixel, by what
the query says, else the task, else with 0 and 1; one of whole numbers gets the values from 0 to
255.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from controlplane.gateway.images.asked import BESIDE
from controlplane.gateway.query.parsing import ParsedQuery, query_v1
from controlplane.gateway.query.query_fields import task_of
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
    task = task_of(asked["task"], tasks)
    spec, geometry = image_input(task)
    document = {name: asked[name] for name in DOCUMENT if asked[name] is not None}
    query = query_v1(document, task, 1, received_ms, draw)
    row = picture_row(body, spec, geometry, task.image, mean=asked["mean"], std=asked["std"])
    return ParsedQuery(task, query, [row[None]])


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
    pixels = _pixels(body, geometry)
    if geometry.first:
        pixels = pixels.transpose(2, 0, 1)
    row = _values(pixels, spec, geometry, usual, mean, std)
    return np.ascontiguousarray(row).reshape(spec.shape)


def _pixels(body: bytes | bytearray, geometry: Geometry) -> Tensor:
    """The picture as bytes of shape (height, width, channels)."""
    mode = "L" if geometry.channels == GREY else "RGB"
    size = geometry.width, geometry.height
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise PayloadTooLarge(
                    f"the image has {image.width} x {image.height} pixels, and may have"
                    f" {MOST_PIXELS:,} in all"
                )
            if image.mode.startswith(("I", "F")):
                raise InvalidInput("the image has more than 8 bits for a pixel's value")
            image.draft(mode, (FINER * max(size),) * 2)  # whichever side it is turned to
            upright = ImageOps.exif_transpose(image)
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
    return pixels.reshape(geometry.height, geometry.width, geometry.channels)


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
