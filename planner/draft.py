"""A plan in the making: devices that are opened, filled and emptied until it is finished.

Mutable on purpose; it lives inside one call of a planner. Every step keeps every constraint, so
whatever stands there when the time is up is a plan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, fsum, inf
from typing import NamedTuple

from planner.capacity import SLACK
from planner.curve import Batch
from planner.menu import Menu
from planner.problem import Assignment, Objective, Solution

NEGLIGIBLE = 1e-12
"""Relative: a rate or a time below this part of its whole is none."""
ROUNDING = 4e-10
"""Relative: what solvers and sums may miss of a demand, and use more of a device's time."""


class Room(NamedTuple):
    """What a device has left for an option."""

    batch: Batch
    qps: float


class Device:
    """An opened device, or many that are alike: their kind and what runs on each."""

    __slots__ = (
        "_menu",
        "allowed_ms",
        "count",
        "kind",
        "left",
        "longest_ms",
        "memory_mib",
        "offers",
        "parts",
    )

    kind: int
    count: int
    """How many devices this stands for. What is full is kept once; nothing is added to many."""
    parts: dict[int, tuple[Batch, float]]
    """Per option: the batch it runs in and its rate."""
    left: float
    """Part of its time that may still be planned for."""
    longest_ms: float
    """The longest batch on it."""
    allowed_ms: float
    """The longest batch that everyone on it can bear."""

    def __init__(self, menu: Menu, kind: int) -> None:
        self._menu = menu
        self.kind = kind
        self.count = 1
        self.parts = {}
        self.offers: set[int] = set()
        self._measure()

    def _measure(self) -> None:
        menu = self._menu
        self.left = menu.problem.load * (1 + ROUNDING)
        self.longest_ms = 0.0
        self.allowed_ms = inf
        self.memory_mib = menu.problem.kinds[self.kind].memory_mib
        self.offers.clear()
        for index, (batch, qps) in self.parts.items():
            self._account(index, batch, qps)

    def _account(self, index: int, batch: Batch, qps: float) -> None:
        option = self._menu.options[index]
        self.left -= qps * batch.unit_ms / 1000
        self.longest_ms = max(self.longest_ms, batch.latency_ms)
        self.allowed_ms = min(self.allowed_ms, self._menu.left_ms(option.demand) - batch.latency_ms)
        if option.offer not in self.offers:
            self.offers.add(option.offer)
            self.memory_mib -= option.memory_mib

    def room(self, index: int) -> Room | None:
        """The best batch of an option beside what is there, and the rate that still fits."""
        if self.left <= NEGLIGIBLE:
            return None
        menu = self._menu
        option = menu.options[index]
        if option.offer not in self.offers and option.memory_mib > self.memory_mib * (1 + SLACK):
            return None
        if (part := self.parts.get(index)) is not None:
            batch: Batch | None = part[0]
        else:
            left_ms = menu.left_ms(option.demand)
            # Half of what is left if that makes it the longest; else it bears the longest's wait.
            half = left_ms / 2
            limit = half if half >= self.longest_ms else left_ms - self.longest_ms
            limit = min(limit, self.allowed_ms)
            if limit <= 0 or limit < option.smallest_ms:
                return None
            batch = option.alone if limit >= option.alone.latency_ms else menu.batch(index, limit)
        if batch is None:
            return None
        return Room(batch, self.left * 1000 / batch.unit_ms if batch.unit_ms > 0 else inf)

    def put(self, index: int, batch: Batch, qps: float) -> None:
        """Add a rate; it must fit (``room``)."""
        before = self.parts.get(index)
        self.parts[index] = (batch, qps + (before[1] if before else 0.0))
        self._account(index, batch, qps)

    def take(self, index: int, qps: float) -> float:
        """Remove up to a rate of an option; what was removed comes back."""
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
        """Choose everyone's batches anew, so that all takes the least time."""
        options = self._menu.options
        if all(batch == options[index].alone for index, (batch, _) in self.parts.items()):
            return
        busy = fsum(qps * batch.unit_ms for batch, qps in self.parts.values())
        found = min(self._arrangements(list(self.parts)), key=lambda one: one[0], default=None)
        if found is not None and found[0] < busy * (1 - 1e-9):
            self._rebatch(found[1])

    def make_room(self, index: int) -> Room | None:
        """The room of an option, smaller batches for those that are there if it needs them."""
        room = self.room(index)
        if room is not None or not self.parts:
            return room
        option = self._menu.options[index]
        if option.offer not in self.offers and option.memory_mib > self.memory_mib * (1 + SLACK):
            return None
        most, chosen = 0.0, None
        for busy_ms, batches in self._arrangements([*self.parts, index]):
            qps = (self._menu.problem.load * 1000 - busy_ms) / max(batches[index].unit_ms, 1e-12)
            if qps > most * (1 + 1e-9):
                most, chosen = qps, batches
        if chosen is None or most <= NEGLIGIBLE * self._menu.rates[option.demand]:
            return None
        self._rebatch(chosen)
        return self.room(index)

    def _arrangements(self, options: list[int]) -> Iterator[tuple[float, dict[int, Batch]]]:
        """Batches of these options for some longest batches, with the time of those here in ms/s.

        The longest batches tried are those that are best for one option alone, and those that one
        option can just bear with its smallest batch.
        """
        menu = self._menu
        found = [menu.options[index] for index in options]
        least_ms = max([option.smallest_ms for option in found])
        most_ms = min([option.bearable_ms for option in found]) * (1 + 1e-9)
        if least_ms > most_ms:
            return  # somebody's smallest batch would not fit, whatever is the longest
        longest = {batch.latency_ms for batch, _ in self.parts.values()}
        longest.update([option.alone.latency_ms for option in found])
        # Rounding must not put the smallest batch just out of reach.
        longest.update([option.bearable_ms * (1 - 1e-12) for option in found])
        bounds = [
            (index, option.alone, menu.left_ms(option.demand))
            for index, option in zip(options, found, strict=True)
        ]
        for longest_ms in sorted(longest):
            if not least_ms <= longest_ms <= most_ms:
                continue
            batches: dict[int, Batch] = {}
            for index, alone, left_ms in bounds:
                limit_ms = min(longest_ms, left_ms - longest_ms)
                batch = alone if limit_ms >= alone.latency_ms else menu.batch(index, limit_ms)
                if batch is None:
                    break
                batches[index] = batch
            else:
                busy = fsum(qps * batches[i].unit_ms for i, (_, qps) in self.parts.items())
                yield busy, batches

    def _rebatch(self, batches: Mapping[int, Batch]) -> None:
        self.parts = {index: (batches[index], qps) for index, (_, qps) in self.parts.items()}
        self._measure()

    def copy(self) -> "Device":
        made = Device(self._menu, self.kind)
        made.count = self.count
        made.parts = dict(self.parts)
        made.offers = set(self.offers)
        made.left = self.left
        made.longest_ms = self.longest_ms
        made.allowed_ms = self.allowed_ms
        made.memory_mib = self.memory_mib
        return made


class Draft:
    """Devices, and what of each class is not yet served."""

    __slots__ = ("devices", "menu", "missing", "opened")

    def __init__(self, menu: Menu) -> None:
        self.menu = menu
        self.devices: list[Device] = []
        self.opened = [0] * len(menu.counts)
        self.missing = list(menu.rates)
        """Per class, in queries per second."""

    def copy(self) -> "Draft":
        made = Draft(self.menu)
        made.devices = [device.copy() for device in self.devices]
        made.opened = list(self.opened)
        made.missing = list(self.missing)
        return made

    def open(self, kind: int) -> Device:
        device = Device(self.menu, kind)
        self.devices.append(device)
        self.opened[kind] += 1
        return device

    def close(self, device: Device) -> None:
        """Give a device back; what it served is missing again."""
        for index, (_, qps) in device.parts.items():
            self.missing[self.menu.options[index].demand] += qps * device.count
        self.devices.remove(device)
        self.opened[device.kind] -= device.count

    def take_in(self, device: Device, count: int = 1) -> None:
        """Open this many of a device that was filled outside; they must be allowed."""
        device.count = count
        self.devices.append(device)
        self.opened[device.kind] += count
        for index, (_, qps) in device.parts.items():
            demand = self.menu.options[index].demand
            left = self.missing[demand] - qps * count
            self.missing[demand] = left if left > ROUNDING * self.menu.rates[demand] else 0.0

    def openable(self, kind: int) -> int:
        """How many more of a kind counts and pools allow."""
        problem = self.menu.problem
        most = self.menu.counts[kind] - self.opened[kind]
        for pool in problem.pools:
            uses = pool.uses.get(problem.kinds[kind].name, 0.0)
            if uses <= 0:
                continue
            used = sum(
                pool.uses.get(other.name, 0.0) * self.opened[n]
                for n, other in enumerate(problem.kinds)
            )
            most = min(most, floor((pool.capacity - used) / uses + SLACK))
        return max(0, most)

    def serve(self, device: Device, index: int, room: Room, qps: float) -> None:
        """Serve up to ``qps`` of a class in a room."""
        demand = self.menu.options[index].demand
        taken = min(qps, room.qps, self.missing[demand])
        if taken <= NEGLIGIBLE * self.menu.rates[demand]:
            return
        device.put(index, room.batch, taken)
        left = self.missing[demand] - taken
        self.missing[demand] = left if left > ROUNDING * self.menu.rates[demand] else 0.0

    @property
    def complete(self) -> bool:
        return not any(self.missing)

    @property
    def served_qps(self) -> float:
        return fsum(self.menu.rates) - fsum(self.missing)

    @property
    def usd_per_hour(self) -> float:
        return fsum(n * price for n, price in zip(self.opened, self.menu.prices, strict=True))

    @property
    def weighed(self) -> float:
        """Sum of rate x accuracy."""
        return fsum(
            qps * self.menu.options[index].accuracy * device.count
            for device in self.devices
            for index, (_, qps) in device.parts.items()
        )

    def drop_empty(self) -> None:
        for device in [device for device in self.devices if not device.parts]:
            self.close(device)


def better(one: Draft, other: Draft, objective: Objective) -> bool:
    """Whether a plan beats another: more served, then the objective, then cheaper."""
    total = fsum(one.menu.rates)
    served = one.served_qps - other.served_qps
    if abs(served) > 1e-9 * total:
        return served > 0
    if objective is Objective.ACCURACY:
        gained = one.weighed - other.weighed
        if abs(gained) > 1e-9 * total:
            return gained > 0
    return one.usd_per_hour < other.usd_per_hour * (1 - 1e-9)


def finish(
    draft: Draft,
    objective: Objective,
    *,
    bound: float,
    timed_out: bool = False,
    notes: Iterable[str] = (),
) -> Solution:
    """The draft as a solution. Devices are grouped by kind, those that do nothing left out."""
    menu = draft.menu
    names = [kind.name for kind in menu.problem.kinds]
    devices = sorted(
        (d for d in draft.devices if d.parts for _ in range(d.count)), key=lambda d: d.kind
    )
    parts = [_assignments(menu, at, device) for at, device in enumerate(devices)]
    assignments = tuple(part for found in parts for part in found)
    served = fsum(part.qps for part in assignments)
    offers = menu.problem.offers
    weighed = fsum(part.qps * offers[part.offer].accuracy for part in assignments)
    accuracy = weighed / served if served else 0.0
    cost = fsum(menu.prices[device.kind] for device in devices)
    objective_value = cost if objective is Objective.COST else accuracy
    return Solution(
        devices=tuple(names[device.kind] for device in devices),
        assignments=assignments,
        served_qps=served,
        accuracy=accuracy,
        usd_per_hour=cost,
        feasible=draft.complete,
        objective=objective_value,
        # Rounding must not put the bound on the wrong side of what was reached.
        bound=min(bound, cost) if objective is Objective.COST else max(bound, accuracy),
        timed_out=timed_out,
        notes=tuple(notes),
    )


def _assignments(menu: Menu, at: int, device: Device) -> Sequence[Assignment]:
    made = [
        Assignment(
            device=at,
            demand=menu.options[index].demand,
            offer=menu.options[index].offer,
            batch_size=batch.size,
            qps=qps,
            share=qps * batch.latency_ms / (1000 * batch.size),
        )
        for index, (batch, qps) in device.parts.items()
    ]
    return sorted(made, key=lambda part: (part.demand, part.offer))
