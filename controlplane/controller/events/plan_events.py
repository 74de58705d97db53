"""New plans as events; many in a short time become one event.

While demand changes, a new plan may be made every few seconds. The first is told at once, those of
the next minute together, then those of the next two minutes, up to ten.
"""

from collections.abc import Iterator

from controlplane.controller.events.status_events import StatusEvent
from planner.reconcile.explanation import DIVIDED

LEAST_WAIT_S = 60.0
MOST_WAIT_S = 600.0


class PlanEvents:
    """Counts plans until they are told."""

    def __init__(self) -> None:
        self._told_s = float("-inf")
        self._wait_s = LEAST_WAIT_S
        """How long after that nothing is told."""
        self._since_s = 0.0
        self._versions: list[int] = []
        self._example = ""
        """Why one of them was made: the last that divides demand, else the last."""

    def planned(self, version: int, why: str, now_s: float) -> None:
        """A plan was stored."""
        if not self._versions:
            self._since_s = now_s
        self._versions.append(version)
        if why.startswith(DIVIDED) or not self._example.startswith(DIVIDED):
            self._example = why

    def due(self, now_s: float, *, ending: bool = False) -> Iterator[StatusEvent]:
        """What is to be told now, if anything is; when the control loop ends, all that is left."""
        if not self._versions or not (ending or now_s - self._told_s >= self._wait_s):
            return
        waited = self._since_s - self._told_s < self._wait_s
        self._wait_s = min(2 * self._wait_s, MOST_WAIT_S) if waited else LEAST_WAIT_S
        first, last, count = self._versions[0], self._versions[-1], len(self._versions)
        if count == 1:
            yield "planned", f"version {last}", self._example
        else:
            for_s = max(1.0, now_s - self._since_s)
            often = f"{count} plans within {for_s:.0f} s, such as: "
            yield "planned", f"versions {first} to {last}", often + self._example
        self._versions, self._example, self._told_s = [], "", now_s
