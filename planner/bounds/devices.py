"""How much device time there is, and from when on.

What is counted: how many devices there may be, when the first can be usable, and the shortest load
on them. What a failed device cannot do is counted for all kinds together, since which device fails
is left to chance. What is forgotten: memory, later loads, and which device is which.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from planner.bounds.windows import Floats, Windows
from planner.simulation.setting import Setting
from planner.types import Candidate
from variants.types import DeviceKindName, VariantKey

Offers = Mapping[DeviceKindName, Mapping[VariantKey, Candidate]]
"""What each device kind can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Device time in ms. A resource is a kind of device, or, if devices fail, the last one is all
    of them together."""

    windows: Windows
    kinds: int
    there_ms: Floats
    """Shape (resources, windows)."""
    failing: bool
    """Whether the last resource is all kinds together."""

    def prices(self, resource_prices: Floats) -> Floats:
        """What device time costs on each kind, shape (kinds, windows), from the price of each
        resource: work on a kind uses that kind and, if devices fail, the whole fleet."""
        if not self.failing:
            return resource_prices
        found: Floats = resource_prices[: self.kinds] + resource_prices[self.kinds]
        return found

    def worth(self, resource_prices: Floats) -> float:
        """What all device time that there is would cost, at the price of each resource per ms."""
        return float((resource_prices * self.there_ms).sum())


def usable_from_ms(setting: Setting) -> float:
    """When the first device can be usable."""
    return setting.provision_s * 1_000 if setting.fleet_is_elastic else 0.0


def holdable(setting: Setting, offers: Offers) -> list[list[Candidate]]:
    """Per kind of the setting: what its devices can hold and queries that name none can get."""
    return [
        [
            candidate
            for candidate in offers.get(kind.name, {}).values()
            if candidate.memory_mib <= kind.memory_mib and not candidate.canary and kind.count > 0
        ]
        for kind in setting.kinds
    ]


def ready_from_ms(setting: Setting, offers: Offers) -> list[float]:
    """Per kind: when the first device can have loaded something; infinite where there is nothing
    to load."""
    usable_ms = usable_from_ms(setting)
    return [
        usable_ms + min((each.load_ms for each in held), default=inf)
        for held in holdable(setting, offers)
    ]


def device_time(setting: Setting, offers: Offers, windows: Windows, end_ms: float) -> DeviceTime:
    """Of all devices that there may be; arrivals, and with them failures, end at ``end_ms``."""
    there_ms = np.zeros((len(setting.kinds), windows.count))
    ready_ms = ready_from_ms(setting, offers)
    for number, kind in enumerate(setting.kinds):
        there_ms[number] = kind.count * _overlap_ms(windows, ready_ms[number], inf)
    failing = bool(setting.failures_every_s) and not setting.fleet_is_elastic
    if failing:
        all_ms = there_ms.sum(axis=0) - _away_ms(setting, windows, end_ms)
        there_ms = np.vstack((there_ms, np.maximum(all_ms, 0.0)))
    return DeviceTime(windows=windows, kinds=len(setting.kinds), there_ms=there_ms, failing=failing)


def _away_ms(setting: Setting, windows: Windows, end_ms: float) -> Floats:
    """Device time that failures take from a fleet of a fixed size, per window.

    At each failure, up to the last arrival, one usable device goes away for ``provision_s``. What
    it has to load afterwards is not counted: it may fail again meanwhile.
    """
    every_ms = (setting.failures_every_s or inf) * 1_000
    away_ms = setting.provision_s * 1_000
    found = np.zeros(windows.count)
    if ceil(away_ms / every_ms) + 1 > sum(kind.count for kind in setting.kinds):
        return found  # no device may be left to fail
    for number in range(1, int(end_ms / every_ms) + 1):
        found += _overlap_ms(windows, number * every_ms, number * every_ms + away_ms)
    return found


def _overlap_ms(windows: Windows, begin_ms: float, end_ms: float) -> Floats:
    """How much of each window lies within an interval."""
    low = np.maximum(windows.edges_ms[:-1], begin_ms)
    high = np.minimum(windows.edges_ms[1:], end_ms)
    overlap_ms: Floats = np.maximum(high - low, 0.0)
    return overlap_ms
