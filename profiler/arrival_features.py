"""What a learned forecast looks at: the shape of recent arrivals, relative to the present rate."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]

LOOK_BACK = 180
"""Horizons, minutes as a rule, that features look back."""
CLOCK_FEATURES = 2
"""The last ones, which tell the time within the hour."""
_MEANS = (2, 3, 6, 15, 30, 90, 180)
"""Buckets that means are taken over."""
_HOUR_S = 3_600.0


def features_of(rates: Floats, base: Array, ends_s: Array, ahead: int, horizon_s: float) -> Floats:
    """``(rows, features)`` from ``rates`` ``(rows, buckets)`` that end now, the oldest first, and
    from ``base`` and ``ends_s``, each ``(rows,)``."""
    seen = ~np.isnan(rates)
    sums = np.cumsum(np.where(seen, rates, 0.0)[:, ::-1], axis=1, dtype=np.float64)
    counts = np.cumsum(seen[:, ::-1], axis=1)
    unit = 1.0 / horizon_s

    def mean(newest: int, oldest: int) -> Array:
        """Over buckets counted back from now, as a share of the base, on a log scale."""
        total = sums[:, oldest - 1] - (sums[:, newest - 1] if newest else 0.0)
        count = counts[:, oldest - 1] - (counts[:, newest - 1] if newest else 0)
        rate = total / np.where(count > 0, count, np.nan)
        answer: Array = np.log((rate + unit) / base)
        return answer

    by_minute = (len(rates), -1, ahead)
    totals = np.where(seen, rates, 0.0)[:, ::-1].reshape(by_minute).sum(axis=2)
    observed = seen[:, ::-1].reshape(by_minute).sum(axis=2)
    minute = totals / np.where(observed > 0, observed, np.nan)
    minutes = np.log((minute + unit) / base[:, None])
    columns = [
        mean(0, 1),
        mean(1, 2),
        mean(2, 3),
        *(mean(0, size) for size in _MEANS),
        mean(ahead, 2 * ahead),
        np.fmin.reduce(minutes[:, :30], axis=1),
        np.fmax.reduce(minutes[:, :30], axis=1),
        np.fmax.reduce(minutes, axis=1),
        np.log(base * horizon_s),
        ends_s % _HOUR_S,
        ends_s % (_HOUR_S / 2),
    ]
    return np.column_stack(columns).astype(np.float32)


def base_of(points: Array, horizon_s: float) -> Array:
    """The rate that others are multiples of, same shape as ``points``: the point forecast plus one
    arrival in the horizon, so that it is never 0."""
    base: Array = points + 1.0 / horizon_s
    return base
