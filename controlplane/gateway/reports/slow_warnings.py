"""SlowWarnings: which workers that are found to be slow are worth a warning in the log.

Where a machine has too much to do, its workers are slow off and on for as long as that lasts, and
the log says once what takes its cores. A warning each time would bury that.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

from planner.slow_workers import Episode
from variants.types import WorkerId

AGAIN_S = 3_600.0
"""After so long it is worth a warning again."""
MUCH_SLOWER = 2.0
"""So many times as slow as when there was a warning is another thing than was said then."""


class _Said(NamedTuple):
    at_s: float
    times: float


class SlowWarnings:
    """Of each worker one, until something else is to be said of it. Times are the caller's."""

    def __init__(self) -> None:
        self._said: dict[WorkerId, _Said] = {}

    def news(
        self, now_s: float, begun: Mapping[WorkerId, Episode], there: Container[WorkerId]
    ) -> frozenset[WorkerId]:
        """Those of the workers of which an episode has begun that are worth a warning.

        Args:
            there: all workers that are connected; what was said of others is forgotten.
        """
        self._said = {worker: said for worker, said in self._said.items() if worker in there}
        found = set()
        for worker, episode in begun.items():
            said = self._said.get(worker)
            if (
                said is None
                or now_s - said.at_s >= AGAIN_S
                or episode.times >= MUCH_SLOWER * said.times
            ):
                self._said[worker] = _Said(now_s, episode.times)
                found.add(worker)
        return frozenset(found)
