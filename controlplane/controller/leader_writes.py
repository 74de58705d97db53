"""What only the controller that leads writes: the plan, and the directory of workers.

Both carry its epoch. Whoever finds a newer one there gives up.
"""

import asyncio
import contextlib
from dataclasses import replace

from controlplane.controller.events.journal import Journal
from controlplane.controller.events.recorder import StatusRecorder
from controlplane.controller.other_installations import CLAIM_S, held_by_another
from controlplane.live_state import LiveState
from controlplane.timestamps import timestamp
from planner.types import Decision
from variants.catalog.protocol import Catalog, Marks
from variants.errors import StaleEpoch, StateUnavailable
from variants.types import Plan


class LeaderWrites:
    """Stores plans and tells gateways where workers are, for as long as its epoch is the newest."""

    def __init__(
        self,
        owner: str,
        catalog: Catalog,
        live: LiveState,
        journal: Journal,
        recorder: StatusRecorder,
    ) -> None:
        self._owner = owner
        self._catalog = catalog
        self._live = live
        self._journal = journal
        self._recorder = recorder
        self.epoch = 0
        """0 before it leads."""
        self.plan: Plan | None = None
        """The newest one that is stored."""
        self._lost = False
        """Whether the catalog does not have it as its newest."""

    def look(self, marks: Marks) -> None:
        """See whether the plan is what the catalog has: a database that was restored, or whose
        replica took over without the newest writes, has an older one, by which gateways go."""
        stored = (marks.plan_version, marks.planned_at)
        plan = self.plan
        self._lost = plan is not None and (plan.version, plan.created_at) != stored

    async def publish(self, directory: list[dict[str, str]]) -> None:
        """Tell gateways, through the live state, where the workers are.

        Raises:
            StaleEpoch: a newer controller leads, or another installation has the live state.
        """
        try:
            led = await self._live.lead(self._owner, CLAIM_S, self.epoch, directory)
            if not (led.published or led.other):
                # A live state may remember the epochs of another catalog: SQL decides who leads.
                empty = Plan(version=0, epoch=0, placements=(), workers={})
                await self._put_plan(self.plan or empty)
                await self._live.put_workers(self.epoch, directory, force=True)
                led = await self._live.lead(self._owner, CLAIM_S, self.epoch, directory)
            if (other := held_by_another(self._owner, led.other)) is not None:
                raise StaleEpoch(other)
        except StateUnavailable as error:
            self._journal.trouble("live state", error)
            self._recorder.live_state_away(error)
        else:
            self._journal.over("live state")
            self._recorder.live_state_answered(empty=led.empty)

    async def may_act(self, decision: Decision) -> bool:
        """Store a changed plan, or one that the catalog has lost; return whether all its actions
        may be applied.

        Of a plan that could not be stored, loads alone are. An unchanged one was stored before, so
        what it says is kept up even without database.

        Raises:
            StaleEpoch: a newer controller leads.
        """
        if self._journal.troubled("catalog"):
            return not decision.changed
        try:
            if decision.changed or self._lost:
                await self._put_plan(decision.plan)
                self._lost = False
            elif decision.actions:
                newest = await asyncio.to_thread(self._catalog.latest_plan)
                if newest is not None and newest.epoch > self.epoch:
                    raise StaleEpoch(f"epoch {self.epoch} is over: {newest.epoch} leads")
        except StateUnavailable as error:
            self._journal.trouble("writing", error)
            return not decision.changed
        return True

    async def _put_plan(self, plan: Plan) -> None:
        plan = replace(plan, epoch=self.epoch, created_at=timestamp())
        before = self.plan
        self.plan = await asyncio.to_thread(self._catalog.put_plan, plan)
        self._recorder.planned(before, self.plan)
        with contextlib.suppress(StateUnavailable):
            await self._live.notify("plan")
