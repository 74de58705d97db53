"""Popularity: how often each variant will be asked for, learned from the queries seen so far.

How fast popularity changes is not known beforehand, and it differs from one day to another. So
several decayed counts are kept of every key, with time constants from a second to hours, and those
are trusted most that predicted the recent queries best: before a query is counted, each time
constant says how probable exactly this key was as the next one, and its weight is multiplied by
that. This is prediction with expert advice under logarithmic loss, with a fixed share given back so
that a time constant that failed long ago can return (Herbster and Warmuth, "Tracking the Best
Expert", 1998, section 3).

A key's probability under one time constant is ``(count + a) / (total + a * keys)``, the mean of a
Dirichlet distribution after these counts: a key seen once is not taken to be as popular as its
single query suggests. Counts decay forwards: instead of shrinking all old ones, each new query
counts more (Cormode et al., "Forward Decay", ICDE 2009, section 3), so a query touches one key.

Variants that are not loaded are counted as well, so one that comes back is known already. From the
first query for a key nothing is learned about time constants: nobody could expect it, and it speaks
for the shortest memory, which finds every key equally probable. A worker that knows only its own
queries meets new keys for as long as variants move from one worker to another.
"""

from collections.abc import Hashable, Iterable
from math import exp
from operator import add, mul
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

TIME_CONSTANTS_S = (1.0, 8.0, 64.0, 512.0, 4096.0, 32768.0)
"""From a burst to a working day, each eight times the one before."""
MAX_KEYS = 10_000

_PRIOR = 0.3
"""Queries that every known key is credited with under each time constant: ``a`` above."""
_SHARE = 0.002
"""What all time constants give back each time they learn, to be shared out evenly."""
_LEARNED_SHARE = 0.25
"""Share of the queries that weights are learned from: more cost time and taught nothing more."""
_GOLDEN = 0.6180339887498949
"""Steps of this length around a circle never repeat, so the queries that weights are learned from
do not fall into step with tasks that are asked in turns."""
_STEP_S = 0.05
"""The clock moves on in steps: queries closer together count as simultaneous."""
_HEAD_START_S = 1.0
"""Added to the age of a book: one query in no time is no infinite rate."""
_LIMIT = 200.0
"""Counts are brought back to scale once a new query would count more than ``exp`` of this."""


class Popularity(Generic[KeyT]):
    """A book of arrivals. Deterministic; a query costs about 2 µs, a rate less than 1 µs.

    Args:
        time_constants_s: of the decayed counts, ascending.
        max_keys: so many keys are known at most; the one unseen for longest is forgotten.
    """

    __slots__ = (
        "_base_s", "_began_s", "_counts", "_draw", "_max_keys", "_now_s", "_scale", "_tau_s",
        "_totals", "_weights",
    )  # fmt: skip

    def __init__(
        self, time_constants_s: tuple[float, ...] = TIME_CONSTANTS_S, max_keys: int = MAX_KEYS
    ) -> None:
        experts = len(time_constants_s)
        self._tau_s = time_constants_s
        self._max_keys = max_keys
        self._counts: dict[KeyT, list[float]] = {}
        """Of each time constant, times ``_scale``; the longest unseen key comes first."""
        self._totals = [0.0] * experts
        self._scale = [1.0] * experts
        """What a query counts now: ``exp((now - base) / tau)``."""
        self._weights = [1.0 / experts] * experts
        self._draw = 0.0
        self._began_s: float | None = None
        self._now_s = 0.0
        self._base_s = [0.0] * experts

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, key: object) -> bool:
        """Whether a query for ``key`` has come and is remembered."""
        return key in self._counts

    @property
    def weights(self) -> tuple[float, ...]:
        """How much each time constant is trusted; they sum to 1."""
        return tuple(self._weights)

    def seen(self, key: KeyT, now_s: float, queries: int = 1) -> None:
        """Count queries that came together. Times do not go back; one that does counts as now."""
        if self._began_s is None or now_s - self._now_s > _STEP_S:
            self._move_on(now_s)
        counts = self._counts.pop(key, None)
        is_new = counts is None
        if counts is None:
            counts = [0.0] * len(self._tau_s)
            if len(self._counts) >= self._max_keys:
                del self._counts[next(iter(self._counts))]
        self._counts[key] = counts
        self._draw = (self._draw + _GOLDEN) % 1.0
        if self._draw < _LEARNED_SHARE and not is_new:
            self._learn(counts)
        scale = self._scale
        if queries != 1:
            scale = [queries * one for one in scale]
        self._counts[key] = list(map(add, counts, scale))
        self._totals = list(map(add, self._totals, scale))

    def rate(self, key: KeyT, now_s: float) -> float:
        """Queries per second to expect for one key."""
        return self.rates((key,), now_s)[0]

    def rates(self, keys: Iterable[KeyT], now_s: float, *, newcomers: bool = True) -> list[float]:
        """Queries per second to expect for each of ``keys``, in their order.

        A key never seen gets what every known one is credited with, or 0 without ``newcomers``; all
        are 0 before the first query.
        """
        if self._began_s is None:
            return [0.0 for _ in keys]
        self._move_on(now_s)
        per_s = self._total_per_s()
        factors, credit = [], 0.0
        credits = _PRIOR * max(1, len(self._counts))
        for weight, total, scale in zip(self._weights, self._totals, self._scale, strict=True):
            factor = per_s * weight / (total + credits * scale)
            factors.append(factor)
            credit += factor * _PRIOR * scale
        known = self._counts
        if not newcomers:
            return [
                credit + sum(map(mul, factors, known[key])) if key in known else 0.0 for key in keys
            ]
        nothing = [0.0] * len(factors)
        return [credit + sum(map(mul, factors, known.get(key, nothing))) for key in keys]

    # -- steps ------------------------------------------------------------------------------------

    def _move_on(self, now_s: float) -> None:
        """Set the clock; a query counts more from now on."""
        if self._began_s is None:
            self._began_s = self._now_s = now_s
            self._base_s = [now_s] * len(self._tau_s)
        if now_s <= self._now_s:
            return
        self._now_s = now_s
        for index, tau_s in enumerate(self._tau_s):
            passed = (now_s - self._base_s[index]) / tau_s
            if passed > _LIMIT:
                self._rescale(index, exp(-passed))
                passed, self._base_s[index] = 0.0, now_s
            self._scale[index] = exp(passed)

    def _rescale(self, index: int, factor: float) -> None:
        """Bring all counts of one time constant down to where a new query counts 1 again."""
        self._totals[index] *= factor
        for counts in self._counts.values():
            counts[index] *= factor

    def _learn(self, counts: list[float]) -> None:
        """Weigh each time constant by how probable it held the key that has just come."""
        credits = _PRIOR * len(self._counts)
        held = [
            weight * (count + _PRIOR * scale) / (total + credits * scale)
            for weight, count, total, scale in zip(
                self._weights, counts, self._totals, self._scale, strict=True
            )
        ]
        kept = (1.0 - _SHARE) / sum(held)
        back = _SHARE / len(held)
        self._weights = [kept * weight + back for weight in held]

    def _total_per_s(self) -> float:
        """Queries per second of all keys together.

        A young book has not seen as long as its time constants reach, so its counts are divided
        by what it could have seen.
        """
        if self._began_s is None:
            return 0.0
        age_s = self._now_s - self._began_s + _HEAD_START_S
        per_s = 0.0
        for weight, total, scale, tau_s in zip(
            self._weights, self._totals, self._scale, self._tau_s, strict=True
        ):
            per_s += weight * total / (scale * tau_s * (1.0 - exp(-age_s / tau_s)))
        return per_s
