"""The best device at given prices: which variants it holds, and what part of which class it serves.

What a class is worth on a device is a concave function of the part that is served: pieces, each
worth less per part than the one before. On one device time and memory are short. Time can be
divided, so the last piece that finds room may be taken in part; memory cannot. That is a knapsack
in two dimensions with one fractional item (Kellerer, Pferschy and Pisinger, Knapsack Problems,
2004, chapters 9 and 10). It is solved by labels: pieces in the order of worth per time, every set
that fits is a label, and a label is dropped once what it has and what it could still get
(``lagrange``) is no better than the best found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.solver.capacity import SLACK
from planner.solver.columns.column import Array, Bits, Flags, Indices
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
    options: Bits
    classes: Bits
    """The class: a device serves it by one offer."""
    offers: Bits


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


def bits(groups: Sequence[object]) -> Bits:
    """One bit for each different one; shape ``(len(groups), words)``."""
    names = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    made = np.zeros((len(groups), len(names) // 64 + 1), dtype=np.uint64)
    for row, group in enumerate(groups):
        made[row, names[group] // 64] = np.uint64(1) << np.uint64(names[group] % 64)
    return made


def best_devices(
    items: Items,
    pieces: Pieces,
    *,
    enough: float,
    labels: int,
    most: int,
    few: int | None = None,
) -> Priced:
    """The devices that are worth most.

    Args:
        items: what a device could serve.
        pieces: what that is worth.
        enough: devices worth no more than this are of no interest; positive.
        labels: most sets that are kept of each step; what is dropped beyond counts in the bound.
        most: devices to return.
        few: most pieces that are looked at, those that promise most; then ``bound`` means nothing.

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
    search = _Search(items, pieces, found, enough=enough, labels=labels)
    search.run()
    return Priced(bound=search.bound, devices=tuple(search.devices(most)), looked=search.looked)


def _promise(items: Items, option: Indices, found: Relaxed) -> Array:
    """What a device with a part of each piece is worth at most.

    It has all pieces of the option before that one, and nothing that has no room beside it.
    """
    options = option[found.first]
    memory, classes = items.own[options], items.classes[options]
    beside = memory[:, None] + memory <= 1 + SLACK
    beside &= ~(classes[:, None] & classes).any(axis=2)
    others = found.prices.sum(axis=1)[:, None] + found.group @ beside.T
    loss = found.surplus - found.positive
    before = np.cumsum(loss, axis=1) - loss
    before -= before[:, found.first][:, found.of]
    promise: Array = (found.total - found.charge + others)[:, found.of] + before
    best: Array = promise.min(axis=0)
    return best


@dataclass(slots=True, kw_only=True)
class _Labels:
    """Sets of pieces that a device serves whole; one entry, or one row of bits, per set."""

    number: Indices
    time: Array
    memory: Array
    worth: Array
    promise: Array
    """What the limits and all that is in it are worth at each pair of prices, and what may still
    come of its options; shape ``(pairs, labels)``."""
    begun: Bits
    """Options of which all pieces so far are in it."""
    classes: Bits
    offers: Bits

    def at(self, chosen: Indices) -> "_Labels":
        return _Labels(
            number=self.number[chosen],
            time=self.time[chosen],
            memory=self.memory[chosen],
            worth=self.worth[chosen],
            promise=self.promise[:, chosen],
            begun=self.begun[chosen],
            classes=self.classes[chosen],
            offers=self.offers[chosen],
        )

    def joined(self, other: "_Labels") -> "_Labels":
        return _Labels(
            number=np.concatenate([self.number, other.number]),
            time=np.concatenate([self.time, other.time]),
            memory=np.concatenate([self.memory, other.memory]),
            worth=np.concatenate([self.worth, other.worth]),
            promise=np.concatenate([self.promise, other.promise], axis=1),
            begun=np.concatenate([self.begun, other.begun]),
            classes=np.concatenate([self.classes, other.classes]),
            offers=np.concatenate([self.offers, other.offers]),
        )


class _Search:
    """Labels over pieces in the order of worth per time; of one option, they keep theirs."""

    __slots__ = (
        "best", "bound", "charge", "enough", "first", "found", "items", "labels", "looked",
        "option", "part", "prices", "rest", "rise", "spare", "steps", "surplus", "time", "worth",
    )  # fmt: skip

    def __init__(
        self, items: Items, pieces: Pieces, found: Relaxed, *, enough: float, labels: int
    ) -> None:
        self.items = items
        self.best = self.bound = self.enough = enough
        self.labels = labels
        self.looked = 0
        self.prices = found.prices
        time = items.time[pieces.option] * pieces.part
        order = np.argsort(-pieces.worth / np.maximum(time, 1e-12), kind="stable")
        self.option, self.part = pieces.option[order], pieces.part[order]
        self.time, self.worth = time[order], pieces.worth[order]
        self.first = found.first[order]
        self.surplus = found.surplus[:, order]
        self.spare = found.positive[:, order]
        # A set with the first piece of an option: what that adds, and what may still come of it.
        self.charge = found.charge[:, found.of][:, order]
        self.rise = found.total[:, found.of][:, order] - self.spare + self.surplus - self.charge
        group = np.where(self.first, found.group[:, found.of][:, order], 0.0)
        # Column i: what the options that begin from i on can add.
        self.rest = np.cumsum(group[:, ::-1], axis=1)[:, ::-1]
        self.steps: list[tuple[Indices, int, int]] = []
        """The labels that one piece was added to, the piece, and the first of the new labels."""
        self.found: list[tuple[float, int, int, float]] = []
        """Worth, the label before the last piece, that piece, and how much of it."""

    def run(self) -> None:
        items = self.items
        labels = _Labels(
            number=np.zeros(1, dtype=np.int64),
            time=np.zeros(1),
            memory=np.zeros(1),
            worth=np.zeros(1),
            promise=self.prices.sum(axis=1)[:, None],
            begun=np.zeros_like(items.options[:1]),
            classes=np.zeros_like(items.classes[:1]),
            offers=np.zeros_like(items.offers[:1]),
        )
        for step in range(self.time.size):
            labels = self._alive(labels, step)
            if not labels.worth.size:
                break
            self.looked += labels.worth.size
            labels = self._begin(labels, step) if self.first[step] else self._go_on(labels, step)
        self.bound = max(self.bound, self.best * (1 + 1e-9))

    def _alive(self, labels: _Labels, step: int) -> _Labels:
        """The labels that may still become better than the best."""
        promise = (labels.promise + self.rest[:, [step]]).min(axis=0)
        alive = np.flatnonzero(promise > self.best * (1 + 1e-9))
        if alive.size > self.labels:
            ranked = alive[np.argsort(-promise[alive], kind="stable")]
            self.bound = max(self.bound, float(promise[ranked[self.labels]]))
            alive = np.sort(ranked[: self.labels])
        return labels if alive.size == labels.worth.size else labels.at(alive)

    def _begin(self, labels: _Labels, step: int) -> _Labels:
        """The labels, and beside them those with the first piece of an option that fits whole."""
        items, option = self.items, self.option[step]
        free = ~(labels.classes & items.classes[option]).any(axis=1)
        held = (labels.offers & items.offers[option]).any(axis=1)
        memory = labels.memory + np.where(held, 0.0, items.memory[option])
        fits = np.flatnonzero(free & (memory <= 1 + SLACK))
        if not fits.size:
            return labels
        whole = fits[self._share(labels, fits, step) >= 1]
        if not whole.size:
            return labels
        grown = self._grown(labels, whole, step)
        grown.memory = memory[whole]
        grown.promise += self.rise[:, [step]]
        grown.begun |= items.options[option]
        grown.classes |= items.classes[option]
        grown.offers |= items.offers[option]
        return labels.joined(grown)

    def _go_on(self, labels: _Labels, step: int) -> _Labels:
        """The labels, and beside them those with a further piece of an option that they have."""
        own = self.items.options[self.option[step]]
        begun = np.flatnonzero((labels.begun & own).any(axis=1))
        if not begun.size:
            return labels
        whole = begun[self._share(labels, begun, step) >= 1]
        grown = self._grown(labels, whole, step)
        grown.promise += self.surplus[:, [step]] - self.spare[:, [step]]
        labels.promise[:, begun] -= self.spare[:, [step]]
        labels.begun[begun] &= ~own
        return labels.joined(grown) if whole.size else labels

    def _grown(self, labels: _Labels, whole: Indices, step: int) -> _Labels:
        """These labels with one more piece; what they promise is left to the caller."""
        first = self.steps[-1][2] + self.steps[-1][0].size if self.steps else 1
        grown = labels.at(whole)
        self.steps.append((grown.number, step, first))
        grown.number = np.arange(first, first + whole.size)
        grown.time += self.time[step]
        grown.worth += self.worth[step]
        return grown

    def _share(self, labels: _Labels, fits: Indices, step: int) -> Array:
        """How much of a piece these labels have time for, in [0, 1]; the best end is noted."""
        time = self.time[step]
        left = np.maximum(1.0 - labels.time[fits], 0.0)
        share: Array = np.ones(fits.size) if time <= 0 else np.minimum(left / time, 1.0)
        reached = labels.worth[fits] + self.worth[step] * share
        top = int(reached.argmax())
        best = float(reached[top])
        if best > self.enough * (1 + 1e-6):
            number = int(labels.number[fits[top]])
            self.found.append((best, number, step, float(share[top])))
        self.best = max(self.best, best)
        return share

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
