"""How much more than is asked now the workers could serve, looked at beside the control loop.

A look takes some tens of plans. It is made in a thread, with the planner that answers at once, and
so seldom that it takes a fiftieth of that thread's time at most.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from controlplane.controller.events.journal import Journal
from planner.headroom.growth import Headroom, headroom
from planner.solver.greedy import greedy
from planner.types import Observation
from variants.types import TaskName

EVERY_S = 10.0
REST = 50.0
"""Of how many times its own length a look is followed by a pause."""
LIMIT_S = 1.0
"""After so long no further task is looked at."""
AT_REST = 0.02
"""Part of the time that a gateway computes which nobody asks anything."""


class HeadroomWatch:
    """Looks now and then; ``told`` is what was found last, as gateways are told it."""

    def __init__(self, journal: Journal, *, shares_cores: bool) -> None:
        """
        Args:
            shares_cores: whether gateways compute on the cores of the workers.
        """
        self._journal = journal
        self._shares_cores = shares_cores
        self._gateway_cores = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._due_s = float("-inf")
        self.told: dict[str, Any] | None = None

    def gateways(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """See how busy gateways are, by their reports."""
        busy = (float(report.get("busy", 0.0)) for report in reports)
        self._gateway_cores = sum(max(0.0, part - AT_REST) for part in busy)

    def look(
        self,
        observation: Observation,
        dispersion: Callable[[], Mapping[TaskName, float]],
        now_s: float,
    ) -> None:
        """Begin to look, where that is due and no look is under way. While no worker is there,
        nothing is told: what was found before is of workers that are gone.

        Args:
            dispersion: asked how much the arrivals of tasks vary.
        """
        if not observation.workers:
            self.told = None
            return
        if now_s < self._due_s or self._looking is not None:
            return
        self._looking = asyncio.create_task(self._look(observation, dispersion(), now_s))

    async def close(self) -> None:
        """Wait for a look that is under way: a thread cannot be given up."""
        if self._looking is not None:
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(
        self, observation: Observation, dispersion: Mapping[TaskName, float], now_s: float
    ) -> None:
        began_s = monotonic()
        gateway_cores = self._gateway_cores if self._shares_cores else 0.0
        try:
            found = await asyncio.to_thread(
                headroom,
                observation,
                greedy,
                gateway_cores=gateway_cores,
                dispersion=dispersion,
                clock=monotonic,
                limit_s=LIMIT_S,
            )
        except Exception as error:
            self._journal.unexpected("look at the headroom", error)
            self.told = None
        else:
            self._journal.over("look at the headroom")
            self.told = None if found is None else plain(found)
        finally:
            self._due_s = now_s + max(EVERY_S, REST * (monotonic() - began_s))
            self._looking = None


def plain(found: Headroom) -> dict[str, Any]:
    """As it is written into the live state."""
    return {
        "factor": round(found.factor, 3),
        "error": round(found.error, 3),
        "tasks": [
            {
                "task": str(one.task),
                "asked_qps": round(one.asked_qps, 3),
                "factor": round(one.factor, 3),
            }
            for one in found.tasks
        ],
    }
