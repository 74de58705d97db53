"""The devices that are worth more than they cost, and the proof that there are no more of them.

How long the longest batch of a device is decides which batches the others may have. All lengths
make one menu, which promises too much; where its best device is worth too much, the lengths are
halved, until a menu promises nothing or is exact. What it finds on the way is made true: the same
variants, at the longest batch that suits them best.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from math import inf

import numpy as np

from planner.latency_curve import SizedBatch
from planner.solver.columns.column import NOTHING, Array, Column, Indices
from planner.solver.columns.menus import Menu, Menus
from planner.solver.columns.prices import Prices
from planner.solver.columns.pricing import Pieces, Priced, best_devices
from planner.solver.columns.rounding import Rounding

LABELS = 100
"""Sets that a pricing keeps of each step, where it looks for columns."""
CLOSELY = 1_000
"""How many sets a pricing keeps of each step where it looks closely."""
FEW = 60
"""Pieces that it looks at where it does not look closely."""
MANY = 10_000
"""Sets where it proves that there are none; about as many were needed."""
ROOMY = 2_000
"""The same where memory is no limit: there the relaxation is close, and many sets are as good."""
RANGES = 60
"""Ranges of lengths that are looked at for one kind at most; about 30 were needed."""
WORK = 4_000_000
"""Sets, counted once in each step, that are looked at for a bound at most. Where it was proven with
less, one million was; without a limit, one problem in twelve took more than a minute."""
MORE_WORK = 12_000_000
"""The same, once more, where the plan is too far from a bound that the limit has cut short."""
PRICING = 10_000
"""What a pricing takes beside its sets, in sets."""
COLUMNS = 8
"""That one pricing finds at most. With 1, the relaxation of 100 classes took 65 rounds; with 8, 20;
with 16 as many."""
OFF = 0.0003
"""Relative; what a device may be worth more than it costs, and is not looked for: so much is lost
of the bound."""

Left = Callable[[], float]
"""Seconds that are left."""


class Devices:
    """What devices can do for what is missing, at prices."""

    __slots__ = ("_binds", "_open", "_pieces", "menus", "missing", "options", "rounding", "work")

    def __init__(self, menus: Menus, rounding: Rounding, missing: Array) -> None:
        self.menus, self.options = menus, menus.options
        self.rounding = rounding
        self.missing = missing
        self.work = WORK
        """What may still be looked at for a bound."""
        self._binds = [self.options.binds(kind) for kind in range(len(self.options.counts))]
        self._open: dict[int, list[tuple[int, int]]] = {}
        """By kind, lengths at which devices may still be worth more than they cost."""
        self._pieces: dict[int, tuple[Menu, Indices, Indices, Array]] = {}

    def reset(self) -> None:
        """From now on prices may be any again."""
        self._open = {}

    # -- one device -------------------------------------------------------------------------------

    def _best(
        self,
        menu: Menu,
        prices: Prices,
        *,
        labels: int,
        few: int | None = None,
        filled: bool = False,
    ) -> Priced:
        """The best devices of a menu, among those worth more than they cost."""
        enough = float(prices.kinds[menu.kind]) * (1 + OFF)
        at, numbers, part = self._of(menu)
        if not at.size:
            return Priced(bound=enough, devices=())
        slopes = prices.slopes[numbers]
        # Pieces of one option between which nothing changes at these prices are one.
        new = np.ones(at.size, dtype=np.bool_)
        new[1:] = (at[1:] != at[:-1]) | (slopes[1:] < slopes[:-1] * (1 - 1e-9) - 1e-12)
        starts = np.flatnonzero(new)
        pieces = Pieces(
            option=at[starts],
            part=np.add.reduceat(part, starts),
            worth=np.add.reduceat(part * slopes, starts),
        )
        return best_devices(
            menu.items,
            pieces,
            enough=enough,
            labels=labels,
            most=COLUMNS,
            few=few,
            filled=filled,
        )

    def _of(self, menu: Menu) -> tuple[Indices, Indices, Array]:
        """The pieces of a menu: position of the option, number of the piece, length in time."""
        key = id(menu)
        if key not in self._pieces:
            found = [
                (at, number)
                for at, index in enumerate(menu.indices)
                for number in self._numbers(index)
            ]
            at = np.array([at for at, _ in found], dtype=np.int64)
            numbers = np.array([number for _, number in found], dtype=np.int64)
            start = self.rounding.start[numbers]
            longest = 1 / np.maximum(menu.items.time[at], 1e-12)
            part = np.minimum(start + self.rounding.length[numbers], longest) - start
            kept = part > NOTHING
            self._pieces[key] = (menu, at[kept], numbers[kept], part[kept])
        return self._pieces[key][1:]

    def _numbers(self, index: int) -> range:
        first, count = self.rounding.first.get(index, (0, 0))
        return range(first, first + count)

    def filled(
        self, batches: dict[int, SizedBatch], kind: int, slowdown: float, prices: Prices
    ) -> tuple[float, dict[int, tuple[SizedBatch, float]]]:
        """What a device does that holds these options, the most worth per time first.

        Args:
            batches: by option, what it runs in.
            kind: of the device.
            slowdown: times what profiles say that batches take on it.
            prices: of what it does.

        Returns:
            What it is worth, and the part of its class that each option serves.
        """
        load = self.options.problem.load
        found: list[tuple[float, int, int, float]] = []
        for index, batch in batches.items():
            rate = self.options.rates[self.options.all[index].demand]
            time = max(rate * batch.unit_ms * slowdown / (1000 * load), 1e-12)
            numbers = self._numbers(index)
            slopes = prices.slopes[numbers.start : numbers.stop].tolist()
            found += [
                (-slope / time, index, number, time)
                for slope, number in zip(slopes, numbers, strict=True)
                if slope > 0
            ]
        found.sort()
        left, worth = 1.0, 0.0
        parts: dict[int, float] = {}
        for rate, index, number, time in found:
            taken = min(float(self.rounding.length[number]), left / time)
            if taken <= NOTHING:
                continue
            parts[index] = parts.get(index, 0.0) + taken
            worth -= rate * time * taken
            left -= taken * time
        return worth, {index: (batches[index], part) for index, part in parts.items()}

    def _made_true(
        self, menu: Menu, parts: Iterable[int], prices: Prices, slowdown: float
    ) -> Column | None:
        """The variants of a device at the longest batch that suits them; None if too dear."""
        kind, options = menu.kind, self.options
        chosen = {menu.indices[at]: menu.batches[at].latency_ms for at in parts}
        left = {index: options.left_ms(options.all[index].demand) / slowdown for index in chosen}
        tried = set(chosen.values())
        tried |= {left_ms / 2 for left_ms in left.values()}
        if len(chosen) <= 3:
            tried |= {left_ms - own_ms for left_ms in left.values() for own_ms in chosen.values()}
        best, found = float(prices.kinds[kind]) * (1 + OFF), None
        seen: set[tuple[tuple[int, float], ...]] = set()
        for longest_ms in sorted(tried):
            batches = {}
            for index, left_ms in left.items():
                batch = options.batch(index, min(longest_ms, left_ms - longest_ms))
                if batch is not None:
                    batches[index] = batch
            sizes = tuple((index, batch.size) for index, batch in batches.items())
            if sizes in seen:
                continue
            seen.add(sizes)
            worth, does = self.filled(batches, kind, slowdown, prices)
            if worth > best:
                best, found = worth, Column(kind=kind, parts=does)
        return found

    def _bear_each_other(self, batches: Mapping[int, SizedBatch]) -> bool:
        """Whether each class is in time behind the longest of these batches, nothing slower."""
        longest_ms = max(batch.latency_ms for batch in batches.values())
        return all(
            longest_ms + batch.latency_ms <= self.options.left_ms(self.options.all[index].demand)
            for index, batch in batches.items()
        )

    # -- many ------------------------------------------------------------------------------------

    def some(self, kind: int, prices: Prices, *, closely: bool) -> list[Column]:
        """Devices that are worth more than they cost, if they are found without dividing lengths.

        Args:
            kind: index of the device kind.
            prices: of classes and devices.
            closely: whether all pieces are looked at, which takes three times as long.
        """
        lengths = self.menus.lengths_ms(kind)
        if not lengths or prices.kinds[kind] <= 0:
            return []
        menu = self.menus.between(kind, lengths[0], lengths[-1])
        labels, few = (CLOSELY, None) if closely else (LABELS, FEW)
        found = self._best(menu, prices, labels=labels, few=few)
        return self._alone(kind, prices)[0] + self._true(menu, found, prices)

    def all(self, kind: int, prices: Prices, left: Left) -> tuple[list[Column], float]:
        """Devices that are worth more than they cost, none only if there are none.

        Prices of classes and cuts must not rise from one call to the next, nor costs fall: lengths
        at which no device was worth enough are not looked at again.

        Returns:
            The devices, and how many times its cost a device of this kind is worth at most.
        """
        lengths = self.menus.lengths_ms(kind)
        cost = float(prices.kinds[kind])
        if not lengths:
            return [], 0.0
        if cost <= 0:
            return [], inf
        enough = cost * (1 + OFF) * (1 + 1e-8)
        columns, most = self._alone(kind, prices)
        most = max(most, enough)
        # What lengths promise at most, negative: the worst are divided first.
        heap = [(-inf, *open_) for open_ in self._open.get(kind, [(0, len(lengths) - 1)])]
        still_open: list[tuple[int, int]] = []
        looked = 0
        while heap and looked < RANGES and self.work > 0 and left() > 0:
            worst, low, high = heappop(heap)
            looked += 1
            menu = self.menus.between(kind, lengths[low], lengths[high])
            found = self._best(menu, prices, labels=self._many(kind), filled=self._binds[kind])
            self.work -= PRICING + found.looked
            if found.bound <= enough:
                continue
            made = self._true(menu, found, prices)
            columns += made
            if made or low == high:
                still_open.append((low, high))
                most = max(most, min(found.bound, -worst))
            else:
                middle = (low + high) // 2
                heappush(heap, (max(worst, -found.bound), low, middle))
                heappush(heap, (max(worst, -found.bound), middle + 1, high))
        if heap:
            most = max(most, -heap[0][0])
        self._open[kind] = still_open + [(low, high) for _, low, high in heap]
        return columns, most / cost

    def _many(self, kind: int) -> int:
        return MANY if self._binds[kind] else ROOMY

    def _true(self, menu: Menu, found: Priced, prices: Prices) -> list[Column]:
        slowdown = self.options.slowdown(menu.kind, 2)
        made = (self._made_true(menu, parts, prices, slowdown) for parts in found.devices)
        return [column for column in made if column is not None]

    def _alone(self, kind: int, prices: Prices) -> tuple[list[Column], float]:
        """Devices with one variant that are worth more than they cost, and what the best is worth.

        Only where others would slow it down; elsewhere it is one of many.
        """
        if self.options.slowdown(kind, 2) == 1:
            return [], 0.0
        menu = self.menus.alone[kind]
        at, numbers, part = self._of(menu)
        if not at.size:
            return [], 0.0
        worths = np.bincount(at, weights=np.maximum(prices.slopes[numbers], 0.0) * part)
        by_offer: dict[int, list[int]] = {}
        for position, worth in enumerate(worths.tolist()):
            if worth > 0:
                offer = self.options.all[menu.indices[position]].offer
                by_offer.setdefault(offer, []).append(position)
        best, columns = 0.0, []
        enough = float(prices.kinds[kind]) * (1 + OFF)
        for positions in by_offer.values():
            promised = float(worths[positions].sum())
            if promised <= enough:
                best = max(best, promised)
                continue
            batches = {menu.indices[at]: menu.batches[at] for at in positions}
            if not self._bear_each_other(batches):
                best = max(best, promised)
                column = self._made_true(menu, positions, prices, 1.0)
                if column is not None:
                    columns.append((promised, column))
                continue
            worth, does = self.filled(batches, kind, 1.0, prices)
            best = max(best, worth * (1 + 1e-9))
            if worth > enough:
                columns.append((worth, Column(kind=kind, parts=does)))
        columns.sort(key=lambda found: -found[0])
        return [column for _, column in columns[:COLUMNS]], best
