"""Pictures of a folder as rows: each becomes numbers as the gateway makes them of a query's."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from controlplane.cli.asking.rows import Spec
from controlplane.cli.batching.row import Row
from variants.buckets import OPEN
from variants.errors import InvalidInput, ModellessError
from variants.images import geometry_of
from variants.types import ImageScale, TensorSpec

ENDINGS = frozenset({".png", ".jpg", ".jpeg"})


class PictureRows:
    """A row of each picture in a folder, by their names; folders in it are not looked into."""

    def __init__(
        self, folder: Path, specs: Sequence[Spec], image: Mapping[str, Any] | None
    ) -> None:
        """``image`` is what the task says of pictures; None: it takes none.

        Raises:
            InvalidInput: there are none, or the task takes none.
        """
        spec = specs[0]
        self._spec = TensorSpec(name=spec["name"], dtype=spec["dtype"], shape=tuple(spec["shape"]))
        geometry = geometry_of(self._spec.shape)
        if image is None or geometry is None:
            raise InvalidInput(f"{folder} is a folder of pictures, and the task takes none")
        if geometry.width == OPEN:
            raise InvalidInput(
                f"{folder} is a folder of pictures, and the task takes them at several widths: ask"
                " with each by `modelless query --image`, or name the task of one length"
            )
        self._geometry = geometry
        self._scale = None
        if image["mean"] is not None:
            self._scale = ImageScale(mean=tuple(image["mean"]), std=tuple(image["std"]))
        self._pictures = pictures_in(folder)
        self.count = len(self._pictures)
        if not self.count:
            raise InvalidInput(f"{folder} has no pictures: {', '.join(sorted(ENDINGS))}")

    def rows(self) -> Iterator[Row]:
        from controlplane.gateway.images.pixels import picture_row

        for number, path in enumerate(self._pictures):
            try:
                made = picture_row(path.read_bytes(), self._spec, self._geometry, self._scale)
            except ModellessError as error:
                yield Row(number=number, values={}, wrong=error.message, file=path.name)
            except OSError as error:
                why = f"it cannot be read: {error.strerror or error}"
                yield Row(number=number, values={}, wrong=why, file=path.name)
            else:
                yield Row(number=number, values={self._spec.name: made}, file=path.name)


def pictures_in(folder: Path) -> list[Path]:
    """The pictures of a folder, by their names.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        found = [path for path in folder.iterdir() if path.suffix.lower() in ENDINGS]
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be read: {error.strerror or error}") from error
    return sorted(found)
