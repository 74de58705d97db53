"""Measuring while it serves: each variant where its workers run, one at a time on a node.

What is due is looked for beside the loop's turns: profiles that are missing on a kind, that were
asked for, that no machine of the kind would give again, or that were measured beside other work.
What a task, or a class of its queries, cannot be answered without, and what an operator waits for,
is measured at once, beside whatever the node does, and before what is being measured there already,
which goes on afterwards; the rest waits for a node whose workers are
calm, for a while, and leaves busy ones pauses (``profiling.places``).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.known_hosts import KnownHosts
from controlplane.machine import machine_kinds
from controlplane.profiling.orders import MeasuringOrder, orders
from controlplane.profiling.places import NodeLoad, Pauses, calmest, goes_now, node_loads
from controlplane.profiling.profiles import Cause, measured_while_serving
from controlplane.profiling.rests import Attempt, attempt_of
from controlplane.profiling.setbacks import Setbacks
from controlplane.profiling.staleness import BackEnd
from controlplane.profiling.unanswered import unanswered
from controlplane.settings import Settings
from planner.types import Demand, Observation, ProfileKey, class_of
from variants.catalog.protocol import Catalog
from variants.errors import ModellessError, Overloaded, ReplicaLost, StateUnavailable, TrialKilled
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    Profile,
    ProfilingRequest,
    TaskName,
)
from workers.types import WorkerStatus

LOOK_EVERY_S = 5.0
"""Between two looks for what is due. What a look begins goes on beside them."""
FIND_EVERY_S = 30.0
"""How long what was found to be due counts, while some of it is left and only profiles come."""

OWN_SLICE = ""
"""In the place of a node: cores that no worker has, wherever the kind may run."""


class Nodes(Protocol):
    """Where profiles are measured. ``controlplane.cluster.measuring_nodes`` has Ray's."""

    @property
    def one_machine(self) -> bool:
        """Whether all kinds are slices of one machine, on which each is measured."""

    async def nodes(
        self, kinds: Iterable[DeviceKindName], workers: Iterable[str]
    ) -> dict[str, str]: ...

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]: ...

    async def measure(
        self, order: MeasuringOrder, node: str, placed: Callable[[str], None]
    ) -> Profile: ...

    async def give_way(self, key: ProfileKey, gives: bool) -> bool: ...

    async def stays(self, node: str) -> bool: ...


@dataclass(slots=True, kw_only=True)
class _Job:
    node: str
    """Where it is measured; ``OWN_SLICE`` while no node has room."""
    own_slice: bool
    busy_ratio: float
    """Of the node, when it began."""
    task: asyncio.Task[None]
    haste: int = 0
    """Of the order: who has more goes before it."""
    gives_way: bool = False
    """Whether it waits at one of its steps until another one is measured there."""
    placed: bool = False
    """Whether a process there has begun, and the node stays: else what fails is no matter of the
    variant."""


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
        self._settings = settings
        self._catalog = catalog
        self._cluster = nodes
        self._journal = journal
        self._clock_s = clock_s
        self._jobs: dict[ProfileKey, _Job] = {}
        self._unkept: dict[ProfileKey, _Measured] = {}
        """What was measured and is to be written into the catalog."""
        self._setbacks = Setbacks()
        self._hosts = KnownHosts(nodes, self._setbacks, journal, clock_s)
        self._pauses = Pauses()
        self._due_since: dict[Attempt, float] = {}
        self._found: list[MeasuringOrder] = []
        """What was due when that was found out last, and what that went by."""
        self._basis: object = None
        self._revision = -1
        self._found_at_s = -inf
        self._known: frozenset[DeviceKindName] = frozenset()
        """Device kinds that the catalog has."""
        self._looking: asyncio.Task[None] | None = None
        self._going_on: asyncio.Task[None] | None = None
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
        if self._looking is not None and not self._looking.done():
            return
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._looking = asyncio.create_task(
                self._look_safely(catalog, observation, dict(workers))
            )

    @property
    def refusals(self) -> Mapping[ProfileKey, str]:
        """What could not be measured and is not tried soon, and why."""
        return self._setbacks.refusals

    async def close(self) -> None:
        """Give up what is being measured; its processes end."""
        going = [job.task for job in self._jobs.values()]
        going += [one for one in (self._looking, self._going_on) if one is not None]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    # -- what is due ------------------------------------------------------------------------------

    async def _look_safely(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        try:
            await self._look(catalog, observation, workers)
        except ModellessError as error:
            self._journal.trouble("measuring", error)
        except Exception as error:
            self._journal.unexpected("look for what is to be measured", error)
        else:
            self._journal.over("measuring")
            self._journal.over("look for what is to be measured")

    async def _look(
        self,
        catalog: CatalogSnapshot,
        observation: Observation,
        workers: Mapping[str, WorkerStatus],
    ) -> None:
        running = observation.running
        self._give_up_slices(running)
        self._known = frozenset(kind.name for kind in catalog.device_kinds)
        for measured in [one for key, one in self._unkept.items() if key not in self._jobs]:
            await self._keep(measured)
        kinds = self._kinds_of(catalog, observation)
        names = [kind.name for kind in kinds]
        everywhere = names if self._cluster.one_machine else ()
        placed = await self._cluster.nodes(names, workers)
        nodes = node_loads(placed, workers, everywhere)
        back_ends = {(one.runtime, one.gpu) for one in catalog.variants}
        await self._hosts.meet(nodes, back_ends, self._occupied)
        requests = await asyncio.to_thread(self._catalog.profiling_requests)
        unmet = await self._unmet(names, observation)
        now_s = self._clock_s()
        if self._may_have_changed(catalog, kinds, requests, nodes, unmet, now_s):
            rates: dict[TaskName, float] = {}
            for one in observation.demand:
                rates[one.task] = rates.get(one.task, 0.0) + one.qps
            # A machine with neighbours would be measured again all day. What was measured beside
            # other work is checked by a few batches of its worker (``controller.profile_checks``).
            calmer = not self._cluster.one_machine
            self._found = await asyncio.to_thread(
                orders, catalog, kinds, requests, self._hosts.among(nodes), rates, unmet=unmet,
                calmer=calmer,
            )  # fmt: skip
        found = self._found
        attempts = {attempt_of(one) for one in found}
        self._due_since = {each: self._due_since.get(each, now_s) for each in attempts}
        self._setbacks.keep_orders(attempts)
        self._setbacks.keep_slices({one.name for one in kinds if not running.get(one.name)})
        there = {variant.key for variant in catalog.variants}  # some may be gone since it was found
        due = [one for one in found if one.key[:2] in there and not self._waits(one, now_s)]
        due.sort(key=self._setbacks.has_failed)
        for place, order in enumerate(due):
            node = self._place(order, nodes, running, now_s)
            if node is None and order.haste:
                node = await self._made_free(order, nodes, now_s)
            if node is not None:
                busy_ratio = nodes[node].busy_ratio if node in nodes else 0.0
                self._begin(order, node, busy_ratio, len(due) - place - 1)

    def _may_have_changed(
        self,
        catalog: CatalogSnapshot,
        kinds: Iterable[DeviceKind],
        requests: Iterable[ProfilingRequest],
        nodes: Mapping[str, NodeLoad],
        unmet: Iterable[Demand],
        now_s: float,
    ) -> bool:
        """Whether to find out anew what is due: not after each profile that was measured, for it
        takes a quarter of a second where a thousand are."""
        kinds_there = {
            id_: frozenset(one.kinds) for id_, one in nodes.items() if id_ in self._hosts
        }
        basis = (tuple(kinds), tuple(requests), kinds_there, frozenset(map(class_of, unmet)))
        same = basis == self._basis and catalog.revision == self._revision
        backlog = any(not self._waits(order, now_s) for order in self._found)
        if same or (basis == self._basis and backlog and now_s - self._found_at_s < FIND_EVERY_S):
            return False
        self._basis, self._revision, self._found_at_s = basis, catalog.revision, now_s
        return True

    async def _unmet(
        self, kinds: Iterable[DeviceKindName], observation: Observation
    ) -> tuple[Demand, ...]:
        """What is asked and not answered, or too little of it, by what was measured on kinds with
        workers, while something is left to be measured."""
        if all(order.due.cause is not Cause.MISSING for order in self._found):
            return ()
        there = frozenset([kind for kind in kinds if observation.running.get(kind)])
        return await asyncio.to_thread(
            unanswered,
            observation.catalog,
            there,
            observation.demand,
            () if observation.plan is None else observation.plan.routes,
        )

    def _kinds_of(self, catalog: CatalogSnapshot, observation: Observation) -> list[DeviceKind]:
        """The kinds that have workers or may get some, as the catalog or the settings know them."""
        own = machine_kinds(self._settings(), lambda: None)
        if self._cluster.one_machine:
            return [kind for kind in own if measured_while_serving(kind)]
        known = {kind.name: kind for kind in (*own, *catalog.device_kinds)}
        return [
            known[name]
            for name, count in observation.running.items()
            if name in known and (count or observation.inventory.get(name))
        ]

    def _waits(self, order: MeasuringOrder, now_s: float) -> bool:
        going = order.key in self._jobs or order.key in self._unkept
        return going or self._setbacks.waits(order, now_s)

    @property
    def _occupied(self) -> set[str]:
        """The nodes on which something is being measured, and does not give way."""
        return {job.node for job in self._jobs.values() if not job.gives_way} - {OWN_SLICE}

    # -- where ------------------------------------------------------------------------------------

    def _place(
        self,
        order: MeasuringOrder,
        nodes: Mapping[str, NodeLoad],
        running: Mapping[DeviceKindName, int],
        now_s: float,
    ) -> str | None:
        """The node for an order, or a slice of its own; None where it has to wait."""
        kind = order.due.kind.name
        if not running.get(kind) and not self._cluster.one_machine:
            one_waits = any(job.own_slice for job in self._jobs.values())
            return None if one_waits or self._setbacks.slice_waits(kind, now_s) else OWN_SLICE
        occupied = self._occupied
        free = (
            id_
            for id_ in nodes
            if id_ not in occupied
            and not self._setbacks.node_waits(id_, now_s)
            and (order.hurried or not self._pauses.pauses(id_, now_s))
        )
        node = calmest(kind, nodes, free)
        waited_s = now_s - self._due_since[attempt_of(order)]
        ready = node is not None and goes_now(order, nodes[node].busy_ratio, waited_s)
        return node if ready else None

    async def _made_free(
        self, order: MeasuringOrder, nodes: Mapping[str, NodeLoad], now_s: float
    ) -> str | None:
        """A node on which what has less haste gives way to an order, at its next step. Of one whose
        workers are GPUs none does: the memory there is not enough for two."""
        kind = order.due.kind
        there = {} if kind.gpu is not None else {
            job.node: key
            for key, job in self._jobs.items()
            if job.placed and not job.own_slice and job.haste < order.haste
        }  # fmt: skip
        others = {job.node for job in self._jobs.values() if job.gives_way}
        free = (id_ for id_ in nodes if id_ in there and id_ not in others
                and not self._setbacks.node_waits(id_, now_s))  # fmt: skip
        node = calmest(kind.name, nodes, free)
        if node is None or not await self._cluster.give_way(there[node], True):
            return None
        if there[node] in self._jobs:  # else it has ended meanwhile
            self._jobs[there[node]].gives_way = True
        return node

    async def _go_on(self) -> None:
        """What gave way on a node, and need not any more, goes on."""
        for key, job in list(self._jobs.items()):
            if job.gives_way and job.node not in self._occupied:
                job.gives_way = False
                await self._cluster.give_way(key, False)

    def _give_up_slices(self, running: Mapping[DeviceKindName, int]) -> None:
        """Workers are wanted where something is measured on a slice of its own: they come first."""
        for (_, _, kind), job in self._jobs.items():
            if job.own_slice and running.get(kind):
                job.task.cancel()

    # -- measuring --------------------------------------------------------------------------------

    def _begin(self, order: MeasuringOrder, node: str, busy_ratio: float, left: int) -> None:
        task = asyncio.create_task(self._measure(order, node, left))
        self._jobs[order.key] = _Job(
            node=node, own_slice=node == OWN_SLICE, busy_ratio=busy_ratio, task=task,
            haste=order.haste,
        )  # fmt: skip
        task.add_done_callback(lambda _: self._ended(order.key))

    def _ended(self, key: ProfileKey) -> None:
        """Look for the next one at the next turn."""
        self._jobs.pop(key, None)
        self._looked_at_s = -inf
        if any(job.gives_way for job in self._jobs.values()):
            self._going_on = asyncio.create_task(self._go_on())

    def _placed(self, key: ProfileKey, node: str) -> None:
        """
        Raises:
            Overloaded: something else is being measured on that node.
        """
        job = self._jobs[key]
        if node != job.node and node in self._occupied:
            raise Overloaded("something else is being measured on that node")
        job.node, job.placed = node, True
        self._setbacks.begun(node, key[-1])

    async def _measure(self, order: MeasuringOrder, node: str, left: int) -> None:
        began_s = self._clock_s()
        try:
            profile = await self._cluster.measure(
                order, node, lambda where: self._placed(order.key, where)
            )
        except Exception as error:
            took_s, job = self._clock_s() - began_s, self._jobs[order.key]
            self._pause(job, began_s)
            # Of a machine that ends, the processes end first.
            lost = job.placed and isinstance(error, ReplicaLost | TrialKilled)
            if lost and not await self._stays(job.node):
                what = f"{order.due.variant.name} on {order.due.kind.name}"
                error = ReplicaLost(f"measuring {what}: its node went meanwhile")
                job.placed, job.own_slice = False, False
            self._failed(job, order, error, took_s)
            return
        self._pause(self._jobs[order.key], began_s)
        measured = _Measured(order=order, profile=profile, left=left)
        self._unkept[order.key] = measured
        with suppress(StateUnavailable):  # the next look tries again, and tells of it
            await self._keep(measured)

    def _pause(self, job: _Job, began_s: float) -> None:
        """Leave a busy node alone for a while after what was measured on it."""
        if not job.own_slice:
            now_s = self._clock_s()
            self._pauses.measured(job.node, job.busy_ratio, now_s - began_s, now_s)

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
        # It can be answered now, whatever was found before; of what else hurries it is found anew.
        self._found = [
            replace(one, urgent=False) if one.task.name == task else one for one in self._found
        ]
        if order.urgent:
            self._found_at_s = -inf
        self._setbacks.measured(order, self._clock_s(), beside_load=profile.beside_load)
        first = profile.points[0]
        words = f"{first.p50_ms:.3g} ms for {first.batch_size} row on {profile.measured_on}"
        words += ", beside other work" if profile.beside_load else ""
        self._journal.tell(
            "profile_measured", f"{task}/{variant}",
            f"on {kind}: {words}; why: {order.due.reason}; {measured.left} more to measure",
        )  # fmt: skip

    def _failed(self, job: _Job, order: MeasuringOrder, error: Exception, took_s: float) -> None:
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
