"""How our own policy sees the layouts of a machine, turn by turn, as the control loop does."""

from collections.abc import Mapping
from dataclasses import replace

from planner.layouts import words
from planner.reconcile.by_layout.change_limits import ChangeLimits
from planner.simulation.results import LayoutChange
from planner.simulation.setting import Split
from planner.types import Observation
from variants.types import DeviceKindName, Plan


class LayoutWatch:
    """Of one simulation; nothing is seen or told where the machine is not split."""

    def __init__(self, split: Split | None) -> None:
        self._split = split
        self._limits = ChangeLimits()
        self._layout = dict(split.layouts[0]) if split is not None else {}
        self.changes: list[LayoutChange] = []

    def observed(
        self, observation: Observation, running: Mapping[DeviceKindName, int], horizon_s: float
    ) -> Observation:
        """With what the control loop observes of layouts.

        Args:
            horizon_s: within which a change has to pay.
        """
        split, now_s, plan = self._split, observation.now_s, observation.plan
        if split is None:
            return observation
        if plan is not None:
            self._see(now_s, plan, running)
        return replace(
            observation,
            least=split.least,
            layouts=split.layouts,
            refused=self._limits.refused(now_s),
            rests=self._limits.rests(now_s, horizon_s),
            horizon_s=horizon_s,
        )

    def planned(self, plan: Plan, now_s: float) -> None:
        """Take in a plan that is new."""
        if self._split is not None and dict(plan.workers) != self._layout:
            self._layout = dict(plan.workers)
            why = plan.explanation[0]
            self.changes.append(LayoutChange(at_s=now_s, layout=words(plan.workers), why=why))

    def _see(self, now_s: float, plan: Plan, running: Mapping[DeviceKindName, int]) -> None:
        """Note what became of the latest change."""
        given_up = self._limits.look(now_s, plan.workers, running)
        if not self.changes or self.changes[-1].done_s is not None:
            return
        latest = self.changes[-1]
        if given_up:
            self.changes[-1] = replace(latest, given_up=given_up)
        elif all(running.get(kind, 0) == plan.workers.get(kind, 0) for kind in running):
            self.changes[-1] = replace(latest, done_s=now_s)
