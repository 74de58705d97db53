"""DueOrders: what is to be measured, found out anew where what it goes by has changed."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf

from controlplane.controller.nodes.known_hosts import KnownHosts
from controlplane.machine import machine_kinds
from controlplane.profiling.due.orders import MeasuringOrder, orders
from controlplane.profiling.due.places import NodeLoad
from controlplane.profiling.due.profiles import Cause, measured_while_serving
from controlplane.profiling.due.unanswered import unanswered
from controlplane.settings import Settings
from planner.types import Demand, Observation, class_of
from variants.types import CatalogSnapshot, CatalogState, DeviceKind, ProfilingRequest, TaskName

FIND_EVERY_S = 30.0
"""How long what was found to be due counts, while some of it is left and only profiles come."""


class DueOrders:
    """What was due when that was found out last, and what that went by."""

    def __init__(
        self, settings: Callable[[], Settings], hosts: KnownHosts, *, one_machine: bool
    ) -> None:
        """
        Args:
            one_machine: whether all kinds are slices of one machine.
        """
        self._settings = settings
        self._hosts = hosts
        self._one_machine = one_machine
        self._found: list[MeasuringOrder] = []
        self._basis: object = None
        self._state: CatalogState = (-1, "")
        self._found_at_s = -inf

    async def find(
        self,
        catalog: CatalogSnapshot,
        kinds: Iterable[DeviceKind],
        requests: Iterable[ProfilingRequest],
        nodes: Mapping[str, NodeLoad],
        observation: Observation,
        waits: Callable[[MeasuringOrder], bool],
        now_s: float,
    ) -> list[MeasuringOrder]:
        """All that is due, whether it goes on, waits or may begin.

        Args:
            waits: whether an order is being carried out, or has to wait.
        """
        kinds, requests = tuple(kinds), tuple(requests)
        unmet = await self._unmet(kinds, observation)
        if self._may_have_changed(catalog, kinds, requests, nodes, unmet, waits, now_s):
            rates: dict[TaskName, float] = {}
            for one in observation.demand:
                rates[one.task] = rates.get(one.task, 0.0) + one.qps
            # A machine with neighbours would be measured again all day. What was measured beside
            # other work is checked by a few batches of its worker (``profiles.profile_checks``).
            calmer = not self._one_machine
            self._found = await asyncio.to_thread(
                orders, catalog, kinds, requests, self._hosts.among(nodes), rates, unmet=unmet,
                calmer=calmer,
            )  # fmt: skip
        return self._found

    def kinds_of(self, catalog: CatalogSnapshot, observation: Observation) -> list[DeviceKind]:
        """The kinds that have workers or may get some, as the catalog or the settings know them."""
        own = machine_kinds(self._settings(), lambda: None)
        if self._one_machine:
            return [kind for kind in own if measured_while_serving(kind)]
        known = {kind.name: kind for kind in (*own, *catalog.device_kinds)}
        return [
            known[name]
            for name, count in observation.running.items()
            if name in known and (count or observation.inventory.get(name))
        ]

    def answered(self, order: MeasuringOrder) -> None:
        """Its task can be answered now, whatever was found before; of what else hurries it is found
        anew."""
        task = order.key[0]
        self._found = [
            replace(one, urgent=False) if one.task.name == task else one for one in self._found
        ]
        if order.urgent:
            self._found_at_s = -inf

    def _may_have_changed(
        self,
        catalog: CatalogSnapshot,
        kinds: tuple[DeviceKind, ...],
        requests: tuple[ProfilingRequest, ...],
        nodes: Mapping[str, NodeLoad],
        unmet: Iterable[Demand],
        waits: Callable[[MeasuringOrder], bool],
        now_s: float,
    ) -> bool:
        """Whether to find out anew what is due: not after each profile that was measured, for it
        takes a quarter of a second where a thousand are."""
        kinds_there = {
            id_: frozenset(one.kinds) for id_, one in nodes.items() if id_ in self._hosts
        }
        basis = (kinds, requests, kinds_there, frozenset(map(class_of, unmet)))
        same = basis == self._basis and catalog.state == self._state
        backlog = any(not waits(order) for order in self._found)
        if same or (basis == self._basis and backlog and now_s - self._found_at_s < FIND_EVERY_S):
            return False
        self._basis, self._state, self._found_at_s = basis, catalog.state, now_s
        return True

    async def _unmet(
        self, kinds: Iterable[DeviceKind], observation: Observation
    ) -> tuple[Demand, ...]:
        """What is asked and not answered, or too little of it, by what was measured on kinds with
        workers, while something is left to be measured."""
        if all(order.due.cause is not Cause.MISSING for order in self._found):
            return ()
        there = frozenset(kind.name for kind in kinds if observation.running.get(kind.name))
        return await asyncio.to_thread(
            unanswered,
            observation.catalog,
            there,
            observation.demand,
            () if observation.plan is None else observation.plan.routes,
        )
