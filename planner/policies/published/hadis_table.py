"""HADIS' configurations: for each class of queries a light and a heavy variant, and who gets which.

After Yang et al., 2025 (arXiv 2509.00642), sections 4 and 5. Offline, all pairs of a light and a
heavy variant at all parts that go to the heavy one are profiled, and those that another one beats
are left out (the Pareto-optimal configuration table). At run time each class takes the best
configuration that the load allows.

What a query takes is counted as a part of the fleet's time, so that variants which are good on
different device kinds can be compared. Where the paper is silent: with several classes, the next
step up goes to the class that gains the most quality for the time it takes.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from planner.policies.static import unit_ms
from planner.solver.problem import AvailableKind
from planner.types import Candidate
from variants.types import DeviceKindName, VariantName

PARTS = tuple(part / 10 for part in range(11))
"""Of the queries, those that go to the heavy variant."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A light and a heavy variant, and which part of the queries the heavy one answers."""

    light: VariantName
    heavy: VariantName
    part: float
    work: float
    """Of one query per second, as a part of the whole fleet's time."""
    quality: float
    """Mean accuracy."""


def table(
    candidates: Sequence[Candidate], latency_ms: float, kinds: Sequence[AvailableKind]
) -> tuple[Configuration, ...]:
    """The Pareto-optimal configurations of a class, the least work first.

    Variants that no device runs within the SLO are left out; those whose gain for their work is
    less than that of a mixture of others are, too (the upper hull).
    """
    offers: dict[VariantName, dict[DeviceKindName, Candidate]] = {}
    for candidate in candidates:
        if candidate.table.ms[1] <= latency_ms:
            offers.setdefault(candidate.variant, {})[candidate.device_kind] = candidate
    work = {name: _work(found, latency_ms, kinds) for name, found in offers.items()}
    quality = {name: next(iter(found.values())).accuracy for name, found in offers.items()}
    found = [
        Configuration(
            light=light,
            heavy=heavy,
            part=part,
            work=(1 - part) * work[light] + part * work[heavy],
            quality=(1 - part) * quality[light] + part * quality[heavy],
        )
        for light in offers
        for heavy in offers
        if quality[light] <= quality[heavy]
        for part in (PARTS if light != heavy else (0.0,))
    ]
    found.sort(key=lambda c: (c.work, -c.quality, c.light, c.heavy, c.part))
    return tuple(_hull(found))


def _work(
    offers: Mapping[DeviceKindName, Candidate], latency_ms: float, kinds: Sequence[AvailableKind]
) -> float:
    qps = sum(
        kind.count * 1_000 / unit_ms(offers[kind.name], latency_ms)
        for kind in kinds
        if kind.name in offers
    )
    return 1.0 / max(qps, 1e-9)


def _hull(found: Sequence[Configuration]) -> list[Configuration]:
    """Points of the upper hull of quality over work, from the least work on."""
    hull: list[Configuration] = []
    for each in found:
        if hull and each.quality <= hull[-1].quality + 1e-12:
            continue
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) < _slope(hull[-1], each) - 1e-9:
            hull.pop()
        hull.append(each)
    return hull


def _slope(low: Configuration, high: Configuration) -> float:
    return (high.quality - low.quality) / max(high.work - low.work, 1e-12)


def best(
    tables: Mapping[Key, Sequence[Configuration]],
    qps: Mapping[Key, float],
    budget: float,
) -> dict[Key, Configuration]:
    """A configuration for each class, all together within a part of the fleet's time.

    Every class has its cheapest one at least, whether or not that fits.
    """
    at = {key: 0 for key, found in tables.items() if found}
    used = sum(qps[key] * tables[key][0].work for key in at)
    while True:
        steps = [
            (_slope(tables[key][step], tables[key][step + 1]), key)
            for key, step in at.items()
            if step + 1 < len(tables[key])
            and used + qps[key] * (tables[key][step + 1].work - tables[key][step].work) <= budget
        ]
        if not steps:
            break
        key = max(steps, key=lambda each: each[0])[1]
        used += qps[key] * (tables[key][at[key] + 1].work - tables[key][at[key]].work)
        at[key] += 1
    return {key: tables[key][step] for key, step in at.items()}
