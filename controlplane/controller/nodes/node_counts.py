"""Node counts follow the plan: nodes are asked for while workers of it are missing, and those that
drain are planned for no more.

It goes by what Ray says, and remembers no decision: a successor asks again for the same. What an
operator or a cloud's hook says of a node that goes is told to Ray first, and honoured when Ray says
so, whoever told it (``ray drain-node`` does as well).
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from controlplane.cluster.autoscaling.node_requests import Bundle, NodeRequest, node_request
from controlplane.cluster.autoscaling.node_types import Autoscaler
from controlplane.cluster.autoscaling.ray_autoscaler import ClusterNode
from controlplane.controller.events.journal import Journal
from controlplane.controller.nodes.notices import Notices
from controlplane.controller.nodes.standing_request import StandingRequest
from controlplane.controller.one_task import OneTask
from controlplane.live_state import LiveState
from controlplane.settings import Settings
from controlplane.slices import Source
from variants.errors import StateUnavailable
from variants.types import DeviceKindName
from workers.types import WorkerStatus

LOOK_EVERY_S = 1.0
BY_HAND_EVERY_S = 5.0
"""The same where no autoscaler is known and no node drains."""
FIND_EVERY_S = 60.0
"""An autoscaler is looked for as often: it may be started after the control loop."""
PATIENCE_S = 600.0
"""How long a kind is asked for without more of its workers coming. Workers that wait in Ray are
demand to its autoscaler without a request, which would keep idle nodes meanwhile."""
NOBODY = "no autoscaler: nodes come and go by hand"


class NodeAutoscaler(Protocol):
    """``controlplane.cluster.autoscaling.ray_autoscaler.RayAutoscaler`` is Ray's."""

    async def find(self) -> Autoscaler | None: ...

    async def ask(self, bundles: Sequence[Bundle]) -> None: ...

    async def nodes(self) -> tuple[ClusterNode, ...]: ...

    async def ends(self, ids: Container[str]) -> dict[str, str]: ...

    async def workers(self, kinds: Iterable[str]) -> dict[str, str]: ...

    async def drain(self, node: str, why: str, until_s: float) -> str: ...


class NodeCounts:
    """Asks beside the control loop: Ray may take its time to answer."""

    def __init__(
        self,
        ray: NodeAutoscaler | None,
        live: LiveState,
        journal: Journal,
        settings: Callable[[], Settings],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            ray: None on one machine, where there are no nodes to ask for.
            settings: gives those of now, with the device kinds that there are.
        """
        self._ray = ray
        self._live = live
        self._journal = journal
        self._notices = Notices(live, journal)
        self._settings = settings
        self._started = {kind.name: kind.most for kind in settings().kinds}
        self._wall_s = wall_s
        self._looking = OneTask()
        self._looked_at_s = self._found_at_s = float("-inf")
        self._begun = False
        self._autoscaler: Autoscaler | None = None
        self._request = None if ray is None else StandingRequest(ray, live)
        self._missing: Mapping[DeviceKindName, int] = {}
        self._wanted: Mapping[DeviceKindName, int] = {}
        self._since_s: dict[DeviceKindName, float] = {}
        """Since when workers of a kind are missing, on the loop's clock."""
        self._hoped_since_s: dict[DeviceKindName, float] = {}
        """Since when no fewer of a kind are missing, and no more."""
        self._usual_s: Mapping[DeviceKindName, float] = {}
        self._remarks: tuple[str, ...] = ()
        self._nodes: dict[str, ClusterNode] | None = None
        self._draining = False
        """Whether any node does."""
        self._leaving: Mapping[str, str] = {}
        """Workers on nodes that drain, and on which. One that Ray Serve has told to end is listed
        no more; it is known for as long as its node, and for one look more."""

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler starts nodes, as far as is known."""
        return self._autoscaler is not None

    def within(
        self, wanted: Mapping[DeviceKindName, int], asked_for: Mapping[DeviceKindName, int]
    ) -> dict[DeviceKindName, int]:
        """The workers of a plan for which nodes may be asked.

        Of kinds that were found, those of the start, or as many as an operator wants: what nodes
        that joined since have made of it must not have more nodes join.
        """
        found = {kind.name for kind in self._settings().kinds if kind.source is Source.FOUND}
        return {
            kind: min(count, asked_for.get(kind, self._started.get(kind, 0)))
            if kind in found
            else count
            for kind, count in wanted.items()
        }

    def staying(self, statuses: Iterable[WorkerStatus]) -> list[WorkerStatus]:
        """The workers as they are planned for: those on nodes that drain are on their way out, so
        that others load what these have."""
        return [
            replace(one, draining=True) if one.worker in self._leaving else one for one in statuses
        ]

    async def absent(self) -> frozenset[DeviceKindName]:
        """Kinds of which plans may leave none and no node has any, where one can be asked for."""
        if self._ray is not None and not self._begun:  # before the first decision
            self._begun = True
            with self._troubles():
                self._autoscaler = await self._ray.find()
                await self._see_nodes(self._ray)
        if self._autoscaler is None or self._nodes is None:
            return frozenset()
        here = [node for node in self._nodes.values() if node.drains_until_s is None]
        return frozenset(
            kind.name
            for kind in self._settings().kinds
            if kind.least == 0 and not any(node.has_room_for(kind) for node in here)
        )

    def follow(
        self,
        wanted: Mapping[DeviceKindName, int],
        workers: Mapping[str, WorkerStatus],
        reasons: Mapping[str, str],
        usual_s: Mapping[DeviceKindName, float],
        now_s: float,
    ) -> None:
        """Ask for the nodes of a plan, where that is due and no question is under way.

        Args:
            wanted: workers by kind.
            workers: those that are there.
            reasons: why Ray Serve was told to run as many of a kind as it does.
            usual_s: how long workers of a kind took from their order, machine included.
        """
        calm = self._nodes is not None and not self.autoscaled and not self._draining
        every_s = BY_HAND_EVERY_S if calm else LOOK_EVERY_S
        due = now_s - self._looked_at_s >= every_s
        if self._ray is None or self._looking.is_under_way or not due:
            return
        self._looked_at_s = now_s
        self._usual_s = dict(usual_s)
        self._looking.begin(
            self._look(self._ray, dict(wanted), dict(workers), dict(reasons), now_s)
        )

    async def withdraw(self) -> None:
        """Ask for nothing more: without modelless no node is needed. A successor asks again.

        Only for who leads: what stands is the successor's otherwise.
        """
        await self.close()
        if self._request is not None:
            await self._request.withdraw()

    async def close(self) -> None:
        """Look no more."""
        await self._looking.give_up()

    async def _look(
        self,
        ray: NodeAutoscaler,
        wanted: Mapping[DeviceKindName, int],
        workers: Mapping[str, WorkerStatus],
        reasons: Mapping[str, str],
        now_s: float,
    ) -> None:
        with self._troubles():
            await self._notices.pass_on(ray)
            await self._see_nodes(ray)
            if now_s - self._found_at_s >= FIND_EVERY_S:
                self._autoscaler, self._found_at_s = await ray.find(), now_s
            there = Counter(
                DeviceKindName(one.device_kind)
                for one in self.staying(workers.values())
                if not one.draining
            )
            await self._ask(wanted, there, reasons, now_s)
            self._journal.over("node counts")
        with contextlib.suppress(StateUnavailable):
            await self._live.put_machines(self._told())

    @contextlib.contextmanager
    def _troubles(self) -> Iterator[None]:
        """What goes wrong here is told once, and holds up no plan."""
        try:
            yield
        except Exception as error:  # it is private parts of Ray that are asked
            self._journal.failed("node counts", error)

    # -- asking ---------------------------------------------------------------------------------

    async def _ask(
        self,
        wanted: Mapping[DeviceKindName, int],
        there: Mapping[DeviceKindName, int],
        reasons: Mapping[str, str],
        now_s: float,
    ) -> None:
        if self._autoscaler is None or self._request is None:
            return
        waited = {k for k, s in self._hoped_since_s.items() if now_s - s >= PATIENCE_S}
        kinds = self._settings().kinds
        request = node_request(kinds, wanted, there, self._autoscaler, waited)
        await self._request.replace(request.bundles, now_s)
        self._tell(request, wanted, there, reasons, now_s)

    def _tell(
        self,
        request: NodeRequest,
        wanted: Mapping[DeviceKindName, int],
        there: Mapping[DeviceKindName, int],
        reasons: Mapping[str, str],
        now_s: float,
    ) -> None:
        for kind, count in request.missing.items():
            before = self._missing.get(kind, 0)
            self._since_s.setdefault(kind, now_s)
            if count != before:
                self._hoped_since_s[kind] = now_s
            if count > before:
                why = f": {reasons[kind]}" if kind in reasons else ""
                self._journal.tell(
                    "nodes_asked",
                    kind,
                    f"{wanted[kind]} workers are wanted and {there.get(kind, 0)} there{why}; "
                    f"the autoscaler is asked for nodes with room for them{self._lately(kind)}",
                )
        for kind in self._missing.keys() - request.missing.keys():
            took_s = now_s - self._since_s.pop(kind, now_s)
            self._hoped_since_s.pop(kind, None)
            came = wanted.get(kind, 0) >= self._wanted.get(kind, 0)
            how = f"all workers run, {took_s:,.0f} s later" if came else "they are wanted no more"
            self._journal.tell("nodes_asked_no_more", kind, how)
        for sentence in request.remarks:
            if sentence not in self._remarks:
                self._journal.tell("nodes", "cluster", sentence)
        self._missing, self._remarks = dict(request.missing), request.remarks
        self._wanted = dict(wanted)

    def _lately(self, kind: DeviceKindName) -> str:
        return f", which took {self._usual_s[kind]:,.0f} s lately" if kind in self._usual_s else ""

    # -- nodes ----------------------------------------------------------------------------------

    async def _see_nodes(self, ray: NodeAutoscaler) -> None:
        """Look which nodes there are, and tell what has changed."""
        nodes = {node.id: node for node in await ray.nodes()}
        leaving = {id_ for id_, node in nodes.items() if node.drains_until_s is not None}
        self._draining = bool(leaving)
        on: dict[str, str] = {}
        if leaving:
            on = await ray.workers([kind.name for kind in self._settings().kinds])
        before, self._nodes = self._nodes, nodes
        known = leaving | (set(before or ()) - nodes.keys())
        held = {worker: node for worker, node in on.items() if node in leaving}
        self._leaving = {w: n for w, n in self._leaving.items() if n in known} | held
        for id_ in leaving:
            if before is None or before.get(id_, nodes[id_]).drains_until_s is None:
                there = sorted(worker for worker, node in on.items() if node == id_)
                self._journal.tell("node_draining", nodes[id_].name, self._goes(nodes[id_], there))
        if before is None:
            return
        for id_ in nodes.keys() - before.keys():
            self._journal.tell("node_joined", nodes[id_].name, "it is there")
        if gone := before.keys() - nodes.keys():
            ends = await ray.ends(gone)
            for id_ in gone:
                how = ends.get(id_, "Ray knows it no more")
                self._journal.tell("node_left", before[id_].name, how)

    def _goes(self, node: ClusterNode, workers: Sequence[str]) -> str:
        left_s = (node.drains_until_s or 0.0) - self._wall_s()
        when = f"it goes in {left_s:,.0f} s" if node.drains_until_s else "it goes when it is done"
        if not workers:
            return f"{when}; it has no workers"
        return f"{when}; its workers are planned for no more: {', '.join(workers)}"

    def _told(self) -> dict[str, Any]:
        """What people see of it."""
        kinds = self._settings().kinds
        return {
            "autoscaler": NOBODY if self._autoscaler is None else str(self._autoscaler),
            "missing": {str(kind): count for kind, count in self._missing.items()},
            "remarks": list(self._remarks),
            "nodes": [
                {
                    "id": node.id,
                    "host": node.host,
                    "address": node.address,
                    "is_head": node.is_head,
                    "cores": node.cores,
                    "gpus": node.gpus,
                    "kinds": [one.name for one in kinds if node.has_room_for(one)],
                    "drains_until_s": node.drains_until_s,
                }
                for node in (self._nodes or {}).values()
            ],
        }
