"""Lives of devices that are ordered and released, and what they may earn.

A device that is usable from s to e costs ``price x max(least, provision + e - s)``. Its time earns
the price of device time, less that of a place in the fleet. If no life earns more than it costs, a
fleet costs at least what the work on it earns, less all places there are.
"""

from dataclasses import dataclass

import numpy as np

from planner.bounds.windows import Floats, range_least

HOUR_MS = 3_600_000.0
ROUNDS = 50
"""The best ratio is found in a few rounds; each raises it, and what is left after that many is
rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a device of a kind costs."""

    usd_per_hour: float
    provision_ms: float
    least_ms: float
    """A device is billed for at least this long."""
    free_ms: float = 0.0
    """What is billed before this time costs nothing: it is told apart."""

    @property
    def usd_per_ms(self) -> float:
        """The price of a device in the unit of its times."""
        return self.usd_per_hour / HOUR_MS

    @property
    def paid_ms(self) -> float:
        """For so long a device may be usable without costing more than the least."""
        return max(0.0, self.least_ms - self.provision_ms)


def earning_ratio(terms: Terms, edges_ms: Floats, earned: Floats) -> float:
    """The most that any life earns, as a multiple of what it costs.

    Args:
        terms: of the kind.
        edges_ms: of the windows; no device is usable before the first one.
        earned: USD per ms in each window; not more than 0 in one that begins before ``free_ms``.
    """
    if terms.free_ms <= 0.0:
        return _billed_ratio(terms, edges_ms, earned)
    first_ms = terms.free_ms + terms.provision_ms
    later = int(np.searchsorted(edges_ms, first_ms, side="right")) - 1
    if later >= len(earned):
        return _standing_ratio(terms, edges_ms, earned)
    later_ms = np.maximum(edges_ms[max(later, 0) :], first_ms)
    return max(
        _standing_ratio(terms, edges_ms, earned),
        _billed_ratio(terms, later_ms, earned[max(later, 0) :]),
    )


def _standing_ratio(terms: Terms, edges_ms: Floats, earned: Floats) -> float:
    """The same of lives that were ordered before ``free_ms``: they cost what follows it.

    They may begin at any time up to ``provision_ms`` after it, and leave out what earns nothing.
    """
    paid_ms = edges_ms[1:] - terms.free_ms
    if terms.usd_per_ms <= 0 or not (paid_ms > 0).any():
        return np.inf if terms.usd_per_ms <= 0 and (earned > 0).any() else 0.0
    soon = edges_ms[:-1] < terms.free_ms + terms.provision_ms
    worth = np.cumsum(np.where(soon, np.maximum(earned, 0.0), earned) * np.diff(edges_ms))
    after = paid_ms > 0
    return max(0.0, float((worth[after] / paid_ms[after]).max()) / terms.usd_per_ms)


def _billed_ratio(terms: Terms, edges_ms: Floats, earned: Floats) -> float:
    """The same of lives that are paid as a whole.

    What is earned is constant within a window, so that a best life begins or ends at an edge, and
    does both unless it is as long as what is paid anyway. A shorter one costs as much as that. The
    ratio is found by Dinkelbach's method (Management Science 13, 1967): the life whose earnings
    exceed its cost times a ratio most gives the next ratio.
    """
    if terms.usd_per_ms <= 0:
        return np.inf if (earned > 0).any() else 0.0
    paid_ms = terms.paid_ms
    sums = np.concatenate(([0.0], np.cumsum(np.diff(edges_ms) * earned)))
    ratio = 0.0
    if terms.least_ms > terms.provision_ms:
        # Those that are short enough to cost the least begin and end at edges.
        earliest = np.searchsorted(edges_ms, edges_ms - paid_ms * (1 + 1e-12), side="left")
        short = sums - range_least(sums, earliest, np.arange(len(sums)))
        ratio = float(short.max()) / (terms.usd_per_ms * terms.least_ms)
    points = np.unique(np.concatenate((edges_ms, edges_ms + paid_ms, edges_ms - paid_ms)))
    points = points[(points >= edges_ms[0]) & (points <= edges_ms[-1])]
    at = np.interp(points, edges_ms, sums)
    for _ in range(ROUNDS):
        better = _better(terms, points, at, ratio)
        if better <= ratio * (1 + 1e-12):
            break
        ratio = better
    return ratio


def _better(terms: Terms, points: Floats, at: Floats, ratio: float) -> float:
    """The ratio of the life of at least ``paid_ms`` that gains most at a given ratio.

    ``at`` is what has been earned up to each point.
    """
    left = at - ratio * terms.usd_per_ms * points
    latest = np.searchsorted(points, points - terms.paid_ms * (1 - 1e-12), side="right") - 1
    able = np.nonzero(latest >= 0)[0]
    if not len(able):
        return 0.0
    lowest = np.minimum.accumulate(left)
    end = able[np.argmax(left[able] - lowest[latest[able]])]
    begin = int(np.argmin(left[: latest[end] + 1]))
    length_ms = max(points[end] - points[begin], terms.paid_ms)
    cost = terms.usd_per_ms * (terms.provision_ms + length_ms)
    return float(at[end] - at[begin]) / cost if cost > 0 else 0.0
