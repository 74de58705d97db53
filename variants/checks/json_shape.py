"""Reading JSON from an untrusted file: bounded in size and depth, then checked against a shape.

A shape is a function that takes a value and raises ``Misfit`` unless it fits. Nothing that is not
described is let through: not a field more, and no value of another type.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from variants.errors import InvalidArtifact

Shape = Callable[[Any], None]
"""Takes a value, and raises ``Misfit`` unless the value fits."""

INT64 = 2**63 - 1
_SHOWN = 80
_CONSTANTS = {None: "null", True: "true", False: "false"}


class Misfit(Exception):
    """Where a value does not fit, and what it should be, as the rest of a sentence."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []
        """Innermost first."""

    def __str__(self) -> str:
        where = "".join(reversed(self.path)).lstrip(".")
        return f"{where[-2 * _SHOWN :]} {self.what}".lstrip()

    def of(self, document: str) -> str:
        """The whole sentence: what does not fit is a value in the document, or the document."""
        return f"{document}{':' if self.path else ''} {self}"


def read_json(data: bytes, *, where: str, max_depth: int) -> Any:
    """The value that a document holds.

    Raises:
        InvalidArtifact: it is no JSON, or it is nested too deeply. The sentence begins with
            ``where``.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refused)
    except RecursionError:
        raise InvalidArtifact(f"{where} is nested too deeply") from None
    except ValueError:  # of decoding and of parsing
        raise InvalidArtifact(f"{where} is not JSON") from None
    level: list[Any] = [value]
    for _ in range(max_depth):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise InvalidArtifact(f"{where} is nested too deeply")


def shown(value: object) -> str:
    """The value as a sentence has it: as JSON writes it, but for quotation marks, and an object in
    words. It is cut where it becomes long; the rest is never written."""
    if type(value) is dict:
        return "an object" if value else "an empty object"
    text = ""
    for piece in _written(value):
        text += piece
        if len(text) > _SHOWN:
            return f"{text[:_SHOWN]}..."
    return text


def _written(value: object) -> Iterator[str]:
    """The text of a value, piece by piece."""
    if type(value) is str:
        yield repr(value[: _SHOWN + 1])
    elif type(value) is list:
        yield "["
        for position, item in enumerate(value):
            yield ", " if position else ""
            yield from _written(item)
        yield "]"
    elif type(value) is dict:
        yield "{...}" if value else "{}"
    elif value is None or type(value) is bool:
        yield _CONSTANTS[value]
    else:
        yield repr(value)


def text(pattern: str, what: str) -> Shape:
    """Text that the pattern matches as a whole; ``what`` it is called in a sentence."""
    matches = re.compile(pattern).fullmatch

    def check(value: Any) -> None:
        if not isinstance(value, str) or not matches(value):
            raise Misfit(f"is {shown(value)}, which is not {what}")

    return check


def one_of(*values: object) -> Shape:
    """One of these values and of the same type: 1 is not true."""
    allowed = {(type(value), value) for value in values}
    told = " or ".join(map(shown, values)) if len(values) < 5 else "one of those known here"

    def check(value: Any) -> None:
        scalar = isinstance(value, str | int | None)
        if not scalar or (type(value), value) not in allowed:
            raise Misfit(f"is {shown(value)}, not {told}")

    return check


def integer(low: int = -INT64 - 1, high: int = INT64) -> Shape:
    def check(value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            raise Misfit(f"is {shown(value)}, not an integer from {low} to {high}")

    return check


def number(value: Any) -> None:
    """A number, or one of the three that JSON cannot write."""
    if type(value) not in (int, float) and value not in ("Infinity", "-Infinity", "NaN"):
        raise Misfit(f"is {shown(value)}, not a number")


def boolean(value: Any) -> None:
    if type(value) is not bool:
        raise Misfit(f"is {shown(value)}, not true or false")


def optional(shape: Shape) -> Shape:
    """``null``, or a value of the shape."""

    def check(value: Any) -> None:
        if value is not None:
            shape(value)

    return check


def list_of(shape: Shape) -> Shape:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise Misfit(f"is {shown(value)}, not a list")
        for position, item in enumerate(value):
            _at(f"[{position}]", shape, item)

    return check


def map_of(key: Shape, shape: Shape) -> Shape:
    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"is {shown(value)}, not an object")
        for name, item in value.items():
            _at(".(a name)", key, name)
            _at(f".{name}", shape, item)

    return check


def record(fields: Mapping[str, Shape], absent: Collection[str] = ()) -> Shape:
    """An object with these fields; those named in ``absent`` may be absent."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"is {shown(value)}, not an object")
        for name, shape in fields.items():
            if name in value:
                _at(f".{name}", shape, value[name])
            elif name not in absent:
                raise Misfit(f"lacks {name!r}")
        for name in value:
            if name not in fields:
                raise Misfit(f"has the field {shown(name)}, which is not known here")

    return check


def union(shapes: Mapping[str, Shape]) -> Shape:
    """An object with exactly one field; the name of the field decides which shape its value has."""

    def check(value: Any) -> None:
        if not isinstance(value, dict) or len(value) != 1:
            raise Misfit(f"is {shown(value)}, not an object with one field")
        ((name, item),) = value.items()
        if name not in shapes:
            raise Misfit(f"is of the kind {shown(name)}, which is not taken here")
        _at(f".{name}", shapes[name], item)

    return check


def recursive(shape: Callable[[], Shape]) -> Shape:
    """A shape that is described further below, or that contains itself."""

    def check(value: Any) -> None:
        shape()(value)

    return check


def _at(step: str, shape: Shape, value: Any) -> None:
    try:
        shape(value)
    except Misfit as misfit:
        misfit.path.append(step)
        raise


def _inside(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
