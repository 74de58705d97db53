"""Header lines of an answer that say why its variant was chosen, and its zone."""

from collections.abc import Callable

from planner.types import PlacedReason, Reason

_LINES: dict[str, bytes] = {
    reason: f"x-choice-reason: {reason.value}\r\n".encode("ascii") for reason in Reason
}

reason_line: Callable[[Reason | PlacedReason], bytes] = _LINES.__getitem__
"""The line that says why the variant was chosen."""


def placed_lines(reason: Reason | PlacedReason) -> bytes:
    """The same, and one that says where it was answered and why there, if that is known."""
    line = _LINES[Reason(reason)]
    if not isinstance(reason, PlacedReason):
        return line
    return line + _place_line(reason.place, reason.why)


def lines_from(place: str, why: str) -> Callable[[Reason | PlacedReason], bytes]:
    """The same where all answers are from one place."""
    where = _place_line(place, why)
    return lambda reason: _LINES[Reason(reason)] + where


def _place_line(place: str, why: str) -> bytes:
    words = f"{place}: {why}"
    printable = "".join(sign if " " <= sign <= "~" else "?" for sign in words)
    return b"x-choice-zone: %s\r\n" % printable.encode("ascii")
