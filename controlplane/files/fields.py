"""What one column of a planning file may hold.

A field reads a whole column at once, and only when that fails one text after the other, to say
which one is wrong and why.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from planner.energy import DAY_HOURS
from variants.catalog.validity.peaks import MOST_FACTOR, MOST_QPS
from variants.figures import read_number

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+/-]{0,127}")
"""What a name in a file may be: wider than ``variants.types.NAME``, because catalogs of others name
their variants ``vit_base.augreg@384``; use ``FILE_NAME.fullmatch``."""

Numbers = NDArray[np.float64]


class Wrong(ValueError):
    """A text that a field does not accept; it says what is wrong with it."""


class Field(Protocol):
    """How a column is read."""

    def many(self, texts: Sequence[str]) -> Sequence[str] | Numbers:
        """A column. Raises ``ValueError`` when anything in it is wrong."""
        ...

    def one(self, text: str) -> object:
        """A single text. Raises ``Wrong`` with the reason."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A task, model, variant or device kind."""

    blank: bool = False
    """Whether it may be left blank."""

    def many(self, texts: Sequence[str]) -> Sequence[str]:
        for text in set(texts):
            self.one(text)
        return texts

    def one(self, text: str) -> str:
        if not text and self.blank:
            return text
        if not text:
            raise Wrong("it is blank")
        if not FILE_NAME.fullmatch(text):
            raise Wrong(
                f"{quoted(text)} cannot be a name: letters, digits and . _ @ : + / - are possible, "
                "a letter or digit first, at most 128"
            )
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A finite number from ``least`` to ``most``."""

    least: float = 0.0
    most: float
    above: bool = False
    """``least`` itself is not allowed."""
    whole: bool = False
    blank: float | None = None
    """What a blank means; None: it must not be blank."""

    def many(self, texts: Sequence[str]) -> Numbers:
        joined = "".join(texts)
        # ``float`` reads 1_000 and digits of other scripts; a file that holds them is wrong.
        if "_" in joined or not joined.isascii():
            raise ValueError
        blanks = 0 if self.blank is None else texts.count("")
        if blanks:
            instead = str(self.blank)
            texts = [text or instead for text in texts]
        values = np.fromiter(map(float, texts), np.float64, len(texts))
        # What is not a number is neither above nor below anything.
        allowed = (values > self.least) if self.above else (values >= self.least)
        allowed &= values <= self.most
        if self.whole:
            allowed &= np.floor(values) == values
        # A blank may stand for an infinite value, which no text may say.
        refused = blanks if isinf(self.blank or 0.0) else 0
        if np.count_nonzero(allowed) != len(texts) - refused:
            raise ValueError
        return values

    def one(self, text: str) -> float:
        if not text:
            if self.blank is None:
                raise Wrong("it is blank")
            return self.blank
        try:
            value = read_number(text)
        except ValueError:
            raise Wrong(f"{quoted(text)} is not a number") from None
        if not isfinite(value):
            raise Wrong(f"{quoted(text)} is not a finite number")
        if self.whole and value != int(value):
            raise Wrong(f"{quoted(text)} is not a whole number")
        if value < self.least or (self.above and value == self.least):
            relation = "above" if self.above else "at least"
            raise Wrong(f"{quoted(text)} is not {relation} {_short(self.least)}")
        if value > self.most:
            raise Wrong(f"{quoted(text)} is above {_short(self.most)}, the most that is possible")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """One number, or 24 of them separated by blanks: one for each hour of the day. May be blank."""

    each: Number

    def many(self, texts: Sequence[str]) -> Sequence[str]:
        for text in set(texts):
            self.one(text)
        return texts

    def one(self, text: str) -> tuple[float, ...]:
        values = tuple(self.each.one(part) for part in text.split())
        if len(values) not in (0, 1, DAY_HOURS):
            raise Wrong(f"{quoted(text)} holds {len(values)} numbers, not 1 or {DAY_HOURS}")
        return values


def quoted(text: str) -> str:
    """A text as a sentence can hold it: printable, in quotes, not too long."""
    shown = text if len(text) <= 40 else text[:37] + "..."
    return "'" + "".join(char if char.isprintable() else "?" for char in shown) + "'"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


MAX_BATCH = 65_536
MAX_LATENCY_MS = 3_600_000.0
MAX_COUNT = 100_000
MAX_SECOND = 31_622_400.0
"""A leap year: a trace counts from its own beginning, not from 1970."""
MAX_QPS = 1e9

NAME = Name()
NAME_OR_ALL = Name(blank=True)
SHARE = Number(most=1.0)
LATENCY_MS = Number(above=True, most=MAX_LATENCY_MS)
BATCH_SIZE = Number(least=1, most=MAX_BATCH, whole=True)
COUNT = Number(most=MAX_COUNT, whole=True)
NEEDED_MIB = Number(most=1e9, blank=0.0)
LIMIT_MIB = Number(most=1e9, blank=inf)
LOAD_S = Number(most=1e6, blank=0.0)
PRICE = Number(most=1e6)
INTERFERENCE = Number(most=100.0, blank=0.0)
RATE = Number(most=MAX_QPS)
FLOOR = Number(most=1.0, blank=-inf)
CEILING = Number(most=1e9, blank=inf)
SECOND = Number(most=MAX_SECOND)
WHOLE_SECOND = Number(most=MAX_SECOND, whole=True)
FACTOR = Number(least=1, most=MOST_FACTOR, blank=inf)
ENERGY_J = Number(most=1e9, blank=inf)
IDLE_W = Number(most=1e7, blank=inf)
CARBON = Daily(each=Number(most=1e5))
DECLARED_RATE = Number(above=True, most=MOST_QPS, blank=inf)
PERIOD_S = Number(most=MAX_SECOND, blank=0.0)
