"""Whether queries of a task miss their SLO, look by look: when that begins, and when it is over.

``modelless status`` and the metrics say how it is now. Who asks next morning what happened reads
events.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from controlplane.controller.events.status_events import StatusEvent
from controlplane.views.service_status import (
    MAY_BE_MISSED,
    Outcomes,
    missing,
    outcomes_by_task,
    outcomes_in_words,
)

BEGINS = 0.05
"""From this share of a task's queries on, of the last minute, it is told ..."""
LEAST = 20
"""... if they are so many ..."""
PATIENCE_S = 5.0
"""... and for so long: a worker that is lost takes some queries along, which has its own event."""
OVER_S = 60.0
"""It is over when hardly any was missed for so long, or nothing was asked: one that comes and goes
is told once."""


class SloWatch:
    """What was told of the tasks. Times are on one clock."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        """Since when a task misses its SLO."""
        self._told: set[str] = set()
        self.missing: frozenset[str] = frozenset()
        """Tasks that miss their SLO now, and those that did and hover at the threshold."""
        self._well_since_s: dict[str, float] = {}
        """Of those that were told, since when they meet it again."""

    def look(self, reports: Iterable[Mapping[str, Any]], now_s: float) -> Iterator[StatusEvent]:
        """The events that follow from what gateways report of the last minute."""
        lately = [one["lately"] for one in reports if one.get("lately")]
        seconds = max((one["seconds"] for one in lately), default=0.0)
        tasks = outcomes_by_task(one["tasks"] for one in lately)
        self.missing = frozenset(task for task, _ in missing(tasks, self.missing))
        for task in sorted(tasks.keys() | self._told):
            one = tasks.get(task, Outcomes())
            if task in self._told:
                yield from self._over(task, one, now_s)
            elif one.missed < max(LEAST, BEGINS * one.servable):
                self._since_s.pop(task, None)
            elif now_s - self._since_s.setdefault(task, now_s) >= PATIENCE_S:
                self._told.add(task)
                yield "slo_missed", task, outcomes_in_words(one, f"in the last {seconds:,.0f} s")

    def _over(self, task: str, one: Outcomes, now_s: float) -> Iterator[StatusEvent]:
        if one.missed > MAY_BE_MISSED * one.servable:
            self._well_since_s.pop(task, None)
        elif now_s - self._well_since_s.setdefault(task, now_s) >= OVER_S:
            self._told.discard(task)
            since_s, well_s = self._since_s.pop(task), self._well_since_s.pop(task)
            met = "nothing was asked" if not one.servable else "queries meet their SLO again"
            yield "slo_met", task, f"{met}, {well_s - since_s:,.0f} s after they began to miss it"
