"""What running takes of energy, and what that energy emits.

A profile says how many joules a device takes while it runs a batch, its idle draw included, and a
device kind how many watts it draws while nothing runs. So a device takes, over any time,
``joules of its batches + idle watts x time in which none ran``.

What was not measured has no value here: it is neither 0 nor estimated. Between measured batch sizes
joules are linear, as latencies are; nothing is said outside of them.

Where every device kind says how many grams of CO2 a kWh emits, grams are compared instead of
joules: a kilowatt-hour is then weighed by the grid that it comes from and by the hour of the day.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from variants.types import CatalogSnapshot, DeviceKind, LatencyPoint

HOUR_S = 3_600
DAY_HOURS = 24
J_PER_KWH = 3.6e6


class EnergyCurve:
    """Joules of a whole batch by its size, the idle draw meanwhile included."""

    __slots__ = ("points",)

    points: tuple[tuple[int, float], ...]
    """(batch size, joules), ascending by size, at least one."""

    def __init__(self, points: Iterable[tuple[int, float]]) -> None:
        """Take (batch size, joules) in any order, at least one, sizes from 1."""
        self.points = tuple(sorted(points))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnergyCurve) and self.points == other.points

    def __hash__(self) -> int:
        return hash(self.points)

    def __repr__(self) -> str:
        return f"EnergyCurve({self.points!r})"

    def joules(self, rows: int) -> float:
        """Of a batch; below the smallest size that one's, above the largest infinite: such a batch
        is forbidden."""
        points = self.points
        index = bisect_right(points, (rows, inf))
        if index == 0:
            return points[0][1]
        low, low_j = points[index - 1]
        if low == rows:
            return low_j
        if index == len(points):
            return inf
        high, high_j = points[index]
        return low_j + (high_j - low_j) * (rows - low) / (high - low)


def energy_curve(points: Sequence[LatencyPoint]) -> EnergyCurve | None:
    """The curve of a profile's points, ascending by batch size; None unless both the smallest and
    the largest batch were measured."""
    if not points or points[0].energy_j is None or points[-1].energy_j is None:
        return None
    return EnergyCurve((p.batch_size, p.energy_j) for p in points if p.energy_j is not None)


def hour_of(now_s: float) -> int:
    """Hour of the day in UTC, from Unix time or from the beginning of a simulation at midnight."""
    return int(now_s // HOUR_S) % DAY_HOURS


def carbon_at(curve: Sequence[float], hour: int) -> float | None:
    """Grams of CO2 for a kWh at an hour of the day; None where that is not known."""
    if not curve:
        return None
    return curve[hour] if len(curve) == DAY_HOURS else curve[0]


def carbon_at_hour(catalog: CatalogSnapshot, hour: int) -> CatalogSnapshot:
    """The same catalog with the carbon of one hour of the day; itself where that is the same."""
    if not any(len(kind.carbon_g_per_kwh) > 1 for kind in catalog.device_kinds):
        return catalog
    return replace(
        catalog,
        device_kinds=tuple(
            replace(kind, carbon_g_per_kwh=(kind.carbon_g_per_kwh[hour],))
            if len(kind.carbon_g_per_kwh) > 1
            else kind
            for kind in catalog.device_kinds
        ),
    )


def counts_carbon(kinds: Iterable[DeviceKind]) -> bool:
    """Whether grams can be compared: every kind says what a kWh emits now."""
    found = tuple(kinds)
    return bool(found) and all(len(kind.carbon_g_per_kwh) == 1 for kind in found)


def weight_of(kind: DeviceKind, *, carbon: bool) -> float:
    """What a joule counts on a device of this kind: 1, or its grams of CO2."""
    return kind.carbon_g_per_kwh[0] / J_PER_KWH if carbon else 1.0


class HourlyCarbon:
    """A catalog with the carbon of the present hour; the same object for a whole hour."""

    __slots__ = ("_hour", "_made", "_of")

    def __init__(self) -> None:
        self._of: CatalogSnapshot | None = None
        self._made: CatalogSnapshot | None = None
        self._hour = -1

    def at(self, catalog: CatalogSnapshot, now_s: float) -> CatalogSnapshot:
        """The catalog as it counts now."""
        hour = hour_of(now_s)
        if self._made is None or self._of is not catalog or self._hour != hour:
            self._of, self._hour = catalog, hour
            self._made = carbon_at_hour(catalog, hour)
        return self._made

    def moved(self, now_s: float) -> bool:
        """Whether the catalog was made for another hour and differs from hour to hour."""
        return self._made is not self._of and self._hour != hour_of(now_s)
