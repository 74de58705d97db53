"""Numbers in sentences, with as many digits as it takes to be true, and a comma between thousands.

A number that is not zero never reads as zero, two sides of a comparison never read as equal, and
the greater one reads as the greater: all are rounded by the same rule, which keeps their order.
``read_number`` is the reverse.
"""

from collections.abc import Callable, Sequence
from math import floor, isfinite, log10

Writer = Callable[[float, int], str]

TINY = 1e-9
"""Smaller values are written with an exponent."""
MOST_NAMED = 10
"""Names that an error lists at most, of what a file or a model has."""
MOST_DIGITS = 17
"""Significant digits that distinguish any two doubles."""
LOST = 1e-12
"""Part of a whole that arithmetic may lose."""


def read_number(text: str) -> float:
    """The number that a text is, written as JSON and other programs have it.

    ``float`` takes ``1_000`` too, and digits of all scripts.

    Raises:
        ValueError: it is none. Infinity and NaN are numbers here.
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text[:40]!r} is no number")
    return float(text)


def counted(number: int, word: str) -> str:
    """``1 variant``, ``1,200 queries``, ``2 other classes``."""
    if number == 1:
        return f"1 {word}"
    if word.endswith("query"):
        return f"{number:,} {word[:-1]}ies"
    return f"{number:,} {word}{'es' if word.endswith(('s', 'x', 'ch')) else 's'}"


def some_of(names: Sequence[str], most: int) -> str:
    """The first of them, and how many more there are: ``a, b, c and 2 more``."""
    more = f" and {left} more" if (left := len(names) - most) > 0 else ""
    return f"{', '.join(names[:most])}{more}"


def figure(value: float, digits: int = 1) -> str:
    """The value with at most so many decimals, ``1,000``; below 1 with as many as two significant
    digits need, ``0.0065``."""
    if not isfinite(value):
        return str(value)
    decimals = digits
    if 0 < abs(value) < TINY:
        return f"{value:.{max(2, digits)}g}"
    if 0 < abs(value) < 1:
        decimals = max(digits, 1 - floor(log10(abs(value))))
    return _trimmed(value, decimals)


def fixed(value: float, digits: int = 1) -> str:
    """The same with so many decimals at least, zeros or not."""
    text = figure(value, digits)
    if "e" in text or not isfinite(value):
        return text
    return max(text, f"{value:,.{digits}f}", key=len)


def usd(value: float, digits: int = 3) -> str:
    """Prices are small: so many significant digits, and no cents where there are none."""
    if value < TINY or not isfinite(value):
        return figure(value, digits)
    leading = max(0, -floor(log10(value)))
    return _trimmed(value, leading + digits - 1)


def apart(value: float, limit: float, digits: int = 1, write: Writer = figure) -> tuple[str, str]:
    """Two numbers, written so that they read differently where they are."""
    ours, theirs = write(value, digits), write(limit, digits)
    if value == limit:
        return ours, theirs
    for more in range(digits + 1, digits + MOST_DIGITS):
        if _number(ours) != _number(theirs):
            return ours, theirs
        ours, theirs = write(value, more), write(limit, more)
    return repr(value), repr(limit)


def ms(value: float) -> str:
    return f"{figure(value)} ms"


def seconds(value_ms: float) -> str:
    """A time in ms, in seconds."""
    value_s = value_ms / 1_000
    return f"{value_s:,.1f} s" if value_s >= 1 else f"{figure(value_s)} s"


def duration(seconds: float) -> str:
    """About how long something takes, in the unit that suits it: ``40 s``, ``12 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{figure(seconds / 3_600)} h"


def percent(ratio: float) -> str:
    """A share of a whole: "100.0" only where it is all, and "0.0" only where it is nothing.

    What sums of floating-point numbers lose (``LOST``) is not missing.
    """
    if 1.0 - LOST < ratio < 1.0:
        ratio = 1.0
    text = f"{100 * ratio:.1f}"
    if text == "0.0" and ratio > 0:
        return figure(100 * ratio)
    return apart(100 * ratio, 100)[0] if text == "100.0" and ratio < 1 else text


def accuracy_text(share: float) -> str:
    """``91.45 %``, the form of all accuracies that people read; "100.00 %" only where it is all."""
    hundredths = min(9_999, int(10_000 * share + 0.5)) if share < 1 else 10_000 * share
    return f"{hundredths / 100:.2f} %"


def accuracy_floor(share: float) -> str:
    """``95.00 %``, with as many more digits as were asked for: ``99.975 %``."""
    whole, _, decimals = f"{100 * share:.8f}".rstrip("0").partition(".")
    return f"{whole}.{decimals.ljust(2, '0')} %"


def accuracies(ours: float, limit: float) -> tuple[str, str]:
    """Two accuracies, written so that they read differently where they are."""
    texts = accuracy_text(ours), accuracy_text(limit)
    if ours == limit or texts[0] != texts[1]:
        return texts
    ours_text, limit_text = apart(100 * ours, 100 * limit, 3, fixed)
    return f"{ours_text} %", f"{limit_text} %"


def _trimmed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))
