"""Known hosts: what each node is to a back end, which is what profiles are true of.

A node is looked at when it is new, and when back ends have come that it was not looked at for.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from controlplane.controller.events.journal import Journal
from controlplane.profiling.due.places import NodeLoad
from controlplane.profiling.due.profiles import Hosts
from controlplane.profiling.due.setbacks import Setbacks
from controlplane.profiling.due.staleness import BackEnd
from variants.errors import ModellessError
from variants.types import DeviceKind, Variant


class Lookout(Protocol):
    """Has a look at nodes."""

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]:
        """What a node is to each of these back ends."""


class KnownHosts:
    """The nodes that are there, by their ids, and what is known of them."""

    def __init__(
        self, lookout: Lookout, setbacks: Setbacks, journal: Journal, clock_s: Callable[[], float]
    ) -> None:
        self._lookout = lookout
        self._setbacks = setbacks
        self._journal = journal
        self._clock_s = clock_s
        self._hosts: dict[str, Mapping[BackEnd, str]] = {}

    def __contains__(self, node: str) -> bool:
        """Whether it was looked at."""
        return node in self._hosts

    async def meet(
        self, nodes: Collection[str], back_ends: set[BackEnd], occupied: Collection[str]
    ) -> None:
        """Look at nodes that are new, or that back ends have come to.

        Args:
            nodes: all that are there; the others are forgotten.
            occupied: those on which something is being measured, which are left alone.
        """
        self._hosts = {node: known for node, known in self._hosts.items() if node in nodes}
        self._setbacks.keep_nodes(nodes)
        unknown = [
            node
            for node in nodes
            if not back_ends <= self._hosts.get(node, {}).keys()
            and node not in occupied
            and not self._setbacks.node_waits(node, self._clock_s())
        ]
        await asyncio.gather(*(self._look_at(node, back_ends) for node in unknown))

    async def _look_at(self, node: str, back_ends: set[BackEnd]) -> None:
        """A node that cannot be looked at is asked again later."""
        try:
            self._hosts[node] = await self._lookout.look(node, sorted(back_ends))
        except Exception as error:
            news = self._setbacks.node_failed(node, error, self._clock_s())
            if not isinstance(error, ModellessError):
                self._journal.unexpected(f"look at node {node}", error)
            elif news:
                self._journal.tell("measuring_failed", node, f"{error.code}: {error.message}")
        else:
            self._journal.over(f"look at node {node}")

    def among(self, nodes: Mapping[str, NodeLoad]) -> Hosts:
        """Where a variant could be measured on a kind, of these nodes."""

        def hosts(variant: Variant, kind: DeviceKind) -> list[str]:
            """None while one of them is not known: that may be where it was measured."""
            back_end = (variant.runtime, variant.gpu)
            there = [id_ for id_, one in nodes.items() if kind.name in one.kinds]
            found = [self._hosts.get(id_, {}).get(back_end, "") for id_ in there]
            return found if all(found) else []

        return hosts
