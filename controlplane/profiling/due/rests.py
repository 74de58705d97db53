"""How long a profile is left alone after it was measured, or was refused.

What is said against it the next minute is most likely what was said before: that a machine is
busier than it was while the profile was measured, in other numbers each time.
"""

from dataclasses import dataclass

from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.profiles import Cause
from planner.types import ProfileKey

LONGEST_S = 24 * 3_600.0
"""The longest rest that comes of doubling."""

Attempt = tuple[ProfileKey, Cause, str]
"""What is tried: a profile, why, and when an operator asked for it, which makes it another try.
The words of a reason are none of it: they hold numbers of the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    until_s: float
    lasts_s: float


class Rests:
    """What is left alone, and until when. Only an operator's next request ends a rest early."""

    def __init__(self) -> None:
        self._measured: dict[tuple[ProfileKey, Cause], _Rest] = {}
        self._tried: dict[Attempt, float] = {}

    def measured(self, order: MeasuringOrder, now_s: float, first_s: float) -> None:
        """It was measured: the first time it rests for ``first_s``, then twice as long each time.

        What was not measured again for as long as its rest was begins anew.
        """
        self._forget(now_s)
        key = (order.key, order.due.cause)
        before = self._measured.get(key)
        lasts_s = first_s if before is None else min(2 * before.lasts_s, LONGEST_S)
        self._measured[key] = _Rest(until_s=now_s + lasts_s, lasts_s=lasts_s)
        self._tried[attempt_of(order)] = now_s + lasts_s

    def refused(self, order: MeasuringOrder, now_s: float, for_s: float) -> None:
        """Note that an order was tried and will most likely fail again within ``for_s``."""
        self._forget(now_s)
        self._tried[attempt_of(order)] = now_s + for_s

    def rests(self, order: MeasuringOrder, now_s: float) -> bool:
        attempt = attempt_of(order)
        if now_s < self._tried.get(attempt, now_s):
            return True
        rest = None if order.due.asked_at else self._measured.get((order.key, order.due.cause))
        return rest is not None and now_s < rest.until_s

    def _forget(self, now_s: float) -> None:
        self._measured = {
            key: rest for key, rest in self._measured.items() if now_s < rest.until_s + rest.lasts_s
        }
        self._tried = {key: until_s for key, until_s in self._tried.items() if now_s < until_s}


def attempt_of(order: MeasuringOrder) -> Attempt:
    return (order.key, order.due.cause, order.due.asked_at)
