"""A picture as the body of a query: a file, bytes or an image of Pillow, and headers that ask.

Nothing here imports Pillow: an image of it saves itself.
"""

import io
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from controlplane.client.exchange import PATH
from variants.errors import InvalidInput

Picture = Any
"""A path, the bytes of a PNG or JPEG, or an image of Pillow."""
HEADERS = {
    "latency_ms": "SLO-Latency-Ms",
    "accuracy": "SLO-Accuracy",
    "cost": "SLO-Cost",
    "prefer": "SLO-Prefer",
    "variant": "X-Modelless-Variant",
    "model_version": "X-Modelless-Model-Version",
    "priority": "X-Modelless-Priority",
}
"""What a query asks for, and the header that says it beside a picture."""
WHOLE_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
"""Of Pillow's images, those that a PNG holds as they are."""
_JPEG = b"\xff\xd8"


def check_about(inputs: Any, image: Picture, mean: object, std: object) -> None:
    """Refuse a query that is not about either rows or a picture.

    Raises:
        InvalidInput: it is about both, or neither, or says how to read a picture and has none.
    """
    if image is None and (mean is not None or std is not None):
        raise InvalidInput("image_mean and image_std say how an image is read; there is none")
    if inputs is None and image is None:
        raise InvalidInput("a query has inputs, which are rows, or an image")
    if inputs is not None and image is not None:
        raise InvalidInput("a query has inputs or an image, not both")


def picture_query(
    task: str,
    image: Picture,
    needs: Mapping[str, Any],
    *,
    variant: str | None = None,
    mean: float | Iterable[float] | None = None,
    std: float | Iterable[float] | None = None,
) -> tuple[str, bytes, dict[str, str]]:
    """The path, body and headers of a query by picture.

    Args:
        needs: what ``query_document`` takes beside task, inputs and variant, already checked.

    Raises:
        InvalidInput: the file cannot be read, or it is no picture.
    """
    body = picture_bytes(image)
    asked = {**needs, "variant": variant}
    headers = {
        header: str(asked[name]) for name, header in HEADERS.items() if asked.get(name) is not None
    }
    if asked.get("best_effort"):
        headers["X-Modelless-Best-Effort"] = "true"
    for header, numbers in (("Image-Mean", mean), ("Image-Std", std)):
        if numbers is not None:
            headers[header] = str(comma_separated(numbers))
    if wrong := [text for text in headers.values() if not text.isascii() or not text.isprintable()]:
        raise InvalidInput(f"{wrong[0][:40]!r} cannot be asked for: it has no form in a header")
    headers["Content-Type"] = "image/jpeg" if body.startswith(_JPEG) else "image/png"
    return f"{PATH}?task={quote(str(task), safe='')}", body, headers


def picture_bytes(image: Picture) -> bytes:
    """The file that is sent: a PNG or JPEG as it is; what Pillow has in memory becomes a PNG.

    Raises:
        InvalidInput: the file cannot be read, or it is no picture.
    """
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str | PathLike):
        try:
            return Path(fspath(image)).read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(f"image {str(image)[:200]!r} cannot be read: {why}") from error
    if hasattr(image, "save") and hasattr(image, "mode"):
        return _png_of(image)
    raise InvalidInput(
        f"a {type(image).__name__} is no picture: give a path, the bytes of a PNG or JPEG, or an"
        " image of Pillow; arrays are inputs"
    )


def _png_of(image: Any) -> bytes:
    """An image of Pillow as a file, with which way up it is.

    Raises:
        InvalidInput: a PNG of 8 bits cannot hold it.
    """
    if image.mode.startswith(("I", "F")):
        raise InvalidInput("the image has more than 8 bits for a pixel's value")
    kept = image if image.mode in WHOLE_MODES else image.convert("RGB")
    made = io.BytesIO()
    kept.save(made, "PNG", exif=image.getexif())
    return made.getvalue()


def comma_separated(numbers: float | Iterable[float] | str | None) -> str | None:
    """A mean or std as a header and a form have it: ``0.485,0.456,0.406``."""
    if numbers is None or isinstance(numbers, str):
        return numbers
    listed = numbers if isinstance(numbers, Iterable) else [numbers]
    return ",".join(str(float(number)) for number in listed)
