"""CanaryWatch: rolls a canary back once it is found worse, and tells or promotes a good one.

Each gateway counts under an id of its own from when it started, so that its newest counts replace
those before and no restart of anything counts twice. What was counted is kept in the catalog for
the control loop that takes over.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from controlplane.controller.events.journal import Journal
from controlplane.controller.kept_notes import KeptNotes
from controlplane.live_state import LiveState
from controlplane.views.canary_schemas import judged_canary
from planner.canary.demand import CanaryDemand
from planner.canary.judge import Evidence, Judgement, Verdict, evidence_of, judge
from planner.types import Objective
from variants.catalog.protocol import Catalog
from variants.errors import StateUnavailable
from variants.types import Canary, CatalogSnapshot, DeviceKindName

NAME = "canaries"
"""What was counted is kept under it."""
KEEP_EVERY_S = 10.0
"""A controller that is killed makes its successor forget no more than what gateways that have ended
since had counted in this time."""

Counted = dict[str, dict[str, Any]]
"""What each gateway has counted of one share, by its id."""


class CanaryWatch:
    """The canaries of the installation that leads."""

    def __init__(
        self,
        catalog: Catalog,
        live: LiveState,
        journal: Journal,
        clock_s: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self._notes = KeptNotes(catalog, NAME, wall_s, KEEP_EVERY_S)
        self._live = live
        self._journal = journal
        self._clock_s, self._wall_s = clock_s, wall_s
        self._counted: dict[str, Counted] = {}
        """By the id of the share."""
        self._told: set[str] = set()
        """The ids of those that were told to be good."""
        self._published = False

    async def recall(self) -> None:
        """Go on from what the control loop before had counted.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        if (kept := await self._notes.recall()) is None:
            return
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            counted, told = dict(kept["counted"]), set(kept["told"])
            for of_share in counted.values():
                evidence_of(of_share.values())
            self._counted, self._told = counted, told

    def count(self, reports: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in what gateways have counted."""
        for gateway, report in reports.items():
            for id_, counted in report.get("canaries", {}).items():
                of_share = self._counted.setdefault(id_, {})
                if of_share.get(gateway) != counted:
                    of_share[gateway] = counted
                    self._notes.changed()

    def demand(
        self,
        catalog: CatalogSnapshot,
        inventory: Mapping[DeviceKindName, int],
        objective: Objective,
    ) -> CanaryDemand:
        """What divides the demand between canaries and all else.

        Args:
            inventory: how many workers of each kind there may be.
        """
        return CanaryDemand(catalog, [kind for kind, most in inventory.items() if most], objective)

    async def follow(self, catalog: CatalogSnapshot, epoch: int) -> None:
        """Judge the canaries of the catalog, and act on it.

        Raises:
            StaleEpoch: another control loop leads.
            StateUnavailable: the catalog does not answer; it is tried again.
        """
        if not catalog.canaries and not self._published:
            return
        known = {one.share_id: one for one in catalog.canaries}
        self._counted = {id_: of for id_, of in self._counted.items() if id_ in known}
        self._told &= known.keys()
        found = {id_: self._judged(one) for id_, one in known.items()}
        for id_, (_, judgement) in found.items():
            if known[id_].share:
                await self._act(known[id_], judgement, epoch)
        await self._keep(epoch)
        told = {id_: judged_canary(*each) for id_, each in found.items()}
        with suppress(StateUnavailable):  # the next turn tells it
            await self._live.put_canaries(told)
            self._published = bool(told)

    def _judged(self, canary: Canary) -> tuple[Evidence, Judgement]:
        evidence = evidence_of(self._counted.get(canary.share_id, {}).values())
        if canary.ended:
            return evidence, Judgement(verdict=Verdict.WORSE, words=canary.ended)
        return evidence, judge(evidence, canary.after)

    async def _act(self, canary: Canary, judgement: Judgement, epoch: int) -> None:
        words = judgement.words
        subject = f"{canary.task}/{canary.label}"
        if judgement.verdict is Verdict.WORSE:
            if await self._settle(canary, words, epoch, promote=False):
                self._journal.tell("canary_rolled_back", subject, f"it was found worse: {words}")
        elif judgement.verdict is Verdict.GOOD and canary.promote:
            if await self._settle(canary, words, epoch, promote=True):
                self._journal.tell("canary_promoted", subject, f"it was found as good: {words}")
        elif judgement.verdict is Verdict.GOOD and canary.share_id not in self._told:
            self._told.add(canary.share_id)
            self._notes.changed(at_once=True)  # a successor would tell it again
            how = f"`modelless promote {canary.task} {canary.model} {canary.version}` makes it live"
            self._journal.tell("canary_good", subject, f"{words}; {how}")

    async def _settle(self, canary: Canary, why: str, epoch: int, *, promote: bool) -> bool:
        return await asyncio.to_thread(
            lambda: self._catalog.settle_canary(canary, promote=promote, why=why, epoch=epoch)
        )

    async def _keep(self, epoch: int) -> None:
        """Write down what was counted, if that is due."""
        await self._notes.keep(
            lambda: {"counted": self._counted, "told": sorted(self._told)}, epoch
        )
