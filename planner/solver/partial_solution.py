"""A partial solution: devices that are opened, filled and emptied until the plan is finished.

It is mutable and lives inside one call of a planner. Every step keeps every constraint, so what is
there when the time is up is a plan.
"""

from collections.abc import Iterable, Sequence
from math import floor, fsum

from planner.solver.capacity import SLACK
from planner.solver.device import NEGLIGIBLE, ROUNDING, Device, Room
from planner.solver.options import Options
from planner.solver.problem import Assignment, Solution
from planner.types import Objective


class PartialSolution:
    """Devices, and what of each class is not yet served."""

    __slots__ = ("devices", "missing", "opened", "options")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.devices: list[Device] = []
        self.opened = [0] * len(options.counts)
        """Per kind."""
        self.missing = list(options.rates)
        """Per class, in queries per second."""

    def copy(self) -> "PartialSolution":
        """The same with devices of its own, so that changes do not reach this one."""
        made = PartialSolution(self.options)
        made.devices = [device.copy() for device in self.devices]
        made.opened = list(self.opened)
        made.missing = list(self.missing)
        return made

    def without(self, at: int) -> "PartialSolution":
        """This plan without one of its devices, which shares the others with it."""
        made = PartialSolution(self.options)
        made.devices = list(self.devices)
        made.opened = list(self.opened)
        made.missing = list(self.missing)
        made.close(self.devices[at])
        return made

    def open(self, kind: int) -> Device:
        """Open an empty device; counts and pools must allow it (``openable``)."""
        device = Device(self.options, kind)
        self.devices.append(device)
        self.opened[kind] += 1
        return device

    def close(self, device: Device) -> None:
        """Give a device back; what it served is missing again."""
        for index, (_, qps) in device.parts.items():
            self.missing[self.options.all[index].demand] += qps * device.count
        self.devices.remove(device)
        self.opened[device.kind] -= device.count

    def take_in(self, device: Device, count: int = 1) -> None:
        """Open this many of a device that was filled outside; they must be allowed."""
        device.count = count
        self.devices.append(device)
        self.opened[device.kind] += count
        for index, (_, qps) in device.parts.items():
            demand = self.options.all[index].demand
            left = self.missing[demand] - qps * count
            self.missing[demand] = left if left > ROUNDING * self.options.rates[demand] else 0.0

    def openable(self, kind: int) -> int:
        """How many more of a kind counts and pools allow."""
        problem = self.options.problem
        most = self.options.counts[kind] - self.opened[kind]
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
        demand = self.options.all[index].demand
        taken = min(qps, room.qps, self.missing[demand])
        if taken <= NEGLIGIBLE * self.options.rates[demand]:
            return
        device.put(index, room.batch, taken)
        left = self.missing[demand] - taken
        self.missing[demand] = left if left > ROUNDING * self.options.rates[demand] else 0.0

    @property
    def complete(self) -> bool:
        """Whether all demand is served."""
        return not any(self.missing)

    @property
    def served_qps(self) -> float:
        """Of all classes together, in queries per second."""
        return fsum(self.options.rates) - fsum(self.missing)

    @property
    def usd_per_hour(self) -> float:
        """Price of the opened devices, and of what runs on them where that has a cost."""
        devices = zip(self.opened, self.options.prices, strict=True)
        return fsum(n * price for n, price in devices) + _work(self.options, self.devices)

    @property
    def usd_of_another(self) -> float:
        """The price of the cheapest device that can be opened; none where there is no such."""
        prices = enumerate(self.options.prices)
        return min([usd for kind, usd in prices if self.openable(kind)], default=0.0)

    @property
    def weighed(self) -> float:
        """Sum of rate x accuracy."""
        return fsum(
            qps * self.options.all[index].accuracy * device.count
            for device in self.devices
            for index, (_, qps) in device.parts.items()
        )

    def drop_empty(self) -> None:
        """Close the devices that serve nothing."""
        for device in [device for device in self.devices if not device.parts]:
            self.close(device)


def _work(options: Options, devices: Iterable[Device]) -> float:
    """What runs on devices costs this beside their price."""
    if not options.has_work:
        return 0.0
    return fsum(
        device.count * qps * options.work(index, batch)
        for device in devices
        for index, (batch, qps) in device.parts.items()
    )


def better(one: PartialSolution, other: PartialSolution, objective: Objective) -> bool:
    """Whether a plan beats another: more served, then the objective, then cheaper."""
    total = fsum(one.options.rates)
    served = one.served_qps - other.served_qps
    if abs(served) > 1e-9 * total:
        return served > 0
    if objective is Objective.ACCURACY:
        gained = one.weighed - other.weighed
        if abs(gained) > 1e-9 * total:
            return gained > 0
    return one.usd_per_hour < other.usd_per_hour * (1 - 1e-9)


def finish(
    partial: PartialSolution,
    objective: Objective,
    *,
    bound: float,
    timed_out: bool = False,
    notes: Iterable[str] = (),
) -> Solution:
    """The finished solution: devices grouped by kind, without those that do nothing."""
    options = partial.options
    names = [kind.name for kind in options.problem.kinds]
    devices = sorted(
        (d for d in partial.devices if d.parts for _ in range(d.count)), key=lambda d: d.kind
    )
    parts = [_assignments(options, at, device) for at, device in enumerate(devices)]
    assignments = tuple(part for found in parts for part in found)
    served = fsum(part.qps for part in assignments)
    offers = options.problem.offers
    weighed = fsum(part.qps * offers[part.offer].accuracy for part in assignments)
    accuracy = weighed / served if served else 0.0
    cost = fsum(options.prices[device.kind] for device in devices)
    cost += _work(options, partial.devices)
    objective_value = cost if objective is Objective.COST else accuracy
    return Solution(
        devices=tuple(names[device.kind] for device in devices),
        assignments=assignments,
        served_qps=served,
        accuracy=accuracy,
        usd_per_hour=cost,
        feasible=partial.complete,
        objective=objective_value,
        # Rounding must not put the bound on the wrong side of what was reached.
        bound=min(bound, cost) if objective is Objective.COST else max(bound, accuracy),
        timed_out=timed_out,
        notes=tuple(notes),
    )


def nothing(options: Options, objective: Objective) -> Solution:
    """The solution that serves nothing."""
    return finish(PartialSolution(options), objective, bound=0.0)


def _assignments(options: Options, at: int, device: Device) -> Sequence[Assignment]:
    made = [
        Assignment(
            device=at,
            demand=options.all[index].demand,
            offer=options.all[index].offer,
            batch_size=batch.size,
            qps=qps,
            share=qps * batch.latency_ms * device.slowdown / (1000 * batch.size),
        )
        for index, (batch, qps) in device.parts.items()
    ]
    return sorted(made, key=lambda part: (part.demand, part.offer))
