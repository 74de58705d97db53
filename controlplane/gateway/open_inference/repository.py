"""Repository: the model repository extension, whose loads are pins.

What is loaded where belongs to the plan. So a load pins the variant that a query without an SLO
gets, and waits as such a query would; an unload takes that pin back.
"""

import asyncio
from dataclasses import replace
from random import getrandbits
from time import time

from controlplane.gateway.knowledge import Knowledge
from controlplane.gateway.on_demand_loads import LOAD_TIMEOUT_S
from controlplane.gateway.open_inference.protocol_views import ProtocolViews
from controlplane.gateway.query.query_errors import refusal_error
from controlplane.gateway.query.query_path import QueryPath
from controlplane.residency.orders import give, take_back
from controlplane.settings import Settings
from planner.types import Choice, Query, Refusal
from variants.catalog.protocol import Catalog
from variants.errors import Conflict, DeadlineExceeded, NotFound
from variants.types import Rule, RuleKind, TaskName, VariantName

TOLD_S = 5.0
"""How long a worker's report that it holds a variant is waited for; it comes once a second."""
LOOK_S = 0.01
REPOSITORY = "a load by name"
"""Who has given a pin that an unload takes back."""


class Repository:
    """Loads what is asked for by name, and keeps it loaded."""

    def __init__(
        self,
        views: ProtocolViews,
        path: QueryPath,
        known: Knowledge,
        catalog: Catalog,
        settings: Settings,
    ) -> None:
        self._views = views
        self._path = path
        self._known = known
        self._catalog = catalog
        self._settings = settings

    async def load(self, name: str, version: str = "") -> None:
        """Pin the variant, or else one that queries may be given unasked; return once a worker
        holds such a one.

        Raises:
            ModellessError: there is none, it cannot be pinned or loaded, or no worker has room.
        """
        ready = self._views.task_ready(name, version)
        for part in self._views.parts(TaskName(name)):
            if part == name:
                await self._load(name, version, ready=ready)
            else:  # a bucket of several lengths
                variant = self._views.variant_of(TaskName(name), version) if version else ""
                await self.load(part, variant)

    async def _load(self, name: str, version: str, *, ready: bool) -> None:
        path, task = self._path, TaskName(name)
        now_ms = path.clock_ms()
        query = Query(
            task=task,
            rows=1,
            received_ms=now_ms,
            latency_ms=LOAD_TIMEOUT_S * 1000,
            variant=VariantName(self._views.variant_of(task, version)) if version else None,
            draw=getrandbits(32),
        )
        found = path.choose(query, now_ms)
        if isinstance(found, Refusal):
            raise refusal_error(found)
        pin = await asyncio.to_thread(self._pin, task, found.candidate.variant, bool(version))
        if ready:
            return
        try:
            await self._loaded(found, query, name, version)
        except BaseException:
            if pin is not None:
                await asyncio.to_thread(self._take_back, pin)
            raise

    async def _loaded(self, found: Choice, query: Query, name: str, version: str) -> None:
        if found.cold:
            slack_ms = max(0.0, query.latency_ms - found.candidate.load_ms)
            # Queries may wait for the same load: who asks here and leaves only ends his wait.
            await asyncio.shield(
                self._path.load(found.candidate, found.worker.id, slack_ms, REPOSITORY)
            )
        for _ in range(round(TOLD_S / LOOK_S)):
            if self._views.task_ready(name, version):
                return
            await asyncio.sleep(LOOK_S)
        raise DeadlineExceeded("it was loaded, and its worker has not said so yet")

    async def unload(self, name: str, version: str = "") -> None:
        """Take back what a load by name has pinned.

        Raises:
            TaskNotFound: there is no such task.
            NotFound: it has no such variant.
            Conflict: no load by name has pinned it.
        """
        self._views.metadata(name, version)
        variant = self._views.variant_of(TaskName(name), version) if version else ""
        pins = [
            rule
            for part in self._views.parts(TaskName(name))
            for rule in await asyncio.to_thread(self._pins, part)
            if rule.by == REPOSITORY and variant in ("", rule.variant)
        ]
        if not pins:
            raise Conflict(
                "what is loaded is decided by the plan, which would load it again; to take a model"
                " out of service, retire its version"
            )
        for pin in pins:
            await asyncio.to_thread(self._take_back, pin)

    # -- in another thread than queries are answered in ------------------------------------------

    def _pins(self, task: TaskName) -> list[Rule]:
        rules = self._catalog.rules()
        return [rule for rule in rules if rule.kind is RuleKind.PIN and rule.task == task]

    def _pin(self, task: TaskName, variant: VariantName, named: bool) -> Rule | None:
        """Pin a variant; None where it, or for a task any variant by a load, is pinned already."""
        rules = self._catalog.rules()
        for rule in rules:
            if rule.kind is not RuleKind.PIN or rule.task != task or rule.device_kind:
                continue
            if rule.variant == variant or (rule.by == REPOSITORY and not named):
                return None
        known = replace(self._known.catalog, rules=rules)
        new = Rule(
            kind=RuleKind.PIN, task=task, variant=variant, at_s=time(), by=REPOSITORY
        )  # fmt: skip
        there = [status.device_kind for status in self._known.workers.statuses()]
        return give(self._catalog, known, self._settings, there, new)

    def _take_back(self, pin: Rule) -> None:
        try:
            take_back(self._catalog, pin.id)
        except NotFound:  # somebody else was quicker
            return
