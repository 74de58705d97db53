"""Reading JSON from a stranger: bounded in size and depth, then held against a described shape.

A kind is a function that takes a value and raises ``Misfit`` unless it fits. Nothing that is not
described is let through: not a field more, and no value of another type.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from variants.errors import InvalidArtifact

Kind = Callable[[Any], None]

INT64 = 2**63 - 1
_SHOWN = 80


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


def read_json(data: bytes, *, where: str, max_depth: int) -> Any:
    """The value that a document holds.

    Raises:
        InvalidArtifact: it is no JSON, or it is nested too deeply. The sentence begins with
            ``where``.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refused)
    except RecursionError:
        raise InvalidArtifact(f"{where}: is nested too deeply") from None
    except ValueError:  # of decoding and of parsing
        raise InvalidArtifact(f"{where}: is not JSON") from None
    level: list[Any] = [value]
    for _ in range(max_depth):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise InvalidArtifact(f"{where}: is nested too deeply")


def shown(value: object) -> str:
    """As it would be written, cut where it becomes long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def text(pattern: str, what: str) -> Kind:
    """Text that the pattern matches as a whole; ``what`` it is called in a sentence."""
    matches = re.compile(pattern).fullmatch

    def check(value: Any) -> None:
        if not isinstance(value, str) or not matches(value):
            raise Misfit(f"is {shown(value)}, which is not {what}")

    return check


def one_of(*values: object) -> Kind:
    """One of these values, and of its type: 1 is not true."""
    allowed = {(type(value), value) for value in values}
    told = " or ".join(map(repr, values)) if len(values) < 5 else "one of those known here"

    def check(value: Any) -> None:
        scalar = isinstance(value, str | int | None)
        if not scalar or (type(value), value) not in allowed:
            raise Misfit(f"is {shown(value)}, not {told}")

    return check


def integer(low: int = -INT64 - 1, high: int = INT64) -> Kind:
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


def optional(kind: Kind) -> Kind:
    """``null``, or a value of the kind."""

    def check(value: Any) -> None:
        if value is not None:
            kind(value)

    return check


def list_of(kind: Kind) -> Kind:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise Misfit(f"is {shown(value)}, not a list")
        for position, item in enumerate(value):
            _at(f"[{position}]", kind, item)

    return check


def map_of(key: Kind, kind: Kind) -> Kind:
    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"is {shown(value)}, not an object")
        for name, item in value.items():
            _at(".(a name)", key, name)
            _at(f".{name}", kind, item)

    return check


def record(fields: Mapping[str, Kind], absent: Collection[str] = ()) -> Kind:
    """An object with these fields; those named in ``absent`` may be absent."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"is {shown(value)}, not an object")
        for name, kind in fields.items():
            if name in value:
                _at(f".{name}", kind, value[name])
            elif name not in absent:
                raise Misfit(f"lacks {name!r}")
        for name in value:
            if name not in fields:
                raise Misfit(f"has the field {shown(name)}, which is not known here")

    return check


def union(kinds: Mapping[str, Kind]) -> Kind:
    """An object with exactly one field, whose name says of which kind it is."""

    def check(value: Any) -> None:
        if not isinstance(value, dict) or len(value) != 1:
            raise Misfit(f"is {shown(value)}, not an object with one field")
        ((name, item),) = value.items()
        if name not in kinds:
            raise Misfit(f"is of the kind {shown(name)}, which is not taken here")
        _at(f".{name}", kinds[name], item)

    return check


def recursive(kind: Callable[[], Kind]) -> Kind:
    """A kind that is described further below, or holds itself."""

    def check(value: Any) -> None:
        kind()(value)

    return check


def _at(step: str, kind: Kind, value: Any) -> None:
    try:
        kind(value)
    except Misfit as misfit:
        misfit.path.append(step)
        raise


def _inside(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
