"""Workloads that look for a weakness, made of their traits: a catalog, a fleet and a load.

    python -m tests.bench.simulation.policies --catalog adverse --draws 3 --seed 0 \\
        --objective accuracy --policies modelless,superserve,static-cheapest

plays three of each kind (``tests.bench.simulation.adverse.traits``), some seconds each. A workload
of a kind and a number has the same traits for all seeds; its catalog and its queries are the
seed's own. It lasts a hundred seconds, the first forty of which are a quiet beginning. Where cost
counts, that says nothing: devices take thirty seconds to come, and none goes within the first
hundred. ``--seconds 600`` makes the same workloads so long, with the beginning of all others:

    python -m tests.bench.simulation.policies --catalog adverse --draws 2 --seed 0 --seconds 600 \\
        --objective cost --policies modelless,static-cheapest,loki,hpa --no-bound
"""

from collections.abc import Sequence
from math import cos, exp, log, pi

import numpy as np

from planner.solver.problem import OVERHEAD_MS, AvailableKind
from tests.bench.planning.catalogs import MIB_PER_S, Ground
from tests.bench.simulation.adverse.traits import KINDS, Course, Floors, Traits, traits
from tests.bench.simulation.capacity import Class, capacity_qps
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

PREFIX = "adverse-"
"""Of the names of all of them."""
SECONDS = 100
OPENING = Opening(calm_s=20, rise_s=20)
LIGHT_MIB, HEAVY_MIB = 80.0, 640.0
"""Of a task's least and most accurate variants."""
LONGEST_MS = 8_000.0
"""No usual SLO is longer: a queue that may outlast the workload says nothing."""
USD_PER_HOUR = 0.8
"""Of the quickest device; slower ones cost as much less as they are slower, for the middle
variant."""


def names(count: int) -> list[str]:
    """So many workloads of each kind."""
    return [f"{PREFIX}{kind}-{number:02}" for kind in KINDS for number in range(count)]


def adverse_workload(name: str, seed: int, seconds: int | None = None) -> tuple[Ground, Workload]:
    """A workload by its name, ``adverse-<kind>-<number>``.

    Args:
        seconds: how long it lasts, with the usual beginning; None: as long as all, with a short
            one.

    Raises:
        KeyError: there is no such kind.
    """
    kind, _, number = name.removeprefix(PREFIX).rpartition("-")
    given = traits(kind, int(number))
    random = np.random.default_rng((seed, int(number), tuple(KINDS).index(kind), 29))
    ground, mix = _ground(given, random)
    return ground, Workload(
        name=name,
        about=given.about,
        load=_load(given, random, seconds or SECONDS),
        mix=lambda _: mix,
        arrivals=given.arrivals,
        variation=given.variation,
        together=given.together,
        opening=OPENING if seconds is None else Opening(),
    )


def _load(given: Traits, random: np.random.Generator, seconds: int) -> list[float]:
    """Of each second, as a part of what the cheapest variants could serve."""
    high, low = given.highest, given.lowest
    if given.course is Course.STEADY:
        return [high] * seconds
    if given.course is Course.SWINGING:
        middle, reach = (high + low) / 2, (high - low) / 2
        return [middle - reach * cos(2 * pi * s / given.period_s) for s in range(seconds)]
    found: list[float] = []
    while len(found) < seconds:
        stays_s = int(random.integers(1, given.period_s + 1))
        found += [float(random.uniform(low, high))] * stays_s
    return found[:seconds]


Times = list[list[list[float]]]
"""What a row takes by itself in ms, of each task's variants, the least accurate first, by kind."""


def _ground(given: Traits, random: np.random.Generator) -> tuple[Ground, Mix]:
    """A catalog and a fleet, and what is asked for. All times are stretched to the rate, or to a
    higher one where SLOs would be longer than ``LONGEST_MS``."""
    counts = [int(random.integers(given.variants[0], given.variants[1] + 1)) for _ in
              range(given.tasks)]  # fmt: skip
    row_ms = [_row_ms(given, count, random) for count in counts]
    slo_ms = [_slo_ms(given, rows, random) for rows in row_ms]
    first, mix = _stretched(given, row_ms, slo_ms, 1.0)
    times = capacity_qps(first, mix) * given.highest / given.qps
    return _stretched(given, row_ms, slo_ms, min(times, LONGEST_MS / max(slo_ms)))


def _row_ms(given: Traits, count: int, random: np.random.Generator) -> list[list[float]]:
    """Of the variants of one task."""
    heavy = float(random.uniform(30.0, 90.0))
    found: list[list[float]] = []
    for k in range(count):
        part = k / (count - 1)  # 0 for the least accurate
        rows = []
        for less, more in zip(given.slower, given.slower_still, strict=True):
            slower = exp(log(less) * (1 - part) + log(more) * part)
            rows.append(heavy / given.spread ** (1 - part) * slower)
        if given.unlike:
            rows = [heavy / given.spread ** float(random.random()) * s for s in given.slower_still]
        found.append(rows)
    return found


def _slo_ms(given: Traits, rows: Sequence[Sequence[float]], random: np.random.Generator) -> float:
    """The usual SLO of a task, whose variants take so long by kind."""
    least = [min(each) for each in rows]
    basis = min(least) if given.tight else sorted(least)[len(least) // 2]
    return basis * float(random.uniform(*given.slo))


def _stretched(
    given: Traits, row_ms: Times, slo_ms: Sequence[float], times: float
) -> tuple[Ground, Mix]:
    """All of it, taking so many times as long."""
    tasks = [TaskName(f"t{number:02}") for number in range(given.tasks)]
    kinds = [DeviceKindName(f"k{number}") for number in range(len(given.devices))]
    variants: list[Variant] = []
    profiles: list[Profile] = []
    total_mib = 0.0
    for task, of_task in zip(tasks, row_ms, strict=True):
        low, high = given.accuracy
        for k, rows in enumerate(of_task):
            name, part = f"v{k:02}", k / (len(of_task) - 1)
            variants.append(variant(name, low + (high - low) * part**0.7, task))
            mib = LIGHT_MIB * (HEAVY_MIB / LIGHT_MIB) ** part
            total_mib += mib
            for kind, ms, further, most in zip(
                kinds, rows, given.further_row, given.largest_batch, strict=True
            ):
                profiles.append(_profile(task, name, kind, ms * times, further, most, mib))
    memory_mib = total_mib if given.memory is None else max(HEAVY_MIB, given.memory * total_mib)
    middle = [(a * b) ** 0.5 for a, b in zip(given.slower, given.slower_still, strict=True)]
    fleet = tuple(
        AvailableKind(
            name=kind, count=count, memory_mib=memory_mib, usd_per_hour=USD_PER_HOUR / slower
        )
        for kind, count, slower in zip(kinds, given.devices, middle, strict=True)
    )
    device_kinds = [
        DeviceKind(name=k.name, cores=1, memory_mib=k.memory_mib, usd_per_hour=k.usd_per_hour)
        for k in fleet
    ]
    ground = Ground(
        name="adverse",
        catalog=catalog(variants, profiles, kinds=device_kinds),
        kinds=fleet,
        latency_ms={task: ms * times + OVERHEAD_MS for task, ms in zip(tasks, slo_ms, strict=True)},
    )
    return ground, _mix(given, ground)


def _mix(given: Traits, ground: Ground) -> Mix:
    """What is asked for: the first task most."""
    mix: dict[Class, float] = {}
    for rank, (task, ms) in enumerate(ground.latency_ms.items()):
        weight, accuracies = (1.0 + rank) ** -given.skew, ground.accuracies(task)
        if given.floors is Floors.SOME:
            mix[Class(task, ms)] = weight * 2 / 3
            mix[Class(task, 2 * ms, accuracies[-min(len(accuracies), 1 + rank % 3)])] = weight / 3
        elif given.floors is Floors.ONE_TASK and not rank:
            mix[Class(task, 2 * ms, accuracies[-2])] = weight
        else:
            mix[Class(task, ms)] = weight
    return mix


def _profile(
    task: TaskName,
    name: str,
    kind: DeviceKindName,
    row_ms: float,
    further: float,
    most: int,
    mib: float,
) -> Profile:
    points = []
    for size in sorted({1, most}):
        ms = row_ms * (1 + further * (size - 1))
        points.append(LatencyPoint(batch_size=size, p50_ms=ms, p95_ms=ms, p99_ms=ms))
    return Profile(
        task=task,
        variant=VariantName(name),
        device_kind=kind,
        points=tuple(points),
        memory_mib=mib,
        load_s=mib / MIB_PER_S,
        source=ProfileSource.EXACT,
    )
