"""New plans as events; many in a short time become one event.

While demand changes, a new plan may be made every few seconds. The first is told at once, those of
the next minute together, then those of the next two minutes, up to ten. An event says what differs
from the plan that was told before, however many were in between. Plans that divide demand a little
differently and nothing else are not told.
"""

from collections.abc import Iterator

from controlplane.controller.events.plan_changes import in_a_sentence, is_news, plan_changes
from controlplane.controller.events.status_events import StatusEvent
from planner.reconcile.explanation import DIVIDED, headline
from variants.types import Plan

LEAST_WAIT_S = 60.0
MOST_WAIT_S = 600.0


class PlanEvents:
    """Counts plans until they are told."""

    def __init__(self) -> None:
        self._told_s = float("-inf")
        self._wait_s = LEAST_WAIT_S
        """How long after that nothing is told."""
        self._since_s = 0.0
        self._before: Plan | None = None
        """The one before those that are not told yet."""
        self._last: Plan | None = None
        """The newest of those."""
        self._versions: list[int] = []
        self._example = ""
        """Why one of them was made: the last that divides demand, else the last."""

    def planned(self, before: Plan | None, plan: Plan, now_s: float) -> None:
        """A plan was stored, and another one, or none, was there before."""
        if not plan.explanation or not is_news(before, plan):
            return
        if not self._versions:
            self._since_s, self._before = now_s, before
        self._versions.append(plan.version)
        self._last = plan
        why = headline(plan.explanation)
        if why.startswith(DIVIDED) or not self._example.startswith(DIVIDED):
            self._example = why

    def due(self, now_s: float, *, ending: bool = False) -> Iterator[StatusEvent]:
        """What is to be told now, if anything is; when the control loop ends, all that is left."""
        if not self._versions or not (ending or now_s - self._told_s >= self._wait_s):
            return
        assert self._last is not None
        waited = self._since_s - self._told_s < self._wait_s
        self._wait_s = min(2 * self._wait_s, MOST_WAIT_S) if waited else LEAST_WAIT_S
        first, last, count = self._versions[0], self._versions[-1], len(self._versions)
        changed = in_a_sentence(plan_changes(self._before, self._last))
        if count == 1:
            subject, often = f"version {last}", ""
        else:
            for_s = max(1.0, now_s - self._since_s)
            others = last - first + 1 - count
            divide = "divides" if others == 1 else "divide"
            beside = f", beside {others} that only {divide} demand a little differently" * (
                others > 0
            )
            subject = f"versions {first} to {last}"
            often = f"{count} plans within {for_s:,.0f} s{beside}. "
            if self._before is not None and not changed:
                changed = "Altogether they change nothing."
        yield "planned", subject, f"{often}{changed} {self._example}".strip().replace("  ", " ")
        self._versions, self._example, self._told_s = [], "", now_s
        self._before = self._last = None
