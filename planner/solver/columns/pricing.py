"""The best device at given prices: which variants it holds, and what part of which class it serves.

What a class is worth on a device is a concave function of the part that is served: pieces, each
worth less per part than the one before. On one device time and memory are short. Time can be
divided, so the last piece that finds room may be taken in part; memory cannot. That is a knapsack
in two dimensions with one fractional item (Kellerer, Pferschy and Pisinger, Knapsack Problems,
2004, chapters 9 and 10). It is solved by labels: pieces in the order of worth per time, every set
that fits is a label, and a label is dropped once what it has and what it could still get
(``completion``) is no better than the best found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.solver.capacity import SLACK
from planner.solver.columns.column import Array, Bits, Flags, Indices
from planner.solver.columns.completion import Completion, FilledMemory, PricedMemory
from planner.solver.columns.lagrange import Relaxed, relaxed

SIFTED = 2
"""So often pieces are left out that no good device has; each time the others promise less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What a device could serve: one entry, or one row of bits, per option."""

    time: Array
    """Of a device, to serve the whole class."""
    memory: Array
    """Of a device, for the offer; taken once, however many classes it serves."""
    own: Array
    """The same; 0 where other options are of the same offer, because it may be there already."""
    charges: Sequence[Array]
    """Ways to charge for the memory of an offer, divided among its options."""
    classes: Indices
    """The class: a device serves it by one offer."""
    offers: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What options are worth, along the part that is served; by option, then by part, ascending."""

    option: Indices
    """Into the items."""
    part: Array
    """Of the class, beside what the pieces before it are."""
    worth: Array
    """Of this part; per part, it falls from piece to piece."""

    def at(self, kept: Indices | Flags) -> "Pieces":
        return Pieces(option=self.option[kept], part=self.part[kept], worth=self.worth[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The best devices found, and what none can be worth more than."""

    bound: float
    devices: tuple[dict[int, float], ...]
    """Item to the part of its class that is served; only those worth more than enough."""
    looked: int = 0
    """Sets that were looked at, once in each step."""


def best_devices(
    items: Items,
    pieces: Pieces,
    *,
    enough: float,
    labels: int,
    most: int,
    few: int | None = None,
    filled: bool = False,
) -> Priced:
    """The devices that are worth most.

    Args:
        items: what a device could serve.
        pieces: what that is worth.
        enough: devices worth no more than this are of no interest; positive.
        labels: most sets that are kept of each step; what is dropped beyond counts in the bound.
        most: devices to return.
        few: most pieces that are looked at, those that promise most; then ``bound`` means nothing.
        filled: whether what may still come to a set must find room in its memory, instead of paying
            for it: fewer sets are looked at, each for longer.

    Returns:
        ``bound`` is what no device is worth more than, and at least ``enough``.
    """
    pieces = pieces.at((pieces.worth > 0) & (items.memory[pieces.option] <= 1 + SLACK))
    if not pieces.option.size:
        return Priced(bound=enough, devices=())
    time = items.time[pieces.option] * pieces.part
    found = relaxed(pieces.option, time, pieces.worth, items.charges, enough)
    for turn in range(SIFTED):
        promise = _promise(items, pieces.option, found)
        kept = promise > enough
        if few is not None and turn == SIFTED - 1 and kept.sum() > few:
            kept &= promise > np.partition(promise, -few)[-few]
        if not kept.any():
            return Priced(bound=enough, devices=())
        pieces, found = pieces.at(kept), found.at(kept)
    search = _Search(items, pieces, found, enough=enough, labels=labels, filled=filled)
    search.run()
    return Priced(bound=search.bound, devices=tuple(search.devices(most)), looked=search.looked)


def _promise(items: Items, option: Indices, found: Relaxed) -> Array:
    """What a device with a part of each piece is worth at most.

    It has all pieces of the option before that one, and nothing that has no room beside it.
    """
    options = option[found.first]
    memory, classes = items.own[options], items.classes[options]
    beside = memory[:, None] + memory <= 1 + SLACK
    beside &= classes[:, None] != classes
    others = found.prices.sum(axis=1)[:, None] + found.group @ beside.T
    loss = found.surplus - found.positive
    before = np.cumsum(loss, axis=1) - loss
    before -= before[:, found.first][:, found.of]
    promise: Array = (found.total - found.charge + others)[:, found.of] + before
    best: Array = promise.min(axis=0)
    return best


class _Labels:
    """Sets of pieces that a device serves whole: one column of every array for each set."""

    __slots__ = ("bits", "number", "values")

    number: Indices
    values: Array
    """Rows: time, memory, memory divided among the options of an offer, worth; then, for each price
    or pair of prices, what the limits and all that is in it are worth, and what may still come of
    its options."""
    bits: Bits
    """Rows: words of the classes in it, of the offers, and of the options of which it has all
    pieces so far."""

    def __init__(self, number: Indices, values: Array, bits: Bits) -> None:
        self.number, self.values, self.bits = number, values, bits

    def at(self, chosen: Indices) -> "_Labels":
        return _Labels(
            self.number[chosen], self.values.take(chosen, axis=1), self.bits.take(chosen, axis=1)
        )

    def joined(self, other: "_Labels") -> "_Labels":
        return _Labels(
            np.concatenate([self.number, other.number]),
            np.concatenate([self.values, other.values], axis=1),
            np.concatenate([self.bits, other.bits], axis=1),
        )


class _Bits:
    """One bit for each different one of what pieces belong to."""

    __slots__ = ("bit", "word", "words")

    def __init__(self, groups: Indices, first: int) -> None:
        """``first`` is the row of the first word; there is one group for each piece."""
        at = np.unique(groups, return_inverse=True)[1]
        self.word: list[int] = (first + at // 64).tolist()
        self.bit: Bits = np.uint64(1) << (at % 64).astype(np.uint64)
        self.words = int(at.max()) // 64 + 1


TIME, MEMORY, CHARGED, WORTH, PROMISE = range(5)
"""Rows of a label's values."""


class _Search:
    """Labels over pieces in the order of worth per time; of one option, they keep theirs."""

    __slots__ = (
        "begun", "best", "bound", "charge", "classes", "completion", "enough", "first", "found",
        "items", "labels", "looked", "memory", "offers", "option", "own", "part", "steps", "time",
        "worth",
    )  # fmt: skip

    def __init__(
        self,
        items: Items,
        pieces: Pieces,
        found: Relaxed,
        *,
        enough: float,
        labels: int,
        filled: bool,
    ) -> None:
        self.items = items
        self.best = self.bound = self.enough = enough
        self.labels = labels
        self.looked = 0
        time = items.time[pieces.option] * pieces.part
        order = np.argsort(-pieces.worth / np.maximum(time, 1e-12), kind="stable")
        self.option, self.part = pieces.option[order], pieces.part[order]
        self.classes = _Bits(items.classes[self.option], 0)
        self.offers = _Bits(items.offers[self.option], self.classes.words)
        self.begun = _Bits(self.option, self.classes.words + self.offers.words)
        self.memory: list[float] = items.memory[self.option].tolist()
        self.own: list[bool] = (items.own[self.option] == items.memory[self.option]).tolist()
        """Whether no other option has its offer."""
        self.time: list[float] = time[order].tolist()
        self.worth: list[float] = pieces.worth[order].tolist()
        self.first: list[bool] = found.first[order].tolist()
        charge = items.charges[0][pieces.option]
        self.charge: list[float] = charge[order].tolist()
        self.completion: Completion = PricedMemory(found, order)
        if filled:
            self.completion = FilledMemory(
                found, order, time=time, worth=pieces.worth, memory=charge
            )
        self.steps: list[tuple[Indices, int, int]] = []
        """The labels that one piece was added to, the piece, and the first of the new labels."""
        self.found: list[tuple[float, int, int, float]] = []
        """Worth, the label before the last piece, that piece, and how much of it."""

    def run(self) -> None:
        words = self.classes.words + self.offers.words + self.begun.words
        values = np.concatenate([np.zeros(PROMISE), self.completion.start])[:, None]
        bits = np.zeros((words, 1), dtype=np.uint64)
        labels = _Labels(np.zeros(1, dtype=np.int64), values, bits)
        for step in range(len(self.time)):
            labels = self._alive(labels, step)
            if not labels.number.size:
                break
            self.looked += labels.number.size
            labels = self._begin(labels, step) if self.first[step] else self._go_on(labels, step)
        self.bound = max(self.bound, self.best * (1 + 1e-9))

    def _alive(self, labels: _Labels, step: int) -> _Labels:
        """The labels that may still become better than the best."""
        rest = self.completion.rest(step, labels.values[CHARGED])
        promise = np.minimum.reduce(labels.values[PROMISE:] + rest, axis=0)
        alive = (promise > self.best * (1 + 1e-9)).nonzero()[0]
        if alive.size > self.labels:
            ranked = alive[np.argsort(-promise[alive], kind="stable")]
            self.bound = max(self.bound, float(promise[ranked[self.labels]]))
            alive = np.sort(ranked[: self.labels])
        return labels if alive.size == promise.size else labels.at(alive)

    def _begin(self, labels: _Labels, step: int) -> _Labels:
        """The labels, and beside them those with the first piece of an option that fits whole."""
        classes, offers, begun = self.classes, self.offers, self.begun
        memory = labels.values[MEMORY] + self.memory[step]
        if not self.own[step]:
            held = labels.bits[offers.word[step]] & offers.bit[step]
            memory = np.where(held != 0, labels.values[MEMORY], memory)
        free = (labels.bits[classes.word[step]] & classes.bit[step]) == 0
        fits = (free & (memory <= 1 + SLACK)).nonzero()[0]
        if not fits.size:
            return labels
        whole = fits[self._whole(labels, fits, step)]
        if not whole.size:
            return labels
        grown = self._grown(labels, whole, step)
        grown.values[MEMORY] = memory[whole]
        grown.values[CHARGED] += self.charge[step]
        grown.values[PROMISE:] += self.completion.rise[:, step : step + 1]
        for group in (classes, offers, begun):
            grown.bits[group.word[step]] |= group.bit[step]
        return labels.joined(grown)

    def _go_on(self, labels: _Labels, step: int) -> _Labels:
        """The labels, and beside them those with a further piece of an option that they have."""
        word, own = self.begun.word[step], self.begun.bit[step]
        begun = (labels.bits[word] & own).nonzero()[0]
        if not begun.size:
            return labels
        whole = begun[self._whole(labels, begun, step)]
        grown = self._grown(labels, whole, step)
        surplus = self.completion.surplus[:, step : step + 1]
        spare = self.completion.spare[:, step : step + 1]
        grown.values[PROMISE:] += surplus - spare
        labels.values[PROMISE:, begun] -= spare
        labels.bits[word, begun] &= ~own
        return labels.joined(grown) if whole.size else labels

    def _grown(self, labels: _Labels, whole: Indices, step: int) -> _Labels:
        """These labels with one more piece; what they promise is left to the caller."""
        first = self.steps[-1][2] + self.steps[-1][0].size if self.steps else 1
        grown = labels.at(whole)
        self.steps.append((grown.number, step, first))
        grown.number = np.arange(first, first + whole.size)
        grown.values[TIME] += self.time[step]
        grown.values[WORTH] += self.worth[step]
        return grown

    def _whole(self, labels: _Labels, fits: Indices, step: int) -> Flags:
        """Which of these labels have time for all of a piece; the best with what fits is noted."""
        time, worth = self.time[step], self.worth[step]
        share: Array
        if time > 0:
            share = 1.0 - labels.values[TIME].take(fits)
            np.maximum(share, 0.0, out=share)
            share /= time
            np.minimum(share, 1.0, out=share)
        else:
            share = np.ones(fits.size)
        reached = labels.values[WORTH].take(fits) + worth * share
        top = int(reached.argmax())
        best = float(reached[top])
        if best > self.enough * (1 + 1e-6):
            number = int(labels.number[fits[top]])
            self.found.append((best, number, step, float(share[top])))
        self.best = max(self.best, best)
        made: Flags = share >= 1
        return made

    def devices(self, most: int) -> list[dict[int, float]]:
        """The parts of the best devices by item, the best first."""
        ranked = sorted(self.found, key=lambda found: -found[0])[:most]
        return [self._parts(number, step, share) for _, number, step, share in ranked]

    def _parts(self, number: int, step: int, share: float) -> dict[int, float]:
        taken = {int(self.option[step]): share * float(self.part[step])}
        for numbers, before, first in reversed(self.steps):
            if first <= number:
                number = int(numbers[number - first])
                option = int(self.option[before])
                taken[option] = taken.get(option, 0.0) + float(self.part[before])
        return taken
