"""Planning for least power: the problem for least cost with other prices.

A device that is opened costs the watts that it draws idle, and a batch what it takes beyond that:
its joules less the idle draw while it runs. Where every device kind says what a kWh emits, both are
weighed by it, and grams of CO2 per hour take the place of watts. So what plans for cost also plans
for energy. Devices that are there anyway cost nothing to open.

What was not measured is neither free nor guessed at: queries are served by offers with a known
energy as far as these reach, and by others for the rest, the cheapest first. For that a row of
such an offer counts as more than ``FAR`` times the dearest that was measured, in the search alone;
what a plan says that it draws leaves it out.

Batch sizes are still those that take the least time per row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum

from planner.energy import EnergyCurve
from planner.solver.problem import Assignment, AvailableKind, Offer, Power, Problem, Solution
from variants.types import DeviceKindName

FAR = 1_000.0
"""Far above the ratio of any two variants that answer the same task."""
NOTHING_MEASURED = "no energy was measured, so the plan is the one of least cost"
G_PER_H = 1e-3
"""Grams per hour of a watt, for each gram per kWh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedProblem:
    """A problem with the prices of energy, and what its solutions mean."""

    problem: Problem
    """What to solve for least cost."""
    asked: Problem
    """What it was made of."""
    weights: tuple[float, ...]
    """Per kind: watts to what is compared."""
    carbon: bool
    """Whether grams of CO2 per hour are compared."""
    known: tuple[bool, ...]
    """Per offer: whether what it takes is known."""

    def restored(self, found: Solution) -> Solution:
        """A solution of ``problem`` as one of what was asked."""
        asked = self.asked
        usd = {kind.name: kind.usd_per_hour for kind in asked.kinds}
        solution = replace(found, usd_per_hour=fsum(usd[name] for name in found.devices))
        if not any(self.known):
            return replace(solution, notes=(*found.notes, NOTHING_MEASURED))
        power = self._power(found)
        reached = power.watts if power.carbon_g_per_hour is None else power.carbon_g_per_hour
        # With a part that is not known, nothing is known of the best plan either.
        bound = 0.0 if power.unmeasured_qps else min(found.bound, reached)
        return replace(solution, objective=reached, bound=bound, power=power)

    def _power(self, found: Solution) -> Power:
        kinds = {
            kind.name: (kind, w) for kind, w in zip(self.asked.kinds, self.weights, strict=True)
        }
        idle = {name: kind.idle_w or 0.0 for name, (kind, _) in kinds.items()}
        opened = [name for name in found.devices if not kinds[name][0].powered]
        drawn = [(idle[name], kinds[name][1]) for name in opened]
        unmeasured_qps = 0.0
        for part in found.assignments:
            if not self.known[part.offer]:
                unmeasured_qps += part.qps
                continue
            name = self.asked.offers[part.offer].device_kind
            drawn.append((part.qps * _beyond_idle(self.asked, part, idle), kinds[name][1]))
        idle_watts = fsum(idle[name] for name in opened)
        watts = fsum(w for w, _ in drawn)
        grams = fsum(w * weight for w, weight in drawn) if self.carbon else None
        return Power(
            watts=watts,
            idle_watts=idle_watts,
            carbon_g_per_hour=grams,
            unmeasured_qps=unmeasured_qps,
        )


def _beyond_idle(problem: Problem, part: Assignment, idle: dict[DeviceKindName, float]) -> float:
    """Joules of a row of a part, beyond what its device draws idle."""
    offer = problem.offers[part.offer]
    assert offer.energy is not None
    size = part.batch_size
    return _net(offer, size, idle[offer.device_kind]) / size


def _net(offer: Offer, size: int, idle_w: float) -> float:
    """Joules of a batch beyond the idle draw meanwhile; noise of a meter does not make it less
    than nothing."""
    assert offer.energy is not None
    return max(0.0, offer.energy.joules(size) - idle_w * offer.curve.latency_ms(size) / 1_000)


def by_power(problem: Problem) -> PricedProblem:
    """The problem whose least cost is the least power, or CO2, of another one."""
    kinds = {kind.name: kind for kind in problem.kinds}
    there = [kind for kind in problem.kinds if kind.count > 0]
    carbon = _compares_carbon(there)
    weights = tuple(_weight(kind) if carbon else 1.0 for kind in problem.kinds)
    by_kind = {kind.name: weight for kind, weight in zip(problem.kinds, weights, strict=True)}
    known = tuple(_is_known(offer, kinds.get(offer.device_kind)) for offer in problem.offers)
    if not any(known):
        return PricedProblem(
            problem=problem, asked=problem, weights=weights, carbon=carbon, known=known
        )
    prices = [
        0.0 if kind.powered else (kind.idle_w or 0.0) * weight
        for kind, weight in zip(problem.kinds, weights, strict=True)
    ]
    work = [
        EnergyCurve(
            (size, _net(offer, size, kinds[offer.device_kind].idle_w or 0.0)
             * by_kind[offer.device_kind])
            for size in _sizes(offer)
        )
        if is_known
        else None
        for offer, is_known in zip(problem.offers, known, strict=True)
    ]  # fmt: skip
    dearest = max([j / size for curve in work if curve for size, j in curve.points], default=0.0)
    far = FAR * max(dearest, 1e-9)
    usd = _relative_usd(problem)
    return PricedProblem(
        problem=replace(
            problem,
            # What is not known is no cheaper than the dearest that is.
            kinds=tuple(
                replace(kind, usd_per_hour=max(prices) if kind.idle_w is None and not kind.powered
                        else price)
                for kind, price in zip(problem.kinds, prices, strict=True)
            ),
            work=tuple(
                curve or _flat(offer, far * (1.0 + rank))
                for curve, offer, rank in zip(work, problem.offers, usd, strict=True)
            ),
        ),
        asked=problem,
        weights=weights,
        carbon=carbon,
        known=known,
    )  # fmt: skip


def idle_price(kinds: Iterable[AvailableKind]) -> float:
    """What all devices of these kinds draw idle, in watts or in grams per hour, as ``by_power``
    compares them."""
    there = [kind for kind in kinds if kind.count > 0]
    carbon = _compares_carbon(there)
    return fsum(
        kind.count * (kind.idle_w or 0.0) * (_weight(kind) if carbon else 1.0) for kind in there
    )


def _compares_carbon(there: Sequence[AvailableKind]) -> bool:
    return bool(there) and all(kind.carbon_g_per_kwh for kind in there)


def _weight(kind: AvailableKind) -> float:
    """Grams per hour of a watt on a kind; of a day's curve that was not narrowed to an hour, its
    mean. One that has no device may have no curve either: nothing is weighed by it."""
    curve = kind.carbon_g_per_kwh
    return G_PER_H * fsum(curve) / len(curve) if curve else 0.0


def _is_known(offer: Offer, kind: AvailableKind | None) -> bool:
    """Whether what an offer takes is known: its joules, and the idle draw of what is opened."""
    if offer.energy is None or kind is None:
        return False
    return kind.powered or kind.idle_w is not None


def _sizes(offer: Offer) -> Sequence[int]:
    """Batch sizes between which joules and latency are both linear."""
    assert offer.energy is not None
    sizes = {size for size, _ in offer.energy.points} | {size for size, _ in offer.curve.points}
    return sorted(sizes)


def _flat(offer: Offer, each: float) -> EnergyCurve:
    """So much for each row."""
    return EnergyCurve((size, each * size) for size in {1, offer.curve.max_batch})


def _relative_usd(problem: Problem) -> list[float]:
    """Per offer, the price of a row alone, as part of the dearest one's."""
    usd_per_hour = {kind.name: kind.usd_per_hour for kind in problem.kinds}
    rows = [
        usd_per_hour.get(offer.device_kind, 0.0) * offer.curve.latency_ms(1)
        for offer in problem.offers
    ]
    most = max(rows, default=0.0)
    return [row / most if most > 0 else 0.0 for row in rows]
