"""A device while a plan is made: what runs on it, and the room that is left.

It is mutable and lives inside one call of a planner. Every step keeps every constraint of a device.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import fsum, inf
from typing import NamedTuple

from planner.latency_curve import SizedBatch
from planner.solver.capacity import SLACK
from planner.solver.options import Option, Options

NEGLIGIBLE = 1e-12
"""Relative: a rate or a time below this part of its whole is none."""
ROUNDING = 4e-10
"""Relative: what solvers and sums may miss of a demand, and use more of a device's time."""
FULL = 1e-9
"""A part of its time that is not worth planning for."""


class Room(NamedTuple):
    """What a device has left for an option."""

    batch: SizedBatch
    """In which the option would run there."""
    qps: float
    """The rate that still fits, in queries per second."""


class _Pace(NamedTuple):
    """What is left of a device's time, and how quick it is: now, or once one more variant comes."""

    left: float
    slowdown: float
    longest_ms: float
    allowed_ms: float


class Device:
    """An opened device, or many that are alike: their kind and what runs on each."""

    __slots__ = (
        "_noisy",
        "_options",
        "_with_another",
        "allowed_ms",
        "count",
        "kind",
        "left",
        "longest_ms",
        "memory_mib",
        "offers",
        "parts",
        "slowdown",
    )

    kind: int
    count: int
    """How many devices this stands for. What is full is kept once; nothing is added to many."""
    parts: dict[int, tuple[SizedBatch, float]]
    """Per option: the batch it runs in and its rate."""
    left: float
    """Part of its time that may still be planned for."""
    longest_ms: float
    """The longest batch on it, by its profile."""
    allowed_ms: float
    """The longest batch that every class on it can bear, by its profile."""
    slowdown: float
    """Times what profiles say that batches take here."""

    def __init__(self, options: Options, kind: int) -> None:
        self._options = options
        self._noisy = options.problem.kinds[kind].interference > 0
        self.kind = kind
        self.count = 1
        self.parts = {}
        self.offers: set[int] = set()
        self._with_another: _Pace | None = None
        """Its pace beside a second variant, once that was asked for."""
        self._measure()

    def _measure(self) -> None:
        options = self._options
        self.left = options.problem.load * (1 + ROUNDING)
        self.longest_ms = 0.0
        self.allowed_ms = inf
        self.memory_mib = options.problem.kinds[self.kind].memory_mib
        self.offers.clear()
        self._with_another = None
        self.slowdown = self._slowdown(self.parts) if self._noisy else 1.0
        for index, (batch, qps) in self.parts.items():
            self._account(index, batch, qps)

    def _account(self, index: int, batch: SizedBatch, qps: float) -> None:
        offer, memory_mib, _, _, _, left_ms = self._options.needs[index]
        self._with_another = None
        self.left -= qps * batch.unit_ms * self.slowdown / 1000
        self.longest_ms = max(self.longest_ms, batch.latency_ms)
        allowed_ms = left_ms / self.slowdown - batch.latency_ms
        self.allowed_ms = min(self.allowed_ms, allowed_ms)
        if offer not in self.offers:
            self.offers.add(offer)
            self.memory_mib -= memory_mib

    def _slowdown(self, indices: Iterable[int]) -> float:
        """Times what profiles say that batches take on this kind beside these options."""
        needs = self._options.needs
        offers = {needs[index][0] for index in indices}
        return self._options.slowdown(self.kind, len(offers))

    def _begins(self, offer: int) -> bool:
        """Whether batches here become longer when this offer comes."""
        return self.slowdown == 1 and len(self.offers) == 1 and offer not in self.offers

    def _beside_another(self) -> _Pace:
        """Its pace once a second variant comes; without time where what is there would be late."""
        if self._with_another is None:
            needs, slowdown = self._options.needs, self._options.slowdown(self.kind, 2)
            load = self._options.problem.load * (1 + ROUNDING)
            left = load - (load - self.left) * (slowdown / self.slowdown)
            allowed_ms = min(
                [needs[i][5] / slowdown - batch.latency_ms for i, (batch, _) in self.parts.items()]
            )
            if self.longest_ms > allowed_ms:
                left = 0.0
            self._with_another = _Pace(left, slowdown, self.longest_ms, allowed_ms)
        return self._with_another

    def room(self, index: int) -> Room | None:
        """The best batch of an option beside what is there, and the rate that still fits."""
        left = self.left
        if left <= NEGLIGIBLE:
            return None
        offer, memory_mib, alone, alone_ms, smallest_ms, left_ms = self._options.needs[index]
        slowdown, longest_ms, allowed_ms = self.slowdown, self.longest_ms, self.allowed_ms
        part = None
        if offer in self.offers:
            part = self.parts.get(index)
        elif memory_mib > self.memory_mib * (1 + SLACK):
            return None
        elif self._noisy and slowdown == 1 and len(self.offers) == 1:
            left, slowdown, longest_ms, allowed_ms = self._with_another or self._beside_another()
            if left <= NEGLIGIBLE:
                return None
        if part is not None:
            batch: SizedBatch | None = part[0]
        else:
            left_ms /= slowdown
            # Half of what is left if that makes it the longest; else it bears the longest's wait.
            limit = left_ms / 2
            if limit < longest_ms:
                limit = left_ms - longest_ms
            limit = min(limit, allowed_ms)
            if limit <= 0 or limit < smallest_ms:
                return None
            batch = alone if limit >= alone_ms else self._options.batch(index, limit)
        if batch is None:
            return None
        unit_ms = batch.unit_ms * slowdown
        made = (batch, left * 1000 / unit_ms if unit_ms > 0 else inf)
        return tuple.__new__(Room, made)  # its own constructor would take twice as long

    def put(self, index: int, batch: SizedBatch, qps: float) -> None:
        """Add a rate; it must fit (``room``)."""
        before = self.parts.get(index)
        self.parts[index] = (batch, qps + (before[1] if before else 0.0))
        if self._noisy and self._begins(self._options.all[index].offer):
            self._measure()
        else:
            self._account(index, batch, qps)

    def take(self, index: int, qps: float) -> float:
        """Remove up to ``qps`` of an option; return how much was removed."""
        batch, there = self.parts[index]
        if qps >= there * (1 - NEGLIGIBLE):
            del self.parts[index]
            taken = there
        else:
            self.parts[index] = (batch, there - qps)
            taken = qps
        self._measure()
        return taken

    def tighten(self) -> None:
        """Choose all batches on it anew, so that they take the least time."""
        needs = self._options.needs
        for index, (batch, _) in self.parts.items():
            if batch is not needs[index][2] and batch != needs[index][2]:
                break
        else:
            return
        busy = fsum(qps * batch.unit_ms for batch, qps in self.parts.values()) * self.slowdown
        found = min(self._arrangements(list(self.parts)), key=lambda one: one[0], default=None)
        if found is not None and found[0] < busy * (1 - 1e-9):
            self._rebatch(found[1])

    def brace(self) -> None:
        """Choose the only batch on it so that others can come although they slow it down."""
        slowdown = self._options.slowdown(self.kind, 2)
        if slowdown == 1 or len(self.parts) != 1:
            return
        [(index, (_, qps))] = self.parts.items()
        half_ms = self._options.left_ms(self._options.all[index].demand) / slowdown / 2
        batch = self._options.batch(index, half_ms)
        if batch is not None and qps * batch.unit_ms <= self._options.problem.load * 1000:
            self._rebatch({index: batch})

    def make_room(self, index: int) -> Room | None:
        """The room of an option, smaller batches for those that are there if it needs them."""
        room = self.room(index)
        if room is not None or not self.parts:
            return room
        option = self._options.all[index]
        if option.offer not in self.offers and option.memory_mib > self.memory_mib * (1 + SLACK):
            return None
        most, chosen = 0.0, None
        slowdown = self._slowdown([*self.parts, index]) if self._noisy else 1.0
        if self._busy_ms_at_least() * slowdown >= self._options.problem.load * 1000:
            return None  # as mostly, and there are many ways to choose the batches
        for busy_ms, batches in self._arrangements([*self.parts, index]):
            unit_ms = max(batches[index].unit_ms * slowdown, 1e-12)
            qps = (self._options.problem.load * 1000 - busy_ms) / unit_ms
            if qps > most * (1 + 1e-9):
                most, chosen = qps, batches
        if chosen is None or most <= NEGLIGIBLE * self._options.rates[option.demand]:
            return None
        self._rebatch(chosen)
        return self.room(index)

    def _busy_ms_at_least(self) -> float:
        """What is on it takes at least, in ms/s, by profiles: each in its best batch."""
        needs = self._options.needs
        return fsum([qps * needs[index][2].unit_ms for index, (_, qps) in self.parts.items()])

    def _arrangements(self, indices: list[int]) -> Iterator[tuple[float, dict[int, SizedBatch]]]:
        """Batches of these options for some longest batches, with the time of those here in ms/s.

        The longest batches tried are those that are best for one option alone, and those that one
        option can just bear with its smallest batch.
        """
        options = self._options
        found = [options.all[index] for index in indices]
        slowdown = self._slowdown(indices) if self._noisy else 1.0
        bearable_ms = [self._bearable_ms(option, slowdown) for option in found]
        least_ms = max([option.smallest_ms for option in found])
        most_ms = min(bearable_ms) * (1 + 1e-9)
        if least_ms > most_ms:
            return  # an option's smallest batch would not fit, whatever the longest is
        longest = {batch.latency_ms for batch, _ in self.parts.values()}
        longest.update([option.alone.latency_ms for option in found])
        # Rounding must not put the smallest batch just out of reach.
        longest.update([ms * (1 - 1e-12) for ms in bearable_ms])
        if slowdown > 1:
            # Half of what interference leaves is the longest batch that is best for one alone.
            halves = [options.left_ms(option.demand) / slowdown / 2 for option in found]
            longest.update([ms * (1 - 1e-12) for ms in halves])
        bounds = [
            (index, option.alone, options.left_ms(option.demand) / slowdown)
            for index, option in zip(indices, found, strict=True)
        ]
        for longest_ms in sorted(longest):
            if not least_ms <= longest_ms <= most_ms:
                continue
            batches: dict[int, SizedBatch] = {}
            for index, alone, left_ms in bounds:
                limit_ms = min(longest_ms, left_ms - longest_ms)
                batch = alone if limit_ms >= alone.latency_ms else options.batch(index, limit_ms)
                if batch is None:
                    break
                batches[index] = batch
            else:
                busy = fsum(qps * batches[i].unit_ms for i, (_, qps) in self.parts.items())
                yield busy * slowdown, batches

    def _bearable_ms(self, option: Option, slowdown: float) -> float:
        """The longest batch of others that an option can bear with its smallest, by profiles."""
        if slowdown == 1:
            return option.bearable_ms
        return self._options.left_ms(option.demand) / slowdown - option.smallest_ms

    def _rebatch(self, batches: Mapping[int, SizedBatch]) -> None:
        self.parts = {index: (batches[index], qps) for index, (_, qps) in self.parts.items()}
        self._measure()

    def copy(self) -> "Device":
        """A device that can be changed without changing this one."""
        made = Device.__new__(Device)
        made._options, made._noisy = self._options, self._noisy
        made._with_another = self._with_another
        made.kind = self.kind
        made.count = self.count
        made.parts = dict(self.parts)
        made.offers = set(self.offers)
        made.left = self.left
        made.longest_ms = self.longest_ms
        made.allowed_ms = self.allowed_ms
        made.memory_mib = self.memory_mib
        made.slowdown = self.slowdown
        return made
