"""Provisioning: how much more than the forecast to provide, and for how long.

How much pays depends on how demand moves: what is steady needs next to nothing beyond its forecast,
and what jumps within the time that a worker takes to start needs room that stands ready. So rules
are replayed on what came. A rule has a source (the mean since the rate has changed, of a minute at
most; the forecast; or the rate that was seen last), a margin on it, and a time for which it keeps
what it has asked for. Rates are of work, in whatever unit the caller counts it. What a rule orders
is paid from the order and usable ``horizon_s`` later; what it lets go is gone at once. So the
account of each says what it would have paid, and how much work would have found no room. Followed
is the cheapest of the rules that left out hardly more (``TOLERATED``, and one standard deviation of
what came, which says nothing while little has come) than the one that left out least: what none of
them had room for, such as the beginning of a burst that nothing announced,
speaks for none of them. All rules see everything, so that the evidence is the same for all (follow
the leader; Cesa-Bianchi and Lugosi, *Prediction, Learning, and Games*, section 3.2).

How long to keep what is idle follows from the same account, as in the ski-rental problem: keeping
costs as long as it lasts, and letting go too early costs what starting another worker takes.
"""

from math import exp, hypot, inf, sqrt

import numpy as np

from planner.forecasting.buckets import Array
from planner.forecasting.memory import Memory, array, number, part

TOLERATED = 0.005
"""Part of all work for which a rule may have had no room where another one had: half of the
violations that ``cost`` tolerates, because want of room is not all that violates."""
MARGINS = (1.0, 1.05, 1.1, 1.2)
"""On the source. More and larger ones, up to 4, with and without a limit at the highest rate seen,
were replayed on a constant rate, two swings and the tweet stream at its own and 30 times its speed:
large ones fit the few jumps that were seen and leave out more of the next ones (diurnal, up to 4:
1.25 instead of 0.85 % violated), or cost more (up to 1.5: 9.1 USD instead of 8.2)."""
PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Of the longest time that anything is kept."""
MEMORY_S = 7_200.0
"""Time constant of the accounts."""
MEAN_S = 60.0
"""So long at most is the mean taken that is one of the sources. The highest of a minute's means is
0.7 % above a steady rate of 463 rows/s, the highest of its steps 2.6 %."""
CHANGED = 3.0
"""A step this far from the mean before it, in standard deviations by chance, is another rate."""
STAYS = 0.05
"""What comes is said to stay as it is where at most this part of the steps, and one more, were
another rate. Of the steps of a steady rate 0 to 2 % are, where another task leads every 90 s 4 %,
in the tweet stream at 30 times its speed 26 %, under a swing of 20 s 80 %."""


class Provisioning:
    """Finds the rule for the whole demand, in units of work per second."""

    def __init__(self, *, step_s: float, horizon_s: float, linger_s: float) -> None:
        """Begin without evidence.

        Args:
            step_s: between two calls of ``observe``.
            horizon_s: from an order until what was ordered serves.
            linger_s: the longest that anything is kept.
        """
        self._fading = exp(-step_s / MEMORY_S)
        ahead = max(1, round(horizon_s / step_s))
        self._kept = [max(1, round(part * linger_s / step_s)) for part in PARTS]
        sources = 3
        self._asked = np.zeros((sources * len(MARGINS), max(self._kept)))
        """What each pair of source and margin asked for at each step, newest last."""
        self._targets = np.zeros((len(PARTS), sources * len(MARGINS), ahead + 1))
        """What each rule provided in the steps of a horizon, newest last."""
        self._paid = np.zeros(self._targets.shape[:2])
        """What each rule paid for, shape ``(times, pairs)``."""
        self._missing = np.zeros(self._targets.shape[:2])
        """The work that found no room with each rule, in the same shape."""
        self._came = 0.0
        self._chance = 0.0
        """Standard deviation of that by chance alone."""
        self._alike = np.zeros(0)
        """The rates since the last change, newest last, of ``MEAN_S`` at most."""
        self._most_alike = max(1, round(MEAN_S / step_s))
        self._last = 0.0
        self._risen, self._rose = 0.0, 0.0
        """The rate that the open step has risen to, and the step before it had; 0 where it had not.
        """
        self._steps = 0
        self._looked, self._changes = 0.0, 0.0
        """Steps lately, and those of them that were another rate; those of two hours ago count for
        a third."""

    def observe(self, rate: float, forecast: float, chance: float = 0.0) -> None:
        """Take in a step that ended.

        Args:
            rate: of the work that arrived in it, per second.
            forecast: of its rate from now on.
            chance: standard deviation of that rate by chance alone.
        """
        if self._steps >= self._targets.shape[2]:
            # What was ordered within the horizon is not there yet, and what was let go is gone.
            room = self._targets.min(axis=2)
            self._missing = self._fading * self._missing + np.maximum(rate - room, 0.0)
            self._paid = self._fading * self._paid + self._targets[:, :, -1]
            self._came = self._fading * self._came + rate
            self._chance = hypot(self._fading * self._chance, chance)
        self._steps += 1
        self._rose, self._risen = max(self._risen, forecast) if self._risen else 0.0, 0.0
        self._last = rate
        count = len(self._alike)
        off = abs(rate - self._alike.mean()) if count else 0.0
        changed = off > CHANGED * chance
        # The mean of a few is off by chance as well.
        moved = changed and off > CHANGED * chance * sqrt(1.0 + 1.0 / count)
        self._looked = self._fading * self._looked + 1.0
        self._changes = self._fading * self._changes + float(moved)
        known = self._alike[:0] if changed else self._alike
        self._alike = np.append(known, rate)[-self._most_alike :]
        self._asked = np.roll(self._asked, -1, axis=1)
        self._asked[:, -1] = self._asks(forecast)
        kept = np.stack([self._asked[:, -steps:].max(axis=1) for steps in self._kept])
        self._targets = np.concatenate((self._targets[:, :, 1:], kept[:, :, None]), axis=2)

    def begun(self, rate: float, forecast: float, chance: float) -> None:
        """Take in what came so far of a step that has not ended; arguments as of ``observe``.

        Where that is another rate, and a higher one, the mean since the rate has changed is what is
        forecast: of the steps that have ended none knows of it, and the open one only in part.
        """
        before = float(self._alike.mean()) if len(self._alike) else inf
        self._risen = forecast if rate - before > CHANGED * chance else 0.0

    def target(self, forecast: float) -> float:
        """Work per second to provide for now, where so much is forecast."""
        time, pair = self._rule()
        asked = self._asks(forecast, max(self._risen, self._rose))
        return float(max(self._targets[time, pair, -1], asked[pair]))

    @property
    def stays(self) -> bool:
        """Whether what comes hardly changes; not before a step has ended."""
        return self._looked > 0.0 and self._changes <= 1.0 + STAYS * self._looked

    def _asks(self, forecast: float, risen: float = 0.0) -> Array:
        """What each pair of source and margin asks for; ``risen`` is a rate that no step has shown
        yet."""
        mean = float(self._alike.mean()) if len(self._alike) else forecast
        sources = (max(mean, risen), forecast, max(self._last, risen))
        asked: Array = np.outer(sources, MARGINS).ravel()
        return asked

    def rescale(self, factor: float) -> None:
        """Count work in another unit from now on, of which so many make one of those before."""
        self._asked *= factor
        self._targets *= factor
        self._paid *= factor
        self._missing *= factor
        self._alike *= factor
        self._came *= factor
        self._chance *= factor
        self._last *= factor
        self._risen *= factor
        self._rose *= factor

    def _rule(self) -> tuple[int, int]:
        """The rule to follow. Before there is evidence it is the first: the bare mean."""
        more = TOLERATED * self._came + self._chance
        fine = self._missing <= self._missing.min() + more
        judged = np.where(fine, self._paid, inf)
        time, pair = np.unravel_index(np.argmin(judged), judged.shape)
        return int(time), int(pair)

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "asked": self._asked.copy(),
            "targets": self._targets.copy(),
            "paid": self._paid.copy(),
            "missing": self._missing.copy(),
            "came": self._came,
            "chance": self._chance,
            "alike": self._alike.copy(),
            "last": self._last,
            "steps": self._steps,
            "stays": {"looked": self._looked, "changes": self._changes},
        }

    def fits(self, memory: Memory) -> bool:
        """Whether it may be of one with the same times; of others nothing can be taken over."""
        return all(
            not isinstance(found := memory.get(name), np.ndarray) or found.shape == own.shape
            for name, own in (("asked", self._asked), ("targets", self._targets))
        )

    def recall(self, memory: Memory) -> None:
        """See ``planner.forecasting.memory.Remembers``; it remembers no times.

        Raises:
            ValueError: it is no memory of such a thing. What is known now is not defined.
        """
        self._asked = array(memory, "asked", self._asked.shape)
        self._targets = array(memory, "targets", self._targets.shape)
        self._paid = array(memory, "paid", self._paid.shape)
        self._missing = array(memory, "missing", self._missing.shape)
        self._alike = array(memory, "alike", (None,))
        self._came, self._last = number(memory, "came"), number(memory, "last")
        self._chance = number(memory, "chance")
        self._steps = int(number(memory, "steps"))
        if "stays" in memory:  # those before changes were counted have none
            stays = part(memory, "stays")
            self._looked, self._changes = number(stays, "looked"), number(stays, "changes")
