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
"""

from dataclasses import replace

from tests.bench.planning.catalogs import Ground
from variants.types import DeviceKindName, Profile

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
