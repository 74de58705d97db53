"""The best device at given prices: which variants it holds, and what part of which class it serves.

On one device time and memory are short. Time can be divided, so the last item that finds room may
be taken in part; memory cannot. That is a knapsack in two dimensions with one fractional item
(Kellerer, Pferschy and Pisinger, Knapsack Problems, 2004, chapters 9 and 10). It is solved by
labels: items in the order of worth per time, every set that fits is a label, and a label is
dropped once what it has and what it could still get is no better than the best found. What it
could still get is the relaxation of both limits at several pairs of prices (Lagrange), read off
sums from the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.solver.capacity import SLACK

Array = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

MIXES: Array = np.linspace(0.0, 1.0, 9)
"""Parts of time in the sum of both limits that pairs of prices are derived from."""

SCALES: Array = np.array([0.6, 0.8, 1.0, 1.25, 1.6])
"""Times these prices. With 1 alone, one pricing of 254 items took 1.2 s and 20,000 labels did not
do; with these 0.02 s and 3,000 did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What a device could serve: classes by offers. One entry, or one row of bits, per item."""

    time: Array
    """Of a device, to serve the whole class."""
    memory: Array
    """Of a device, for the offer; taken once, however many classes it serves."""
    charge: Array
    """``memory``, divided among the items of the offer."""
    classes: Bits
    """The class: a device serves it by one offer."""
    offers: Bits

    def at(self, chosen: Indices) -> "Items":
        return Items(
            time=self.time[chosen],
            memory=self.memory[chosen],
            charge=self.charge[chosen],
            classes=self.classes[chosen],
            offers=self.offers[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The best devices found, and what none can be worth more than."""

    bound: float
    devices: tuple[dict[int, float], ...]
    """Item to the part of its class that is served; only those worth more than enough."""


def bits(groups: Sequence[int]) -> Bits:
    """One bit for each different number; shape ``(len(groups), words)``."""
    names = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    made = np.zeros((len(groups), len(names) // 64 + 1), dtype=np.uint64)
    for row, group in enumerate(groups):
        made[row, names[group] // 64] = np.uint64(1) << np.uint64(names[group] % 64)
    return made


def best_devices(
    items: Items, part: Array, worth: Array, *, enough: float, labels: int, most: int
) -> Priced:
    """The devices that are worth most.

    Args:
        items: what a device could serve.
        part: of each item's class, what may be served at most, in [0, 1].
        worth: of serving that part.
        enough: devices worth no more than this are of no interest; positive.
        labels: most sets that are kept of each step; what is dropped beyond counts in the bound.
        most: devices to return.

    Returns:
        ``bound`` is what no device is worth more than, and at least ``enough``.
    """
    useful = np.flatnonzero((worth > 0) & (items.memory <= 1 + SLACK))
    efficiency = worth[useful] / np.maximum(items.time[useful] * part[useful], 1e-12)
    order = useful[np.argsort(-efficiency, kind="stable")]
    if order.size:
        time, charge = items.time[order] * part[order], items.charge[order]
        order = order[_promising(time, charge, worth[order], enough)]
    if not order.size:
        return Priced(bound=enough, devices=())
    search = _Search(items.at(order), part[order], worth[order], enough=enough, labels=labels)
    search.run()
    devices = [
        {int(order[item]): share for item, share in found.items()} for found in search.devices(most)
    ]
    return Priced(bound=search.bound, devices=tuple(devices))


def _promising(time: Array, charge: Array, worth: Array, enough: float) -> Indices:
    """The items that a device may have that is worth more than enough, in their order.

    With a part of an item a device has at least its memory taken; without it, it lacks what the
    item adds at the prices of time and memory.
    """
    prices = _prices(time, charge, worth)
    surplus = worth - prices @ np.array([time, charge])
    free = np.maximum(surplus, 0.0)
    total = prices.sum(axis=1) + free.sum(axis=1)
    with_it = np.maximum(surplus, -prices[:, [1]] * charge) - free + total[:, None]
    found: Indices = np.flatnonzero(with_it.min(axis=0) > enough)
    return found


@dataclass(slots=True, kw_only=True)
class _Labels:
    """Sets of items that a device serves whole; one entry, or one row of bits, per set."""

    number: Indices
    used: Array
    """Time, memory as charged, memory as held; shape ``(3, labels)``."""
    worth: Array
    classes: Bits
    offers: Bits

    def at(self, chosen: Indices) -> "_Labels":
        return _Labels(
            number=self.number[chosen],
            used=self.used[:, chosen],
            worth=self.worth[chosen],
            classes=self.classes[chosen],
            offers=self.offers[chosen],
        )

    def joined(self, other: "_Labels") -> "_Labels":
        return _Labels(
            number=np.concatenate([self.number, other.number]),
            used=np.concatenate([self.used, other.used], axis=1),
            worth=np.concatenate([self.worth, other.worth]),
            classes=np.concatenate([self.classes, other.classes]),
            offers=np.concatenate([self.offers, other.offers]),
        )


class _Search:
    """Labels over items in the order of worth per time."""

    __slots__ = (
        "best", "bound", "enough", "found", "items", "labels", "part", "prices", "rest", "steps",
        "time", "worth",
    )  # fmt: skip

    def __init__(
        self, items: Items, part: Array, worth: Array, *, enough: float, labels: int
    ) -> None:
        self.items = items
        self.part = part
        self.worth = worth
        self.best = self.bound = self.enough = enough
        self.labels = labels
        self.time: Array = items.time * part
        self.prices = _prices(self.time, items.charge, worth)
        surplus = worth - self.prices @ np.array([self.time, items.charge])
        # Column i: what all items from i on can add, at each pair of prices.
        self.rest: Array = np.cumsum(np.maximum(surplus, 0.0)[:, ::-1], axis=1)[:, ::-1]
        self.steps: list[tuple[Indices, int, int]] = []
        """The labels that one item was added to, the item, and the first of the new labels."""
        self.found: list[tuple[float, int, int, float]] = []
        """Worth, the label before the last item, that item, and how much of it."""

    def run(self) -> None:
        items = self.items
        labels = _Labels(
            number=np.zeros(1, dtype=np.int64),
            used=np.zeros((3, 1)),
            worth=np.zeros(1),
            classes=np.zeros_like(items.classes[:1]),
            offers=np.zeros_like(items.offers[:1]),
        )
        for item in range(self.time.size):
            labels = self._alive(labels, item)
            if not labels.worth.size:
                break
            labels = self._add(labels, item)
        self.bound = max(self.bound, self.best * (1 + 1e-9))

    def _alive(self, labels: _Labels, item: int) -> _Labels:
        """The labels that may still become better than the best."""
        left = 1.0 - labels.used[:2]
        promise = labels.worth + (self.prices @ left + self.rest[:, [item]]).min(axis=0)
        alive = np.flatnonzero(promise > self.best * (1 + 1e-9))
        if alive.size > self.labels:
            ranked = alive[np.argsort(-promise[alive], kind="stable")]
            self.bound = max(self.bound, float(promise[ranked[self.labels]]))
            alive = np.sort(ranked[: self.labels])
        return labels if alive.size == labels.worth.size else labels.at(alive)

    def _add(self, labels: _Labels, item: int) -> _Labels:
        """The labels, and beside them those with one more item that fits whole."""
        items = self.items
        free = ~(labels.classes & items.classes[item]).any(axis=1)
        held = (labels.offers & items.offers[item]).any(axis=1)
        memory = np.where(held, 0.0, items.memory[item])
        fits = np.flatnonzero(free & (labels.used[2] + memory <= 1 + SLACK))
        if not fits.size:
            return labels
        whole = fits[self._share(labels, fits, item) >= 1]
        if not whole.size:
            return labels
        first = self.steps[-1][2] + self.steps[-1][0].size if self.steps else 1
        grown = labels.at(whole)
        self.steps.append((grown.number, item, first))
        grown.number = np.arange(first, first + whole.size)
        grown.used += np.array([[self.time[item]], [items.charge[item]], [0.0]])
        grown.used[2] += memory[whole]
        grown.worth = grown.worth + self.worth[item]
        grown.classes = grown.classes | items.classes[item]
        grown.offers = grown.offers | items.offers[item]
        return labels.joined(grown)

    def _share(self, labels: _Labels, fits: Indices, item: int) -> Array:
        """How much of an item these labels have time for, in [0, 1]; the best end is noted."""
        time = self.time[item]
        left = 1.0 - labels.used[0, fits]
        share = np.ones(fits.size) if time <= 0 else np.clip(left / time, 0.0, 1.0)
        reached = labels.worth[fits] + self.worth[item] * share
        top = int(np.argmax(reached))
        if reached[top] > self.enough * (1 + 1e-6):
            number = int(labels.number[fits[top]])
            self.found.append((float(reached[top]), number, item, float(share[top])))
        self.best = max(self.best, float(reached[top]))
        return share

    def devices(self, most: int) -> list[dict[int, float]]:
        """The parts of the best devices by item, the best first."""
        ranked = sorted(self.found, key=lambda found: -found[0])[:most]
        return [self._parts(number, item, share) for _, number, item, share in ranked]

    def _parts(self, number: int, item: int, share: float) -> dict[int, float]:
        taken = {item: share * float(self.part[item])}
        for numbers, step, first in reversed(self.steps):
            if first <= number:
                number = int(numbers[number - first])
                taken[step] = float(self.part[step])
        return taken


def _prices(time: Array, charge: Array, worth: Array) -> Array:
    """Pairs of prices of time and memory at which both limits together bound well.

    For each of ``MIXES``, the two limits are added up in that proportion; the price of the sum is
    what the last item that fits is worth per unit, and some that are lower and higher, for sets
    that have taken more or less of it. Returns shape ``(mixes x scales, 2)``.
    """
    sizes = np.maximum(MIXES[:, None] * time + (1 - MIXES[:, None]) * charge, 1e-12)
    order = np.argsort(-(worth / sizes), axis=1, kind="stable")
    filled = np.cumsum(np.take_along_axis(sizes, order, axis=1), axis=1) >= 1.0
    critical = np.where(filled.any(axis=1), filled.argmax(axis=1), worth.size)
    ratios = np.take_along_axis(worth / sizes, order, axis=1)
    ratios = np.concatenate([ratios, np.zeros((MIXES.size, 1))], axis=1)
    scale = (ratios[np.arange(MIXES.size), critical] * SCALES[:, None]).ravel()
    mixes = np.tile(MIXES, SCALES.size)
    return np.stack([scale * mixes, scale * (1 - mixes)], axis=1)
