"""Several devices, each with a memory of its own, and the choice of the one that loads.

A query goes where its variant is held. One that is held nowhere is loaded on a host that is chosen
among all devices:

* roomiest: the most free memory; ties go to the first device.
* random: any of them.
* least worth: where the absence of what leaves costs least, as the product chooses
  (``planner.eviction.displacement``), whatever rule says what leaves. Of those that
  have room, the one with the least of it loads.
"""

from collections.abc import Callable
from random import Random

from planner.eviction.displacement import displaced_s
from tests.bench.planning.residency import Residency

HOSTS = ("roomiest", "random", "least worth")

Devices = list[Residency[int]]
Choose = Callable[[Devices, float, float], Residency[int]]
"""From devices, MiB and the time in s to the device that loads."""


def chooser(name: str, seed: int = 0) -> Choose:
    """A host choice by its name in ``HOSTS``."""
    if name == "random":
        draw = Random(seed)
        return lambda devices, memory_mib, now_s: draw.choice(devices)
    return _least_worth if name == "least worth" else _roomiest


def _roomiest(devices: Devices, memory_mib: float, now_s: float) -> Residency[int]:
    return max(devices, key=lambda device: device.free_mib)


def _least_worth(devices: Devices, memory_mib: float, now_s: float) -> Residency[int]:
    def rank(device: Residency[int]) -> tuple[float, float]:
        need_mib = memory_mib - device.free_mib
        rungs = device.ladder(now_s) if need_mib > 0.0 else ()
        return displaced_s(rungs, need_mib), device.free_mib

    return min(devices, key=rank)
