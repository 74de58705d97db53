"""What devices and batches of the benches take: a synthetic workload, nothing of it was measured.

What a busy device draws is the thermal design power (TDP) that its maker publishes:

* ``cpu``: 5 of the 56 cores of an Intel Xeon Platinum 8480+ of 350 W (Intel ARK), as its price in
  the synthetic catalog is that of 5 cores;
* ``gpu``: an NVIDIA T4 of 70 W (NVIDIA T4 data sheet);
* the three kinds of the ``timm`` catalog: Intel Core i9-10940X 165 W, Intel Core i7-12700H 45 W
  (Intel ARK), NVIDIA GeForce RTX 3090 350 W (NVIDIA).

All else is assumed: a CPU draws ``CPU_IDLE`` of it while nothing runs and all of it in any batch; a
GPU draws ``GPU_IDLE`` idle, half of the way up in the smallest batches, and all of it in the
largest. The grid emits ``GRID_G_PER_KWH`` at any hour.

``python -m tests.bench.planning.energies`` shows what the price of carbon over the day is worth, on
the same devices in two grids, of which one is clean for some hours: a policy that knows the grids
against one that knows only joules. Some minutes.
"""

from array import array
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from time import thread_time

import numpy as np

from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind
from planner.types import Objective
from tests.bench.planning.catalogs import Ground
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import DeviceKindName, Profile, ProfileSource, TaskName

TDP_W = {
    "cpu": 350.0 * 5 / 56,
    "gpu": 70.0,
    "i9-10940x-fp32": 165.0,
    "i7-12700h-fp32": 45.0,
    "rtx-3090-amp": 350.0,
}
GPUS = frozenset({"gpu", "rtx-3090-amp"})
CPU_IDLE, GPU_IDLE = 0.3, 0.15
GRID_G_PER_KWH = 400.0


def with_energy(ground: Ground) -> Ground:
    """The same ground with what its devices and batches take.

    Raises:
        LookupError: no TDP is known of a device kind.
    """
    unknown = sorted({str(kind.name) for kind in ground.kinds} - TDP_W.keys())
    if unknown:
        raise LookupError(f"no TDP is known of {', '.join(unknown)}")
    idle = {kind.name: idle_w(kind.name) for kind in ground.kinds}
    carbon = (GRID_G_PER_KWH,)
    known = ground.catalog
    return replace(
        ground,
        name=f"{ground.name}, energy",
        catalog=replace(
            known,
            profiles=tuple(_measured(profile) for profile in known.profiles),
            device_kinds=tuple(
                replace(kind, idle_w=idle[kind.name], carbon_g_per_kwh=carbon)
                for kind in known.device_kinds
            ),
        ),
        kinds=tuple(
            replace(kind, idle_w=idle[kind.name], carbon_g_per_kwh=carbon) for kind in ground.kinds
        ),
    )


def idle_w(kind: DeviceKindName) -> float:
    """What a device is assumed to draw while nothing runs."""
    return TDP_W[kind] * (GPU_IDLE if kind in GPUS else CPU_IDLE)


def _measured(profile: Profile) -> Profile:
    kind, largest = profile.device_kind, profile.points[-1].batch_size
    points = []
    for point in profile.points:
        part = 0.5 + 0.5 * point.batch_size / largest if kind in GPUS else 1.0
        watts = idle_w(kind) + part * (TDP_W[kind] - idle_w(kind))
        points.append(replace(point, energy_j=watts * point.p50_ms / 1_000))
    return replace(profile, points=tuple(points))


# -- the price of carbon over the day -------------------------------------------------------------

GRIDS: Mapping[str, tuple[float, ...]] = {
    "steady": (300.0,) * 24,
    "sunny": (500.0,) * 2 + (50.0,) * 2 + (500.0,) * 20,
}
"""Grams for a kWh by the hour, made up. A day's sun is moved to its third and fourth hour, so that
six hours are enough to see it come and go."""
HOURS, QPS, DEVICES = 6, 4.0, 8
ROW_MS, SLO_MS = 400.0, 2_000.0


def two_grids(*, known: bool) -> Setting:
    """CPU devices in two grids; ``known`` is whether the policy knows what they emit. What is
    counted is the same either way, because the simulation bills by ``Setting.kinds``."""
    idle, busy = idle_w(DeviceKindName("cpu")), TDP_W["cpu"]
    joules = busy * ROW_MS / 1_000
    return Setting(
        catalog=catalog(
            [variant("small", 0.8)],
            [
                profile(
                    "small", ROW_MS, kind=name, max_batch=4, source=ProfileSource.EXACT,
                    energy_j=joules,
                )
                for name in GRIDS
            ],
            kinds=[
                kind(name, 0.20, 2_048.0, idle_w=idle, carbon=grid if known else ())
                for name, grid in GRIDS.items()
            ],
        ),
        kinds=tuple(
            AvailableKind(
                name=DeviceKindName(name), count=DEVICES, memory_mib=2_048.0, usd_per_hour=0.20,
                idle_w=idle, carbon_g_per_kwh=grid,
            )
            for name, grid in GRIDS.items()
        ),
        objective=Objective.ENERGY,
    )  # fmt: skip


def steady_trace() -> Trace:
    """Poisson arrivals of one task."""
    count = int(HOURS * 3_600 * QPS)
    arrival_s = np.sort(np.random.default_rng(0).uniform(0.0, HOURS * 3_600.0, count))
    return Trace(
        tasks=(TaskName("digits"),),
        arrival_s=array("d", arrival_s),
        task=array("l", [0] * count),
        latency_ms=array("d", [SLO_MS] * count),
        min_accuracy=array("d", [-inf] * count),
        max_cost=array("d", [inf] * count),
    )


def row(name: str, report: Report) -> str:
    use = report.energy
    assert use is not None
    assert use.energy_j is not None
    assert use.carbon_g is not None
    return (
        f"| {name} | {report.violation_ratio:.2%} | {report.cost_usd:.2f} "
        f"| {use.energy_j / 1_000:,.0f} | {use.carbon_g:,.0f} |"
    )


def main() -> None:
    asked = steady_trace()
    print(f"{len(asked):,} queries in {HOURS} h on {DEVICES} devices in each grid, elastic\n")
    print("| the policy knows | violated | USD | kJ | g CO2 |\n|---|--:|--:|--:|--:|")
    for name, known in (("joules", False), ("joules and grids", True)):
        report = simulate(two_grids(known=known), asked, "modelless", clock=thread_time)
        print(row(name, report), flush=True)


if __name__ == "__main__":
    main()
