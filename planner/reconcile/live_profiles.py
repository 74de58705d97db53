"""A profile as live latency has it: each size of batch by what batches of that size take.

What a batch pays for waking up is much for a single row of a small variant and nothing beside a
full batch, so one ratio for all sizes would be wrong for most. Sizes are told apart up to the next
power of two, as workers do (``planner.live_model``). A size that never ran follows from the nearest
that did: what that took longer is either a factor or an amount that each batch pays, and the lesser
is believed, because only what is believed to be possible is tried, and then learned.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp, log, log1p
from typing import NamedTuple

from planner.latency_table import LatencyTable, latency_table
from planner.rhythms.shared_pause import Pause
from planner.rhythms.shared_slowness import Slowness
from planner.selection.snapshot import SURE, latency_points, margin, typical_points
from variants.types import LatencyPoint, Profile

MOST_PAID_MS = 0.3
"""Most that each of the batches that follow on one another is believed to pay, whatever its size:
waking and handing over. What they take longer beyond that is the machine, and so a factor."""
MOST_TAIL = 3.0
"""Most that what is counted with is above the mean: what is farther away was a stall, and no
property of the variant to choose by."""


class SizeRatio(NamedTuple):
    """How far batches of a size are from their profile. Logarithms of live over profiled."""

    typical: float
    """Of the mean, over the profile's median."""
    high: float
    """Of what workers count with where they admit a query, over the profile's 95th percentile."""


Ratios = Mapping[int, SizeRatio]
"""By the power of two that a batch's rows are rounded up to."""


class BusyRatio(NamedTuple):
    """How far batches of a size are from their profile that follow on one another."""

    ratio: float
    """The logarithm of what one is counted with, over the profile's 95th percentile."""
    error: float
    """Its standard deviation."""


BusyRatios = Mapping[int, BusyRatio]
"""By size, as ``Ratios``."""


def size_of(rows: int) -> int:
    """The power of two that so many rows are rounded up to."""
    return (rows - 1).bit_length()


class ProfiledTimes:
    """What a profile says of each number of rows, to compare live latency with."""

    def __init__(self, profile: Profile) -> None:
        self._typical = latency_table(typical_points(profile))
        self._high = latency_table(tuple([(p.batch_size, p.p95_ms) for p in profile.points]))

    def ratios(self, means: Iterable[tuple[int, float]], sure: float) -> dict[int, SizeRatio]:
        """Live over profiled, from (rows, mean in ms), as far as the profile goes."""
        return ratios_to(means, sure, self._typical, self._high)

    def busy_ratios(
        self, busy: Iterable[tuple[int, float, float]], sure: float
    ) -> dict[int, BusyRatio]:
        """The same of batches that follow on one another, from (rows, mean in ms, error)."""
        return busy_ratios_to(busy, sure, self._high)


def ratios_to(
    means: Iterable[tuple[int, float]], sure: float, typical: LatencyTable, high: LatencyTable
) -> dict[int, SizeRatio]:
    """Live latencies over those of two tables, medians and 95th percentiles.

    Args:
        means: (rows, mean in ms), as ``LiveModel.points`` has them.
        sure: how many times its mean a worker counts a batch with (``LiveModel.sure``), at least 1.
        typical: medians.
        high: 95th percentiles.
    """
    ratios: dict[int, SizeRatio] = {}
    if sure <= 0.0:
        return ratios
    most, typical_ms, high_ms = min(typical.max_batch, high.max_batch), typical.ms, high.ms
    for rows, mean in means:
        if rows <= most and mean > 0.0 and typical_ms[rows] > 0.0 and high_ms[rows] > 0.0:
            ratios[size_of(rows)] = SizeRatio(
                log(mean / typical_ms[rows]), log(mean * sure / high_ms[rows])
            )
    return ratios


def busy_ratios_to(
    busy: Iterable[tuple[int, float, float]], sure: float, high: LatencyTable
) -> dict[int, BusyRatio]:
    """As ``ratios_to``, from ``LiveModel.busy`` and ``LiveModel.busy_sure``."""
    if sure <= 0.0:
        return {}
    high_ms, most = high.ms, high.max_batch
    return {
        size_of(rows): BusyRatio(log(mean * sure / high_ms[rows]), error)
        for rows, mean, error in busy
        if rows <= most and mean > 0.0 and high_ms[rows] > 0.0
    }


def scaled(profile: Profile, ratio: float) -> Profile:
    """A profile whose batches all take so many times as long."""
    points = tuple(
        replace(
            point,
            p50_ms=point.p50_ms * ratio,
            p95_ms=point.p95_ms * ratio,
            p99_ms=point.p99_ms * ratio,
        )
        for point in profile.points
    )
    return replace(profile, points=points)


def live_profile(profile: Profile, ratios: Ratios) -> Profile:
    """The profile with latencies as they are now.

    A size that was seen needs no margin any more; of the others the margin stays, as the error of
    their points.
    """
    if not ratios:
        return profile
    times = latency_table(typical_points(profile))
    points = [
        _live_point(profile, point, times, ratios, sorted(ratios)) for point in profile.points
    ]
    return replace(profile, points=tuple(points), live=True)


def with_busy(live: Profile, profile: Profile, ratios: BusyRatios) -> Profile:
    """A live profile, with what plans count batches with that follow on one another.

    Args:
        live: made of ``profile`` by what batches take in any rhythm.
        ratios: to ``profile``, where that is known.
    """
    if not ratios:
        return live
    times, seen = latency_table(typical_points(profile)), sorted(ratios)
    busy = []
    for point in profile.points:
        size = size_of(point.batch_size)
        near = _nearest(seen, size)
        ratio = ratios[near].ratio
        if near < size:
            known_ms = times.ms[min(1 << near, times.max_batch)]
            ratio = _slower(ratio, known_ms, point.p50_ms)
        sure = 1.0 if near == size else margin(profile, point)
        busy.append((point.batch_size, point.p95_ms * exp(ratio) * sure))
    # What is known best of one size makes the others known as well.
    return replace(live, busy=tuple(busy), busy_error=min(one.error for one in ratios.values()))


def slowed(live: Profile, profile: Profile, slowness: Slowness) -> Profile:
    """A profile of which nothing runs, with what plans count its batches with where others of its
    kind are slower than their profiles say.

    Its margin stays: whether its own profile is right is as unknown as before.

    Args:
        live: made of ``profile`` by what is known of it.
    """
    times = exp(slowness.ratio)
    busy = tuple([(p.batch_size, p.p95_ms * times * margin(profile, p)) for p in profile.points])
    return replace(live, busy=busy, busy_error=slowness.error)


def after_pauses(live: Profile, profile: Profile, pause: Pause) -> Profile:
    """A profile of which nothing runs, where batches of others on its kind come after pauses: each
    batch takes at least what the profile says and what a pause costs.

    Args:
        live: made of ``profile`` by what is known of it; returned where nothing changes.
    """
    points = tuple(
        [
            _at_least(now, known, pause.of(known.p50_ms))
            for now, known in zip(live.points, profile.points, strict=True)
        ]
    )
    return live if points == live.points else replace(live, points=points)


def without_pauses(profile: Profile, live: Profile) -> Profile:
    """A profile made by ``after_pauses`` of ``live``, for plans: on a busy worker nothing pays."""
    return replace(profile, busy=latency_points(live))


def _at_least(now: LatencyPoint, known: LatencyPoint, paid_ms: float) -> LatencyPoint:
    if paid_ms <= 0.0:
        return now
    return replace(
        now,
        p50_ms=max(now.p50_ms, known.p50_ms + paid_ms),
        p95_ms=max(now.p95_ms, known.p95_ms + paid_ms),
        p99_ms=max(now.p99_ms, known.p99_ms + paid_ms),
    )


def pause_shown(profile: Profile, ratios: Ratios, busy: BusyRatios) -> tuple[float, float] | None:
    """What a batch of the smallest size that ran in either rhythm takes: where it follows on
    another, and in the rhythm of now, both in ms; None where there is none."""
    both = ratios.keys() & busy.keys()
    if not both:
        return None
    size = min(both)
    typical = latency_table(typical_points(profile))
    high = latency_table(tuple([(p.batch_size, p.p95_ms) for p in profile.points]))
    rows = min(1 << size, typical.max_batch)
    return high.ms[rows] * exp(busy[size].ratio), typical.ms[rows] * exp(ratios[size].typical)


def machine_ratio(profile: Profile, ratios: BusyRatios) -> tuple[float, float]:
    """What batches that follow on one another say of the machine: the logarithm of how many times
    the profile they take without what each may pay for itself, and how sure that is.

    Args:
        ratios: at least one; the surest counts.
    """
    times = latency_table(tuple([(p.batch_size, p.p95_ms) for p in profile.points]))
    size, known = min(ratios.items(), key=lambda one: (one[1].error, one[0]))
    if known.ratio <= 0.0:
        return known.ratio, known.error
    own_ms = times.ms[min(1 << size, times.max_batch)]
    longer = exp(known.ratio) - 1.0
    return log1p(max(0.0, longer - MOST_PAID_MS / own_ms)), known.error


def _live_point(
    profile: Profile, point: LatencyPoint, times: LatencyTable, ratios: Ratios, seen: list[int]
) -> LatencyPoint:
    size = size_of(point.batch_size)
    near = _nearest(seen, size)
    ratio = ratios[near]
    if near == size:
        error = 0.0
    else:
        error = log(margin(profile, point)) / SURE
        if near < size:
            known_ms = times.ms[min(1 << near, times.max_batch)]
            ratio = SizeRatio(
                _farther(ratio.typical, known_ms, point.p50_ms),
                _farther(ratio.high, known_ms, point.p50_ms),
            )
    p50_ms = point.p50_ms * exp(ratio.typical)
    p95_ms = min(max(point.p95_ms * exp(ratio.high), p50_ms), MOST_TAIL * p50_ms)
    p99_ms = max(point.p99_ms * exp(ratio.high), p95_ms)
    return replace(point, p50_ms=p50_ms, p95_ms=p95_ms, p99_ms=p99_ms, error=error)


def _nearest(seen: list[int], size: int) -> int:
    """Of ascending sizes the nearest, the smaller of two."""
    at = bisect_left(seen, size)
    if at == len(seen) or (at > 0 and size - seen[at - 1] <= seen[at] - size):
        return seen[at - 1]
    return seen[at]


def _farther(gap: float, known_ms: float, own_ms: float) -> float:
    """The logarithm for a larger batch, of what a smaller one took longer."""
    if gap <= 0.0 or own_ms <= known_ms:
        return gap
    return log1p(known_ms * (exp(gap) - 1.0) / own_ms)


def _slower(gap: float, known_ms: float, own_ms: float) -> float:
    """The same of batches that follow on one another."""
    if gap <= 0.0 or own_ms <= known_ms:
        return gap
    paid_ms = min(known_ms * (exp(gap) - 1.0), MOST_PAID_MS)
    return log(exp(gap) - paid_ms / known_ms + paid_ms / own_ms)
