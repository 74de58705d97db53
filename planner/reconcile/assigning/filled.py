"""Plans whose batches fill on the devices that they are planned for.

A solver counts a row of a variant as the same part of a device's time wherever it is served, in the
largest batches that the class as a whole could fill. What packing leaves of a class for a device
fills smaller ones: a variant that gets few rows there runs about as often as one that gets many,
because rows may not wait, and where a batch takes nearly as long for one row as for sixteen it
takes nearly as much of the device. Three variants of which a plan says that they fill a GPU may
need a fifth more than all of its time. So what does not fill its batches on a device that has no
time for that is taken off it, and planned anew on the devices that are left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

from planner.solver.problem import Assignment, AvailableKind, Planner, Problem, Solution
from planner.types import Objective
from variants.types import DeviceKindName

WAITS = 0.7
"""Part of the time beside its own batch for which a row waits for others."""
WASTEFUL = 1.5
"""Times the time that the solver counts: what takes no longer stays where it is."""
TOO_FULL = 1.1
"""Times the time of a device that may be planned for: one that is no fuller stays as it is."""
ROUNDS = 3
"""How often what was taken off is planned anew."""
CLOSE = 1e-9
"""Relative: what rounding may be about."""


def filled(problem: Problem, found: Solution, planner: Planner) -> Solution:
    """A solution of the same problem whose batches fill, where plans are for the least cost.

    It serves less than the one given where what was taken off has no other place.

    Args:
        problem: whose cost counts.
        found: a solution, which stays as it is where it does not serve all.
        planner: for what has to find another place.
    """
    if not found.feasible:
        return found
    kept: list[_Device] = []
    for turn in range(ROUNDS):
        devices = _devices(problem, found)
        missing = [0.0] * len(problem.demand)
        short: set[DeviceKindName] = set()
        for device in devices:
            for part in device.take_off():
                missing[part.demand] += part.qps
                short.add(device.kind.name)
        if not short:
            return found if turn == 0 else _solution(problem, found, kept + devices)
        _put_back(devices, missing)
        kept += [device for device in devices if device.kind.name in short]
        others = [device for device in devices if device.kind.name not in short]
        if not any(missing):
            return _solution(problem, found, kept + others)
        for device in others:
            for part in device.parts:
                missing[part.demand] += part.qps
        rest = planner(_rest(problem, kept, missing), Objective.COST)
        found = replace(rest, bound=found.bound, timed_out=found.timed_out or rest.timed_out)
    devices = _devices(problem, found)
    for device in devices:
        device.take_off()
    return _solution(problem, found, kept + devices)


@dataclass(slots=True)
class _Device:
    """A device of a solution."""

    problem: Problem
    kind: AvailableKind
    parts: list[Assignment] = field(default_factory=list)

    @property
    def slowdown(self) -> float:
        return self.kind.slowdown(len({part.offer for part in self.parts}))

    @property
    def left(self) -> float:
        """Of the time that may be planned for."""
        return self.problem.load - fsum(part.share for part in self.parts)

    def takes(self) -> dict[int, float]:
        """By offer: what its parts take of the device in the batches that they fill here."""
        waiting: dict[int, float] = {}
        for part in self.parts:
            rows = part.qps * self._waits_s(part)
            waiting[part.offer] = waiting.get(part.offer, 0.0) + rows
        found: dict[int, float] = {}
        for part in self.parts:
            rows = min(float(part.batch_size), max(1.0, waiting[part.offer]))
            share = part.qps * self._unit_s(part.offer, rows) * self.slowdown
            found[part.offer] = found.get(part.offer, 0.0) + share
        return found

    def take_off(self) -> list[Assignment]:
        """Take off what has no time in the batches that it fills: what loses most by them first."""
        taken: list[Assignment] = []
        while True:
            takes = self.takes()
            if fsum(takes.values()) <= self.problem.load * TOO_FULL:
                return taken
            counted = dict.fromkeys(takes, 0.0)
            for part in self.parts:
                counted[part.offer] += part.share
            worst = max(takes, key=lambda offer: (takes[offer] / max(counted[offer], CLOSE), offer))
            if takes[worst] <= WASTEFUL * counted[worst]:
                return taken
            taken += [part for part in self.parts if part.offer == worst]
            self.parts = [part for part in self.parts if part.offer != worst]

    def add(self, part: Assignment, qps: float) -> float:
        """Give a part of it more of its class, as far as there is time; how much that was."""
        unit_s = self._unit_s(part.offer, part.batch_size) * self.slowdown
        more = min(qps, max(0.0, self.left) / max(unit_s, CLOSE))
        at = self.parts.index(part)
        share = (part.qps + more) * unit_s
        self.parts[at] = replace(part, qps=part.qps + more, share=share)
        return more

    def _waits_s(self, part: Assignment) -> float:
        """How long a row waits for others of its batch."""
        left_ms = self.problem.demand[part.demand].latency_ms - self.problem.overhead_ms
        own_ms = self.problem.offers[part.offer].curve.latency_ms(part.batch_size)
        return WAITS * max(0.0, left_ms - own_ms * self.slowdown) / 1_000

    def _unit_s(self, offer: int, rows: float) -> float:
        """Time per row in batches of so many rows in the mean."""
        return self.problem.offers[offer].curve.latency_ms(rows) / (1_000 * rows)


def _devices(problem: Problem, found: Solution) -> list[_Device]:
    kinds = {kind.name: kind for kind in problem.kinds}
    devices = [_Device(problem, kinds[name]) for name in found.devices]
    for part in found.assignments:
        devices[part.device].parts.append(part)
    return devices


def _put_back(devices: Iterable[_Device], missing: list[float]) -> None:
    """Give what was taken off to devices that serve the same class already and have time left."""
    for device in devices:
        for part in list(device.parts):
            if missing[part.demand] > 0.0 and device.left > CLOSE:
                more = device.add(part, missing[part.demand])
                missing[part.demand] = max(0.0, missing[part.demand] - more)


def _rest(problem: Problem, kept: Sequence[_Device], missing: Sequence[float]) -> Problem:
    """The problem that is left: other devices, and what is not served by those that are kept."""
    used: dict[DeviceKindName, int] = {}
    for device in kept:
        used[device.kind.name] = used.get(device.kind.name, 0) + 1
    return replace(
        problem,
        kinds=tuple(
            [
                replace(kind, count=kind.count - used.get(kind.name, 0))
                for kind in problem.kinds
                if kind.count > used.get(kind.name, 0)
            ]
        ),
        demand=tuple(
            [replace(demand, qps=qps) for demand, qps in zip(problem.demand, missing, strict=True)]
        ),
        common=None,
    )


def _solution(problem: Problem, found: Solution, devices: Sequence[_Device]) -> Solution:
    """Of these devices, with what was known of the one before."""
    order: Mapping[DeviceKindName, int] = {kind.name: n for n, kind in enumerate(problem.kinds)}
    devices = sorted([d for d in devices if d.parts], key=lambda d: order[d.kind.name])
    parts = [
        replace(part, device=at)
        for at, device in enumerate(devices)
        for part in sorted(device.parts, key=lambda part: (part.demand, part.offer))
    ]
    served = [0.0] * len(problem.demand)
    for part in parts:
        served[part.demand] += part.qps
    in_all = fsum(served)
    usd = fsum(device.kind.usd_per_hour for device in devices)
    whole = all(
        qps >= demand.qps * (1 - CLOSE) for qps, demand in zip(served, problem.demand, strict=True)
    )
    weighed = fsum(part.qps * problem.offers[part.offer].accuracy for part in parts)
    return replace(
        found,
        devices=tuple([device.kind.name for device in devices]),
        assignments=tuple(parts),
        served_qps=in_all,
        accuracy=weighed / in_all if in_all else 0.0,
        usd_per_hour=usd,
        feasible=whole,
        objective=usd,
        bound=min(found.bound, usd),
        notes=(*found.notes, "what does not fill its batches planned elsewhere"),
    )
