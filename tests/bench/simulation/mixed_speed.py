"""Slow and fast devices side by side, under a load that swings: a catalog and a fleet per seed.

Here an even division of work is worth something: slow devices can serve light variants at full
accuracy in time, while fast ones alone could carry the whole load. ``swings`` are two workloads of
a fixed shape, and one of bursts. ``drawn_workload`` makes random ones around them: fleet mix,
slack, skew, swing, load and kind of arrivals are drawn, so that a rule that suits one shape only is
found out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, exp, pi

import numpy as np

from planner.solver.problem import AvailableKind
from tests.bench.planning.catalogs import MIB_PER_S, TASKS, Ground
from tests.bench.simulation.arrivals import Arrivals
from tests.bench.simulation.capacity import Class
from tests.bench.simulation.workloads import Mix, Opening, Workload
from tests.planner.builders import catalog, variant
from variants.types import (
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    Profile,
    ProfileSource,
    TaskName,
    Variant,
    VariantName,
)

SLOW, FAST = DeviceKindName("slow"), DeviceKindName("fast")
DEVICES = 24
"""Of each kind, in the fixed shape."""
LATENCY_MS = 300.0
LARGEST_BATCH = 8
FURTHER_ROW = 0.55
"""Of the first row's latency, for each further row on a fast device."""
SLOWDOWN, GAIN = 6.0, 0.75
"""On a slow device the k-th variant takes ``SLOWDOWN * exp(-GAIN * k)`` times as long."""
MEMORY_MIB, VARIANT_MIB = 16_384.0, 200.0
"""A device holds all variants: what is measured is who serves what."""
PERIOD_S = 100
BURSTY = Arrivals.GAMMA, 4.0
"""How queries of each task come in the fixed shape of bursts, with the coefficient of variation of
their gaps."""
HIGHEST = (0.20, 0.35)
"""Peaks of the fixed shapes, as parts of what the cheapest variants could serve."""
SWING = 6.0
"""Highest over lowest load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is drawn of a workload."""

    slow: int = DEVICES
    fast: int = DEVICES
    latency_ms: float = LATENCY_MS
    skew: float = 1.0
    """Weight of the task of rank r: ``r ** -skew``."""
    highest: float
    """Peak load, as a part of what the cheapest variants could serve."""
    swing: float = SWING
    period_s: int = PERIOD_S
    arrivals: Arrivals = Arrivals.POISSON
    variation: float = 1.0
    """Coefficient of variation of gamma gaps."""

    @property
    def about(self) -> str:
        """In words."""
        kind = self.arrivals.value
        if self.arrivals is Arrivals.GAMMA:
            kind += f" {self.variation:.1f}"
        return (
            f"{self.slow} slow, {self.fast} fast, SLO {self.latency_ms:.0f} ms, "
            f"skew {self.skew:.1f}, load {self.highest / self.swing:.2f} to {self.highest:.2f} "
            f"in {self.period_s} s, {kind}"
        )


def ground(seed: int, *, slow: int, fast: int, latency_ms: float) -> Ground:
    """Ten tasks with four to six variants each, on two kinds of devices.

    Variant k has the accuracy ``1 - 0.05 k - 0.01 k^2``. On a fast device one row takes U(20, 60)
    ms x (1 - 0.08 k) and each further row 0.55 of that; on a slow one every row takes
    6 exp(-0.75 k) times the fast device's first.
    """
    random = np.random.default_rng((seed, 12))
    variants: list[Variant] = []
    profiles: list[Profile] = []
    for number in range(TASKS):
        task = TaskName(f"t{number}")
        heaviest_ms = float(random.uniform(20.0, 60.0))
        for k in range(int(random.integers(4, 7))):
            name = f"v{k}"
            row_ms = heaviest_ms * (1 - 0.08 * k)
            slow_ms = row_ms * SLOWDOWN * exp(-GAIN * k)
            variants.append(variant(name, 1 - 0.05 * k - 0.01 * k * k, task))
            profiles.append(_profile(task, name, FAST, row_ms, FURTHER_ROW))
            profiles.append(_profile(task, name, SLOW, slow_ms, 1.0))
    kinds = (
        AvailableKind(name=FAST, count=fast, memory_mib=MEMORY_MIB, usd_per_hour=0.80),
        AvailableKind(name=SLOW, count=slow, memory_mib=MEMORY_MIB, usd_per_hour=0.20),
    )
    device_kinds = [
        DeviceKind(name=k.name, cores=1, memory_mib=k.memory_mib, usd_per_hour=k.usd_per_hour)
        for k in kinds
    ]
    return Ground(
        name="mixed-speed",
        catalog=catalog(variants, profiles, kinds=device_kinds),
        kinds=kinds,
        latency_ms={TaskName(f"t{number}"): latency_ms for number in range(TASKS)},
    )


def workload(name: str, shape: Shape, known: Ground, *, seconds: int, opening: Opening) -> Workload:
    """A load that swings between its highest and lowest as a cosine, lowest first."""
    middle = shape.highest * (1 + 1 / shape.swing) / 2
    reach = shape.highest * (1 - 1 / shape.swing) / 2
    mix: Mix = {
        Class(task, ms): (1.0 + rank) ** -shape.skew
        for rank, (task, ms) in enumerate(known.latency_ms.items())
    }
    return Workload(
        name=name,
        about=shape.about,
        load=[middle - reach * cos(2 * pi * s / shape.period_s) for s in range(seconds)],
        mix=lambda _: mix,
        arrivals=shape.arrivals,
        variation=shape.variation,
        opening=opening,
    )


def swings(seed: int, *, quick: bool = False) -> list[tuple[Ground, Workload]]:
    """The fixed shapes: two dozen devices of each kind, ten tasks, 300 ms, Zipf; and ``bursts``, a
    mean of 0.5 that stays, in bursts within a second, on a small fleet with tight SLOs."""
    known = ground(seed, slow=DEVICES, fast=DEVICES, latency_ms=LATENCY_MS)
    seconds = 200 if quick else 400
    few = Shape(
        slow=6, fast=4, latency_ms=LATENCY_MS / 2, highest=0.5, swing=1.0,
        arrivals=BURSTY[0], variation=BURSTY[1],
    )  # fmt: skip
    small = ground(seed, slow=few.slow, fast=few.fast, latency_ms=few.latency_ms)
    bursts = workload("bursts", few, small, seconds=2 * seconds, opening=Opening())
    swinging = [
        (
            known,
            workload(
                f"swing-{100 * highest:.0f}",
                Shape(highest=highest),
                known,
                seconds=seconds,
                opening=Opening(),
            ),
        )
        for highest in HIGHEST
    ]
    return [*swinging, (small, bursts)]


DRAW_S = 130
"""Length of a drawn workload: short, because there are many."""
DRAW_OPENING = Opening(calm_s=20, rise_s=20)


def drawn_workload(number: int, seed: int, *, times: int = 1) -> tuple[Ground, Workload]:
    """A random workload of this kind. The shape of a number is the same for all seeds; the catalog
    and the queries are the seed's own.

    ``times``: so many times as many devices, and with them queries.
    """
    shape = _shape(number)
    shape = replace(shape, slow=times * shape.slow, fast=times * shape.fast)
    known = ground(
        seed * 1_000 + number, slow=shape.slow, fast=shape.fast, latency_ms=shape.latency_ms
    )
    name = f"draw-{number:02}"
    return known, workload(name, shape, known, seconds=DRAW_S, opening=DRAW_OPENING)


def _shape(number: int) -> Shape:
    """Fleets are small, so that a draw takes seconds. Loads and kinds of arrivals go round, so that
    any number of draws has all of them."""
    random = np.random.default_rng((number, 7))
    slow, fast = (int(random.integers(2, 11)) for _ in range(2))
    kinds: Sequence[Arrivals] = tuple(Arrivals)
    # Ten loads evenly over 10 to 110 %, in an order that pairs each with each kind of arrivals.
    part = (number * 7 % 10 + float(random.random())) / 10
    return Shape(
        slow=slow,
        fast=fast,
        latency_ms=float(round(LATENCY_MS * random.uniform(0.7, 2.5))),
        skew=float(random.uniform(0.0, 1.4)),
        highest=0.1 + 1.0 * part,
        swing=float(np.exp(random.uniform(0.0, np.log(10.0)))),
        period_s=int(random.integers(30, 201)),
        arrivals=kinds[number % len(kinds)],
        variation=float(random.uniform(1.5, 4.0)),
    )


def _profile(task: TaskName, name: str, kind: str, row_ms: float, further: float) -> Profile:
    points = []
    for size in (1, LARGEST_BATCH):
        ms = row_ms * (1 + further * (size - 1))
        points.append(LatencyPoint(batch_size=size, p50_ms=ms, p95_ms=ms, p99_ms=ms))
    return Profile(
        task=task,
        variant=VariantName(name),
        device_kind=DeviceKindName(kind),
        points=tuple(points),
        memory_mib=VARIANT_MIB,
        load_s=VARIANT_MIB / MIB_PER_S,
        source=ProfileSource.EXACT,
    )
