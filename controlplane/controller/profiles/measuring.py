"""Measuring while it serves: each variant where its workers run, one at a time on a node.

What is due is looked for beside the loop's turns: profiles that are missing on a kind, that were
asked for, that no machine of the kind would give again, or that were measured beside other work.
What a task, or a class of its queries, cannot be answered without, and what an operator waits for,
is measured at once, beside whatever the node does, and before what is being measured there already,
which goes on afterwards; the rest waits for a node whose workers are
calm, for a while, and leaves busy ones pauses (``profiling.due.places``).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.known_hosts import KnownHosts
from controlplane.controller.one_task import OneTask
from controlplane.controller.profiles.due_orders import DueOrders
from controlplane.controller.profiles.measuring_jobs import Job, MeasuringJobs, Nodes
from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.places import node_loads
from controlplane.profiling.due.rests import Attempt, attempt_of
from controlplane.profiling.due.setbacks import Setbacks
from controlplane.settings import Settings
from planner.types import Observation, ProfileKey
from variants.catalog.protocol import Catalog
from variants.errors import ModellessError, Overloaded, ReplicaLost, StateUnavailable, TrialKilled
from variants.types import CatalogSnapshot, DeviceKindName, Profile
from workers.types import WorkerStatus

LOOK_EVERY_S = 5.0
"""Between two looks for what is due. What a look begins goes on beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    order: MeasuringOrder
    profile: Profile
    left: int
    """How many more were to be measured."""


class Measuring:
    """Orders measurements, and keeps the profiles that come of them."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        catalog: Catalog,
        nodes: Nodes,
        journal: Journal,
        clock_s: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self._cluster = nodes
        self._journal = journal
        self._clock_s = clock_s
        self._unkept: dict[ProfileKey, _Measured] = {}
        """What was measured and is to be written into the catalog."""
        self._setbacks = Setbacks()
        self._jobs = MeasuringJobs(nodes, self._setbacks)
        self._hosts = KnownHosts(nodes, self._setbacks, journal, clock_s)
        self._due = DueOrders(settings, self._hosts, one_machine=nodes.one_machine)
        self._due_since: dict[Attempt, float] = {}
        self._known: frozenset[DeviceKindName] = frozenset()
        """Device kinds that the catalog has."""
        self._looking = OneTask()
        self._looked_at_s = -inf

    def look(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        """Begin to look for what is due, if it is time.

        Args:
            catalog: with the latencies that were measured, not those that workers see now.
            workers: what they say of themselves, by their names.
        """
        now_s = self._clock_s()
        if self._looking.is_under_way:
            return
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._looking.begin(self._look_safely(catalog, observation, dict(workers)))

    @property
    def refusals(self) -> Mapping[ProfileKey, str]:
        """What could not be measured and is not tried soon, and why."""
        return self._setbacks.refusals

    async def close(self) -> None:
        """Give up what is being measured; its processes end."""
        going = tuple(self._jobs.tasks())
        for task in going:
            task.cancel()
        await asyncio.gather(self._looking.give_up(), *going, return_exceptions=True)

    # -- what is due ------------------------------------------------------------------------------

    async def _look_safely(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        try:
            await self._look(catalog, observation, workers)
        except Exception as error:
            self._journal.failed("look for what is to be measured", error)
        else:
            self._journal.over("look for what is to be measured")

    async def _look(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        running = observation.running
        self._jobs.give_up_slices(running)
        self._known = frozenset(kind.name for kind in catalog.device_kinds)
        for measured in [one for key, one in self._unkept.items() if key not in self._jobs]:
            await self._keep(measured)
        kinds = self._due.kinds_of(catalog, observation)
        names = [kind.name for kind in kinds]
        everywhere = names if self._cluster.one_machine else ()
        placed = await self._cluster.nodes(names, workers)
        nodes = node_loads(placed, workers, everywhere)
        back_ends = {(one.runtime, one.gpu) for one in catalog.variants}
        await self._hosts.meet(nodes, back_ends, self._jobs.occupied)
        requests = await asyncio.to_thread(self._catalog.profiling_requests)
        now_s = self._clock_s()
        found = await self._due.find(
            catalog, kinds, requests, nodes, observation, partial(self._waits, now_s=now_s), now_s
        )
        attempts = {attempt_of(one) for one in found}
        self._due_since = {each: self._due_since.get(each, now_s) for each in attempts}
        self._setbacks.keep_orders(attempts)
        self._setbacks.keep_slices({one.name for one in kinds if not running.get(one.name)})
        there = {variant.key for variant in catalog.variants}  # some may be gone since it was found
        due = [one for one in found if one.key[:2] in there and not self._waits(one, now_s)]
        due.sort(key=self._setbacks.has_failed)
        for place, order in enumerate(due):
            waited_s = now_s - self._due_since[attempt_of(order)]
            node = self._jobs.place(order, nodes, running, waited_s, now_s)
            if node is None and order.haste:
                node = await self._jobs.made_free(order, nodes, now_s)
            if node is not None:
                busy_ratio = nodes[node].busy_ratio if node in nodes else 0.0
                self._begin(order, node, busy_ratio, len(due) - place - 1)

    def _waits(self, order: MeasuringOrder, now_s: float) -> bool:
        going = order.key in self._jobs or order.key in self._unkept
        return going or self._setbacks.waits(order, now_s)

    # -- measuring --------------------------------------------------------------------------------

    def _begin(self, order: MeasuringOrder, node: str, busy_ratio: float, left: int) -> None:
        task = asyncio.create_task(self._measure(order, node, left))
        self._jobs.begin(order, node, busy_ratio, task)
        task.add_done_callback(lambda _: self._ended(order.key))

    def _ended(self, key: ProfileKey) -> None:
        """Look for the next one at the next turn."""
        self._jobs.end(key)
        self._looked_at_s = -inf

    async def _measure(self, order: MeasuringOrder, node: str, left: int) -> None:
        began_s = self._clock_s()
        try:
            profile = await self._cluster.measure(
                order, node, partial(self._jobs.placed, order.key)
            )
        except Exception as error:
            took_s, job = self._clock_s() - began_s, self._jobs[order.key]
            self._jobs.pause(order.key, took_s, began_s + took_s)
            # Of a machine that ends, the processes end first.
            lost = job.placed and isinstance(error, ReplicaLost | TrialKilled)
            if lost and not await self._stays(job.node):
                what = f"{order.due.variant.name} on {order.due.kind.name}"
                error = ReplicaLost(f"measuring {what}: its node went meanwhile")
                job.placed, job.own_slice = False, False
            self._failed(job, order, error, took_s)
            return
        now_s = self._clock_s()
        self._jobs.pause(order.key, now_s - began_s, now_s)
        measured = _Measured(order=order, profile=profile, left=left)
        self._unkept[order.key] = measured
        with suppress(StateUnavailable):  # the next look tries again, and tells of it
            await self._keep(measured)

    async def _stays(self, node: str) -> bool:
        """Whether a node is there and goes on being there. Where that cannot be found out it counts
        as if it were: then the variant waits, longer and longer."""
        try:
            return await self._cluster.stays(node)
        except Exception as error:
            self._journal.unexpected(f"look at node {node}", error)
            return True

    async def _keep(self, measured: _Measured) -> None:
        """Write down what was measured.

        Raises:
            StateUnavailable: the catalog is away; what was measured waits for it.
        """
        order, profile = measured.order, measured.profile
        task, variant, kind = order.key
        kinds = () if kind in self._known else (order.due.kind,)
        try:
            await asyncio.to_thread(self._catalog.put_profiles, (profile,), kinds)
        except StateUnavailable:
            raise
        except Exception as error:
            del self._unkept[order.key]
            self._tell_failure(order, error, self._setbacks.failed(order, error, self._clock_s()))
            return
        del self._unkept[order.key]
        self._due.answered(order)
        self._setbacks.measured(order, self._clock_s(), beside_load=profile.beside_load)
        first = profile.points[0]
        words = f"{first.p50_ms:.3g} ms for {first.batch_size} row on {profile.measured_on}"
        words += ", beside other work" if profile.beside_load else ""
        self._journal.tell(
            "profile_measured", f"{task}/{variant}",
            f"on {kind}: {words}; why: {order.due.reason}; {measured.left} more to measure",
        )  # fmt: skip

    def _failed(self, job: Job, order: MeasuringOrder, error: Exception, took_s: float) -> None:
        """Have wait what failed: the variant, or else the node or the kind."""
        now_s, kind = self._clock_s(), order.due.kind.name
        if job.placed:
            news = self._setbacks.failed(order, error, now_s, took_s)
        elif job.own_slice:
            news = self._setbacks.slice_failed(kind, error, now_s, took_s)
        else:
            news = self._setbacks.node_failed(job.node, error, now_s, took_s)
        self._tell_failure(order, error, news)

    def _tell_failure(self, order: MeasuringOrder, error: Exception, news: bool) -> None:
        task, variant, kind = order.key
        if not isinstance(error, ModellessError):
            self._journal.unexpected("measurement", error)
        elif news and not isinstance(error, Overloaded):
            self._journal.tell(
                "measuring_failed", f"{task}/{variant}", f"on {kind}: {error.code}: {error.message}"
            )
