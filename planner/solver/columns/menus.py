"""What could run on a device of a kind, given how long its longest batch may be.

A menu between two latencies is a relaxation: every batch is as long as the larger one allows, and
every query waits as little as the smaller one allows. Where both are the same it is exact.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from planner.latency_curve import SizedBatch
from planner.solver.columns.column import NOTHING, Column
from planner.solver.columns.pricing import Array, Indices, Items, bits
from planner.solver.options import Options

THRESHOLDS = 8
"""Longest batches that are tried on a kind. The SLO classes of production are a 1-2-5 series, which
has six between 20 ms and 1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """Options that a device can run, each with its batch, in one order."""

    kind: int
    indices: tuple[int, ...]
    """Of the options."""
    batches: tuple[SizedBatch, ...]
    items: Items
    classes: Indices
    """The class of each option, shape ``(items,)``."""

    def column(self, parts: dict[int, float]) -> Column:
        """A device from items and the parts of their classes."""
        return Column(
            kind=self.kind,
            parts={self.indices[at]: (self.batches[at], part) for at, part in parts.items()},
        )

    def filled(self, chosen: Collection[int], worth: Array, missing: Array) -> dict[int, float]:
        """What a device serves that holds these options, the most worth per time first.

        Args:
            chosen: options that fit together.
            worth: of each class.
            missing: of each class, the part that may be served.
        """
        time = self.items.time

        def least(at: int) -> tuple[float, int]:
            return (-float(worth[self.classes[at]]) / max(float(time[at]), 1e-12), at)

        found = sorted((at for at, i in enumerate(self.indices) if i in chosen), key=least)
        left = 1.0
        parts: dict[int, float] = {}
        for at in found:
            most = float(missing[self.classes[at]])
            part = most if time[at] <= 0 else min(most, left / float(time[at]))
            if part > NOTHING:
                parts[at] = part
                left -= part * float(time[at])
        return parts


def menu(
    options: Options,
    kind: int,
    indices: Sequence[int],
    *,
    low_ms: float,
    high_ms: float,
    slowdown: float,
) -> Menu:
    """What options can do on a kind.

    Args:
        options: of the problem.
        kind: index of the device kind.
        indices: options on that kind.
        low_ms: what the longest batch of the device takes at least, by its profile.
        high_ms: what it takes at most.
        slowdown: times what profiles say that batches take.
    """
    found: list[tuple[int, SizedBatch]] = []
    for index in indices:
        left_ms = options.left_ms(options.all[index].demand) / slowdown
        limit_ms = min(high_ms, left_ms - low_ms)
        if low_ms == 0:  # however short others are, a class waits for at least its own batch
            limit_ms = min(limit_ms, left_ms / 2)
        batch = options.batch(index, limit_ms)
        if batch is not None:
            found.append((index, batch))
    every = [options.all[index] for index, _ in found]
    has = options.problem.kinds[kind].memory_mib
    users = Counter(option.offer for option in every)
    memory = np.array([o.memory_mib / has if has > 0 else 0.0 for o in every])
    rates = np.array([options.rates[option.demand] for option in every])
    units = np.array([batch.unit_ms for _, batch in found])
    return Menu(
        kind=kind,
        indices=tuple(index for index, _ in found),
        batches=tuple(batch for _, batch in found),
        items=Items(
            time=rates * units * slowdown / (1000 * options.problem.load),
            memory=memory,
            charge=memory / np.array([float(users[option.offer]) for option in every]),
            classes=bits([option.demand for option in every]),
            offers=bits([option.offer for option in every]),
        ),
        classes=np.array([option.demand for option in every], dtype=np.int64),
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

    __slots__ = ("_between", "alone", "exact", "indices", "longest_ms", "options", "wide")

    def __init__(self, options: Options) -> None:
        self.options = options
        kinds = range(len(options.counts))
        self.indices = [_useful(options, kind) for kind in kinds]
        """Per kind, the options that are of use."""
        self.longest_ms = [self._longest_ms(kind) for kind in kinds]
        """Per kind, longest batches worth trying."""
        self._between: dict[tuple[int, float, float], Menu] = {}
        self.alone = [
            menu(options, kind, self.indices[kind], low_ms=0.0, high_ms=inf, slowdown=1.0)
            for kind in kinds
        ]
        """Per kind, what a device can do that holds one variant; no smaller batch is better."""
        self.wide = [self.between(kind, 0.0, inf) for kind in kinds]
        """Per kind, whatever its longest batch is."""
        self.exact = [
            [self.between(kind, ms, ms) for ms in self.longest_ms[kind]] for kind in kinds
        ]
        """Per kind and longest batch."""

    def between(self, kind: int, low_ms: float, high_ms: float) -> Menu:
        """What devices of a kind can do that may hold several variants."""
        key = (kind, low_ms, high_ms)
        if key not in self._between:
            self._between[key] = menu(
                self.options,
                kind,
                self.indices[kind],
                low_ms=low_ms,
                high_ms=high_ms,
                slowdown=self.options.slowdown(kind, 2),
            )
        return self._between[key]

    def refine(self, kind: int, longest_ms: float) -> None:
        """Try one more longest batch on a kind."""
        if longest_ms not in self.longest_ms[kind]:
            self.longest_ms[kind].append(longest_ms)
            self.exact[kind].append(self.between(kind, longest_ms, longest_ms))

    def _longest_ms(self, kind: int) -> list[float]:
        """Half of what the SLOs of its classes leave: so long a batch can be alone."""
        slowdown = self.options.slowdown(kind, 2)
        demands = {self.options.all[index].demand for index in self.indices[kind]}
        halves = sorted({self.options.left_ms(demand) / slowdown / 2 for demand in demands})
        if len(halves) <= THRESHOLDS:
            return halves
        last = len(halves) - 1
        return [halves[round(n * last / (THRESHOLDS - 1))] for n in range(THRESHOLDS)]
