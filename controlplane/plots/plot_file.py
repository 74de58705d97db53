"""``--plot FILE``: a drawing is written as the kind of file that its name asks for."""

from importlib.util import find_spec
from pathlib import Path

from controlplane.plots.drawing import Drawing
from variants.errors import InvalidInput

PICTURES = (".png", ".svg")
"""Drawn by matplotlib; a page (``.html``) needs nothing."""


def check_target(path: Path) -> None:
    """Refuse, before hours of simulation, what could not be written after them.

    Raises:
        InvalidInput: the file has another suffix, its folder is not there, or matplotlib is not.
    """
    kind = path.suffix.lower()
    if kind not in (".html", *PICTURES):
        raise InvalidInput(f"--plot {path}: the name must end in .html, .png or .svg")
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise InvalidInput(f"--plot {path} cannot be written: {what}")
    if kind in PICTURES and find_spec("matplotlib") is None:
        raise InvalidInput(
            f"--plot {path} needs matplotlib: `pip install 'modelless[plot]'`, or a name in .html"
        )


def write_plot(path: Path, drawing: Drawing) -> None:
    """Write a drawing as the kind of file that its suffix says.

    Raises:
        InvalidInput: it cannot be written.
    """
    check_target(path)
    try:
        path.write_bytes(_content(path.suffix.lower(), drawing))
    except OSError as error:
        raise InvalidInput(f"--plot {path} cannot be written: {error.strerror}") from error


def _content(kind: str, drawing: Drawing) -> bytes:
    if kind == ".html":
        from controlplane.plots.page import html

        return html(drawing).encode()
    from controlplane.plots.figures import png, svg

    return svg(drawing) if kind == ".svg" else png(drawing)
