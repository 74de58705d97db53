"""Several devices, each with a memory of its own, and the choice of the one that loads.

A query goes where its variant is held. One that is held nowhere is loaded on a host that is chosen
among all devices:

* roomiest: the most free memory; ties go to the first device.
* random: any of them.
* least worth: where the absence of what leaves costs least, together with the reload to come where
  much comes and goes, as the product chooses (``planner.eviction.displacement`` and ``churn``),
  whatever rule says what leaves. Of those that have room, the one with the least of it loads.
* least displaced: the same without the reload to come.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple

from planner.eviction.churn import short_stay_s
from planner.eviction.displacement import displaced_s
from tests.bench.planning.residency import Residency

HOSTS = ("roomiest", "random", "least displaced", "least worth")

Devices = list[Residency[int]]


class Newcomer(NamedTuple):
    """What has to be loaded."""

    memory_mib: float
    load_s: float
    qps: float
    """Queries per second to expect for it, as whoever chooses knows it."""


Choose = Callable[[Devices, Newcomer, float], Residency[int]]
"""From devices, what has to be loaded and the time in s to the device that loads."""


def chooser(name: str, seed: int = 0) -> Choose:
    """A host choice by its name in ``HOSTS``."""
    if name == "random":
        draw = Random(seed)
        return lambda devices, newcomer, now_s: draw.choice(devices)
    if name == "roomiest":
        return _roomiest
    return partial(_least_worth, stay_counts=name == "least worth")


def _roomiest(devices: Devices, newcomer: Newcomer, now_s: float) -> Residency[int]:
    return max(devices, key=lambda device: device.free_mib)


def _least_worth(
    devices: Devices, newcomer: Newcomer, now_s: float, *, stay_counts: bool
) -> Residency[int]:
    def rank(device: Residency[int]) -> tuple[float, float]:
        need_mib = newcomer.memory_mib - device.free_mib
        rungs = device.ladder(now_s) if need_mib > 0.0 else ()
        cost_s = displaced_s(rungs, need_mib)
        if stay_counts:
            cost_s += short_stay_s(newcomer.qps, newcomer.load_s, device.churn.per_s(now_s))
        return cost_s, device.free_mib

    return min(devices, key=rank)
