"""Chance room: how much of the room for chance fleets are sized with, by what was really lost.

Fleets have room for what comes by chance within seconds (``planner.reconcile.problem_builder``, by
a formula for each class by itself). Where classes share workers, less is enough, and how much less
no formula says. So the room is followed by what queries come to: where none is lost for want of
time it shrinks by a stage at a time, and where a part is lost that is more than ``TOLERATED`` it
grows at once, by more stages the more is lost (as the estimates of adaptive conformal inference
move: Gibbs and Candes, NeurIPS 2021). Until that first happens it shrinks by twice as many stages
each time, as windows open under congestion before the first loss (slow start: Jacobson, SIGCOMM
1988): nothing says yet that it is near what is needed.

What is lost beyond ``TOLERATED`` is a debt, which the queries that follow pay off, and while there
is any the room does not shrink. So between two moments at which it does, at most ``TOLERATED`` of
all queries are lost: of each step, the debt grows by what was lost less that part of what was
asked, it is never negative, and it is nothing at both moments. That holds whatever the arrivals
are, and whoever is to blame, but for what fades of a debt in ``MEMORY_S``; where the whole room
loses as much, the whole room is what there is.
"""

from collections import deque
from math import ceil, exp

from planner.forecasting.memory import Memory, listed, number

TOLERATED = 0.005
"""Part of the queries that may be lost: half of the violations that ``cost`` tolerates, because
want of room is not all that violates."""
STAGES = 20
"""In which the room shrinks, one at a time once more was lost than may be."""
GROWTH = 2.0
"""Stages that it grows by where as much is lost as may be; of twice as much, twice as many."""
EVIDENCE = 1 / TOLERATED
"""So many queries at least are looked at for each stage that it shrinks by: of fewer, a single one
that is lost is too much."""
MEMORY_S = 7_200.0
"""Time constant of debts, as of the accounts of ``planner.forecasting.provisioning``."""


class ChanceRoom:
    """Follows what queries come to, a step at a time."""

    def __init__(self, *, step_s: float, horizon_s: float) -> None:
        """Begin with the whole room.

        Args:
            step_s: between two calls of ``observe``.
            horizon_s: from an order until what was ordered serves.
        """
        self._fading = exp(-step_s / MEMORY_S)
        ahead = max(1, round(horizon_s / step_s))
        self._stages = deque([STAGES] * ahead, maxlen=ahead)
        """At the steps of the last horizon, newest last: the least of them serves."""
        self._debt = 0.0
        """Queries that were lost beyond those that may be."""
        self._evidence = 0.0
        """Queries since it changed last."""
        self._stride = 1
        """Stages that it shrinks by next; 0 once more was lost than may be: one at a time."""
        self.asked = 0.0
        """Queries lately; those of two hours ago count for a third."""
        self.lost = 0.0
        """Of these, those that were refused for want of time or room, or late."""

    @property
    def part(self) -> float:
        """Of the whole room, from 0 to 1."""
        return self._stages[-1] / STAGES

    @property
    def owes(self) -> bool:
        """Whether more was lost than may be, and has not been made good yet."""
        return self._debt > 0.0

    def observe(self, asked: float, lost: float) -> None:
        """Take in a step that ended: queries whose fate was decided in it, and those lost."""
        self.asked = self._fading * self.asked + asked
        self.lost = self._fading * self.lost + lost
        tolerated = TOLERATED * asked
        self._debt = max(0.0, self._fading * self._debt + lost - tolerated)
        self._evidence += asked
        stage = self._stages[-1]
        if lost > tolerated:
            more = ceil(GROWTH * lost / tolerated) if tolerated else STAGES
            stage = max(stage, min(STAGES, min(self._stages) + more))
            self._evidence = 0.0
            self._stride = 0
        elif stage and not self._debt and self._evidence >= EVIDENCE:
            stage -= min(stage, max(1, self._stride), int(self._evidence / EVIDENCE))
            self._evidence = 0.0
            self._stride *= 2
        self._stages.append(stage)

    def memory(self) -> Memory:
        """See ``planner.forecasting.memory.Remembers``."""
        return {
            "stages": list(self._stages),
            "debt": self._debt,
            "evidence": self._evidence,
            "stride": self._stride,
            "asked": self.asked,
            "lost": self.lost,
        }

    def recall(self, memory: Memory) -> None:
        """See ``planner.forecasting.memory.Remembers``; it remembers no times.

        Raises:
            ValueError: it is no memory of such a thing. What is known now is not defined.
        """
        stages = listed(memory, "stages")
        if not stages or not all(isinstance(one, int) and 0 <= one <= STAGES for one in stages):
            raise ValueError("stages are no list of stages")
        self._stages.extend(stages)
        self._debt, self._evidence = number(memory, "debt"), number(memory, "evidence")
        # One from before strides grew shrinks by a stage at a time.
        self._stride = int(number(memory, "stride")) if "stride" in memory else 0
        self.asked, self.lost = number(memory, "asked"), number(memory, "lost")
