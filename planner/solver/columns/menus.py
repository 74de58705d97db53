"""What could run on a device of a kind, given how long its longest batch may be.

A menu between two latencies is a relaxation: every batch is as long as the larger one allows, and
every query waits as little as the smaller one allows. Where both are the same it is exact.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from planner.latency_curve import SizedBatch
from planner.solver.capacity import frontier
from planner.solver.columns.column import Array, Column, Indices
from planner.solver.columns.pricing import Items
from planner.solver.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """Options that a device can run, each with its batch, in one order."""

    kind: int
    indices: tuple[int, ...]
    """Of the options."""
    batches: tuple[SizedBatch, ...]
    items: Items

    def column(self, parts: dict[int, float]) -> Column:
        """A device from items and the parts of their classes."""
        return Column(
            kind=self.kind,
            parts={self.indices[at]: (self.batches[at], part) for at, part in parts.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixed:
    """What does not depend on batches, of the options of a kind."""

    rates: Array
    memory: Array
    """Of a device."""
    own: Array
    charges: tuple[Array, ...]
    classes: Indices
    offers: Indices


def _fixed(options: Options, kind: int, indices: Sequence[int]) -> _Fixed:
    every = [options.all[index] for index in indices]
    has = options.problem.kinds[kind].memory_mib
    users = Counter(option.offer for option in every)
    shared = np.array([float(users[option.offer]) for option in every])
    memory = np.array([o.memory_mib / has if has > 0 else 0.0 for o in every])
    halves = np.where(np.abs(2 * memory - 1) < 1e-9, 0.5, np.floor(2 * memory))
    return _Fixed(
        rates=np.array([options.rates[option.demand] for option in every]),
        memory=memory,
        own=np.where(shared > 1, 0.0, memory),
        charges=(memory / shared, np.minimum(halves, 1.0) / shared),
        classes=np.array([option.demand for option in every], dtype=np.int64),
        offers=np.array([option.offer for option in every], dtype=np.int64),
    )


def _useful(options: Options, kind: int) -> list[int]:
    """The options of offers on a kind that no other replaces, whatever the longest batch is.

    One replaces another that takes no less memory, is no faster at any batch size, and serves no
    other class.
    """
    users: dict[str, dict[int, dict[int, int]]] = {}
    for index, option in enumerate(options.all):
        if option.kind == kind:
            task = options.problem.offers[option.offer].task
            found = users.setdefault(task, {}).setdefault(option.offer, {})
            found[option.demand] = index
    kept: list[int] = []
    for offers in users.values():
        chosen: list[int] = []
        for offer in sorted(offers, key=lambda o: (options.problem.offers[o].memory_mib, o)):
            if not any(_replaces(options, by, offer, offers) for by in chosen):
                chosen.append(offer)
                kept.extend(offers[offer].values())
    return sorted(kept)


def _replaces(options: Options, by: int, offer: int, classes: dict[int, dict[int, int]]) -> bool:
    one, other = options.problem.offers[by].curve, options.problem.offers[offer].curve
    # Both are linear between these sizes.
    sizes = {size for size, _ in (*one.points, *other.points) if size <= other.max_batch}
    return classes[offer].keys() <= classes[by].keys() and all(
        one.latency_ms(size) <= other.latency_ms(size) for size in sizes
    )


class Menus:
    """The menus of all kinds of a problem."""

    __slots__ = ("_between", "_fixed", "_lengths", "alone", "indices", "options")

    def __init__(self, options: Options) -> None:
        self.options = options
        kinds = range(len(options.counts))
        self.indices = [_useful(options, kind) for kind in kinds]
        """Per kind, the options that are of use."""
        self._fixed = [_fixed(options, kind, self.indices[kind]) for kind in kinds]
        self._between: dict[tuple[int, float, float], Menu] = {}
        self._lengths: dict[int, list[float]] = {}
        self.alone = [self._menu(kind, 0.0, inf, 1.0) for kind in kinds]
        """Per kind, what a device can do that holds one variant; no smaller batch is better."""

    def lengths_ms(self, kind: int) -> list[float]:
        """All that the longest batch of a device may take by its profile, ascending.

        Batches that are not worth running alone are worth it nowhere: another one that is no
        longer takes less time per row.
        """
        if kind not in self._lengths:
            options = self.options
            found: set[float] = set()
            slowdown = options.slowdown(kind, 2)
            longest: dict[int, float] = {}
            for index in self.indices[kind]:
                option = options.all[index]
                half_ms = options.left_ms(option.demand) / slowdown / 2
                longest[option.offer] = max(longest.get(option.offer, 0.0), half_ms)
            for offer, half_ms in longest.items():
                curve = options.problem.offers[offer].curve
                found.update(batch.latency_ms for batch in frontier(curve, half_ms))
            self._lengths[kind] = sorted(found)
        return self._lengths[kind]

    def between(self, kind: int, low_ms: float, high_ms: float) -> Menu:
        """What devices of a kind can do that hold several variants.

        Args:
            kind: index of the device kind.
            low_ms: what the longest batch of the device takes at least, by its profile.
            high_ms: what it takes at most.
        """
        key = (kind, low_ms, high_ms)
        if key not in self._between:
            slowdown = self.options.slowdown(kind, 2)
            self._between[key] = self._menu(kind, low_ms, high_ms, slowdown)
        return self._between[key]

    def _menu(self, kind: int, low_ms: float, high_ms: float, slowdown: float) -> Menu:
        """What options can do on a kind where batches take this times what profiles say."""
        options, fixed = self.options, self._fixed[kind]
        found: list[int] = []
        batches: list[SizedBatch] = []
        for at, index in enumerate(self.indices[kind]):
            left_ms = options.left_ms(options.all[index].demand) / slowdown
            # However short others are, a class waits for at least its own batch.
            batch = options.batch(index, min(high_ms, left_ms - low_ms, left_ms / 2))
            if batch is not None:
                found.append(at)
                batches.append(batch)
        at_each: Indices = np.array(found, dtype=np.int64)
        units = np.array([batch.unit_ms for batch in batches])
        return Menu(
            kind=kind,
            indices=tuple(self.indices[kind][at] for at in found),
            batches=tuple(batches),
            items=Items(
                time=fixed.rates[at_each] * units * slowdown / (1000 * options.problem.load),
                memory=fixed.memory[at_each],
                own=fixed.own[at_each],
                charges=tuple(charge[at_each] for charge in fixed.charges),
                classes=fixed.classes[at_each],
                offers=fixed.offers[at_each],
            ),
        )
