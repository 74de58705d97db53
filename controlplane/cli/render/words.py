"""Numbers, times and values in the words and units that people are shown."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from variants.figures import accuracy_text, figure

LEAST_SHARE = 5e-5
"""Less would read as 0.00 %."""
WITHOUT_KEY = "(without a key)"
"""In the place of a client's name, of queries that came without one."""


def what_is_new(lists: Sequence[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Of each list, the newest first, what the one before it had not; at least its first item."""
    for said, before in zip(lists, (*lists[1:], ()), strict=False):
        yield [one for one in said if one not in before] or said[:1]


def printable(text: str) -> str:
    """Text without control characters: what a server sends must not steer the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def ms(value: float | None) -> str:
    """Milliseconds with three significant digits or so."""
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:,.1f}"


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    if value < 1:
        return f"{ms(1_000 * value)} ms"
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


def percent(value: float | None) -> str:
    """A share of a whole with two decimals, as the page has it: 100 only where it is all, and 0
    only where it is nothing."""
    if value is None:
        return "-"
    if 0 < value < LEAST_SHARE:
        return f"{figure(100 * value)} %"
    return accuracy_text(value)


def half_interval(variant: Mapping[str, Any]) -> str:
    """Half of the 95 % interval of a variant's accuracy, in percent, where it has one."""
    if variant.get("accuracy_low") is None:
        return "-"
    return f"{50 * (variant['accuracy_high'] - variant['accuracy_low']):.2f}"


def interval(variant: Mapping[str, Any]) -> str:
    """The rest of a sentence on a variant's accuracy: the interval, where it has one."""
    low, high = variant["accuracy_low"], variant["accuracy_high"]
    return "" if low is None else f"; 95 % sure of {percent(low)} to {percent(high)}"


def usd(value: float | None) -> str:
    """A price with two significant digits, never in scientific notation."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    from math import floor, log10

    return f"{value:.{max(2, 1 - floor(log10(abs(value))))}f}"


def usd_per_million(usd_per_1k: float | None) -> str:
    """A price per 1,000 queries as that of a million: few have as many zeros."""
    return usd(None if usd_per_1k is None else 1_000 * usd_per_1k)


def rate(value: float) -> str:
    """A throughput: three significant digits, as more are not known."""
    return f"{float(f'{value:.3g}'):,.0f}"


def mib(value: float | None) -> str:
    """Memory and sizes; of a small file as many digits as say more than that it is there."""
    if value is None:
        return "-"
    if 0 < value < 0.05:  # or it would be 0.0
        return figure(value)
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def joules(value: float | None) -> str:
    """Energy; a dash where it was not measured."""
    return "-" if value is None else figure(value, 2)


def clock(at: str) -> str:
    """A point in time in UTC, as sentences of the product have it, or the text itself."""
    told = clock_cell(at)
    return told if told == at else f"{told} UTC"


def clock_cell(at: str) -> str:
    """The same without the zone, for a column whose head names it."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return at


def wanted_words(row: Mapping[str, Any]) -> str:
    """``cpu-4: 3 wanted, 1 running``, of a row of the inventory."""
    words = f"{row['device_kind']}: {row['wanted']} wanted, {row['running']} running"
    if row.get("silent"):
        words += f", {row['silent']} not answering"
    if row["draining"]:
        words += f", {row['draining']} draining"
    if row["wanted"] != row["asked"]:
        words += f" (the plan decides, up to {row['asked']})"
    return printable(words)


def tensor(spec: Mapping[str, Any]) -> str:
    """``pixels float32[64]``."""
    return f"{spec['name']} {spec['dtype']}[{', '.join(map(str, spec['shape']))}]"


def left_words(done: int, total: int, spent_s: float) -> str:
    """How long the rest takes if it goes on as so far; empty while nothing says so."""
    if not 0 < done < total:
        return ""
    left_s = spent_s * (total - done) / done
    if left_s < 10:
        return "some seconds left"
    if left_s < 95:
        return f"about {round(left_s, -1):,.0f} s left"
    return f"about {left_s / 60:.0f} min left"
