"""What the options of models say, read from the texts that are typed."""

from math import isfinite, nan
from pathlib import Path

from variants.errors import InvalidInput
from variants.figures import read_number
from variants.images import number_in, numbers_in
from variants.types import ImageScale

MAX_LABELS_BYTES = 1 << 24
MOST_DIGITS = 9
"""Of a size or a length; more would be above what any model has."""


def parse_kinds(text: str | None) -> tuple[str, ...] | None:
    """``onnx-int8,openvino-bf16`` as its parts; None where nothing was given.

    Whether there are such kinds is checked by the registration.

    Raises:
        InvalidInput: one is empty.
    """
    if text is None:
        return None
    kinds = tuple(kind.strip() for kind in text.split(","))
    if not all(kinds):
        raise InvalidInput(
            f"--variants are kinds such as 'onnx-int8,openvino-bf16', not {text[:40]!r}"
        )
    return kinds


def parse_text_inputs(text: str | None) -> tuple[tuple[str, str], ...]:
    """``ids=tokens,mask=valid`` as pairs.

    Raises:
        InvalidInput: one is no pair.
    """
    pairs = [] if text is None else [part.partition("=")[::2] for part in text.split(",")]
    if not all(role.strip() and name.strip() for role, name in pairs):
        raise InvalidInput(
            f"--text-inputs are names such as 'ids=tokens,mask=valid', not {str(text)[:40]!r}"
        )
    return tuple((role.strip(), name.strip()) for role, name in pairs)


def parse_names(option: str, text: str | None) -> tuple[str, ...]:
    """``pixels,age`` as its names.

    Raises:
        InvalidInput: one is empty.
    """
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InvalidInput(f"{option} are names such as 'pixels,age', not {str(text)[:40]!r}")
    return names


def parse_whole_numbers(option: str, text: str | None, example: str) -> tuple[tuple[str, int], ...]:
    """``height=640,width=640`` as pairs.

    Raises:
        InvalidInput: one is no name and a whole number.
    """
    pairs = [] if text is None else [part.rpartition("=")[::2] for part in text.split(",")]
    for name, size in pairs:
        if not (name.strip() and _is_count(size.strip())):
            raise InvalidInput(
                f"{option} are names and whole numbers, such as {example}, not {str(text)[:40]!r}"
            )
    return tuple((name.strip(), int(size)) for name, size in pairs)


def parse_values(text: str | None) -> tuple[tuple[str, float], ...]:
    """``sr=16000,threshold=0.5`` as pairs.

    Raises:
        InvalidInput: one is no name and a number.
    """
    pairs = [] if text is None else [part.rpartition("=")[::2] for part in text.split(",")]
    found = []
    for name, value in pairs:
        try:
            number = read_number(value)
        except ValueError:
            number = nan
        if not name.strip() or not isfinite(number):
            raise InvalidInput(
                "--fix-inputs are names and numbers, such as 'sr=16000,threshold=0.5', not"
                f" {str(text)[:40]!r}"
            )
        found.append((name.strip(), number))
    return tuple(found)


def parse_labels(text: str) -> tuple[str, ...]:
    """``a,b,c``, or ``@FILE`` with one label on each line.

    Raises:
        InvalidInput: a label is empty, or the file cannot be read.
    """
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            if path.stat().st_size > MAX_LABELS_BYTES:
                raise InvalidInput(f"{path.name} is too large for a list of labels")
            # Editors of Windows begin a file with a mark, which would be part of the first name.
            # Nor are other characters that end a line somewhere the end of a name.
            found = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidInput(f"{path.name}: the labels cannot be read: {reason}") from error
    else:
        found = text.split(",")
    labels = tuple(label.strip() for label in found)
    if not all(labels):
        number = labels.index("") + 1
        at = f"that on line {number} of {text[1:]}" if text.startswith("@") else f"number {number}"
        raise InvalidInput(f"a label is empty, {at}; give them as 'cat,dog' or @FILE")
    return labels


def image_scale(mean: str | None, std: str | None) -> ImageScale | None:
    """How a new task's pictures become numbers; None where nothing was given.

    Raises:
        InvalidInput: a text is no number.
    """
    given = {
        name: numbers_in(text, f"--image-{name}")
        for name, text in (("mean", mean), ("std", std))
        if text is not None
    }
    return ImageScale(**given) if given else None


def parse_lengths(text: str | None) -> tuple[int, ...] | None:
    """``16,64,256`` as its numbers; None where nothing was given.

    Raises:
        InvalidInput: one is no whole number.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_count, parts)):
        raise InvalidInput(f"--lengths are whole numbers, such as '16,64,256', not {text[:40]!r}")
    return tuple(map(int, parts))


def _is_count(text: str) -> bool:
    """Whether it is a whole number that any file may have."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS


def parse_pads(text: str | None) -> tuple[tuple[str, float], ...]:
    """``0``, or ``ids=1,mask=0``, by the names of inputs; a number for all has an empty name.

    Raises:
        InvalidInput: one is no number.
    """
    if text is None:
        return ()
    pairs = [part.rpartition("=")[::2] for part in text.split(",")]
    return tuple((name.strip(), number_in(value, "--pad")) for name, value in pairs)
