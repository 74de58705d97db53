"""A large catalog on a mixed fleet whose memory is short: 1,200 variants on 60 devices.

A hundred tasks, popular as 1 / rank, with twelve variants each: accuracy 0.70 to 0.95, latency of
one row about 0.1 to 2.4 s on the slowest kind. The three device kinds are 1, 3 and 10 times as
fast. A third of a task's queries each has no floor, a middle one and a high one. All variants
together would fill a device's memory ``OVERBOOKED`` times, so that the plan has to choose what is
loaded, and what it does not expect is loaded on demand.
"""

from random import Random

from planner.solver.problem import AvailableKind
from tests.bench.planning.catalogs import Ground
from tests.bench.simulation.capacity import Class
from tests.bench.simulation.workloads import Workload
from tests.planner.builders import catalog, variant
from variants.types import (
    DeviceKind,
    DeviceKindName,
    LatencyPoint,
    Profile,
    ProfileSource,
    TaskName,
    VariantName,
)

TASKS = 100
VARIANTS = 12
PER_KIND = 20
OVERBOOKED = 10.0
"""Times that all variants would fill a device."""
SPEEDS = {"cpu-slow": (1.0, 0.10), "cpu-fast": (3.0, 0.24), "gpu": (10.0, 0.70)}
"""How fast a kind is, and its price in USD per hour."""
LATENCY_MS = 5_000.0
FLOORS = (None, 4, 8)
"""The variants that are just accurate enough, by number."""


def large(seed: int = 0, tasks: int = TASKS, rows_of: float = 1.0) -> Ground:
    """The catalog and the fleet; the same seed gives the same. ``rows_of`` is a factor on what rows
    take and on the latency SLO: with shorter ones, more queries come from one plan to the next."""
    draw = Random(seed)
    variants, profiles = [], []
    names = [TaskName(f"t{number:03}") for number in range(tasks)]
    for task in names:
        weight = draw.uniform(0.7, 1.4)
        for number in range(VARIANTS):
            size = number / (VARIANTS - 1)
            name = f"v{number:02}"
            variants.append(variant(name, round(0.70 + 0.25 * size**0.6, 4), task))
            row_ms = 100.0 * rows_of * 24.0**size * weight * draw.uniform(0.9, 1.1)
            mib = (50.0 + 950.0 * size) * weight
            for kind, (speed, _) in SPEEDS.items():
                profiles.append(_profile(task, name, kind, row_ms / speed, mib))
    total_mib = sum(p.memory_mib for p in profiles) / len(SPEEDS)
    kinds = tuple(
        AvailableKind(
            name=DeviceKindName(kind),
            count=PER_KIND,
            memory_mib=round(total_mib / OVERBOOKED),
            usd_per_hour=usd,
        )
        for kind, (_, usd) in SPEEDS.items()
    )
    listed = [
        DeviceKind(name=k.name, cores=1, memory_mib=k.memory_mib, usd_per_hour=k.usd_per_hour)
        for k in kinds
    ]
    return Ground(
        name=f"large, {tasks * VARIANTS:,} variants",
        catalog=catalog(variants, profiles, kinds=listed),
        kinds=kinds,
        latency_ms=dict.fromkeys(names, LATENCY_MS * rows_of),
    )


def zipf(ground: Ground, load: float, seconds: int) -> Workload:
    """A constant load, the tasks asked for as 1 / rank, each with every floor."""
    mix = {
        Class(task, latency_ms, None if floor is None else ground.accuracies(task)[floor]): 1 / rank
        for rank, (task, latency_ms) in enumerate(ground.latency_ms.items(), 1)
        for floor in FLOORS
    }
    return Workload(
        name="zipf over many",
        about="constant rate, tasks as 1 / rank",
        load=[load] * seconds,
        mix=lambda _: mix,
    )


def _profile(task: TaskName, name: str, kind: str, row_ms: float, mib: float) -> Profile:
    """Every further row of a batch takes six tenths of the first, up to eight."""
    points = []
    for rows in (1, 8):
        ms = row_ms * (0.4 + 0.6 * rows)
        points.append(LatencyPoint(batch_size=rows, p50_ms=ms, p95_ms=ms, p99_ms=ms))
    return Profile(
        task=task,
        variant=VariantName(name),
        device_kind=DeviceKindName(kind),
        points=tuple(points),
        memory_mib=mib,
        load_s=mib / 1_024.0,
        source=ProfileSource.EXACT,
    )
