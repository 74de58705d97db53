"""What an autoscaler is asked for: one request of the cluster, which stands until another one
replaces it, and which a control loop that ends leaves behind.

Nobody can be asked what stands. So it counts as not known while an answer is missing, and that a
loop before this one asked is kept in the live state. Where none of ours did, nothing is withdrawn:
it would be another application's request.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from controlplane.cluster.autoscaling.node_requests import Bundle
from controlplane.live_state import LiveState
from variants.errors import ClusterUnavailable, StateUnavailable

ASK_EVERY_S = 30.0
"""What is asked for is asked for again: Ray's control store may have been started anew. That
nothing is asked for is said once more: a call that failed may have come late."""
STOPPING_S = 2.0
"""How long a loop that is told to stop may take over that."""


class Asks(Protocol):
    """The part of ``controlplane.cluster.autoscaling.ray_autoscaler.RayAutoscaler`` for this."""

    async def ask(self, bundles: Sequence[Bundle]) -> None: ...


class StandingRequest:
    """Asks, where what is to be asked for is not what stands."""

    def __init__(self, ray: Asks, live: LiveState) -> None:
        self._ray = ray
        self._live = live
        self._recalled = False
        self._stands: tuple[Bundle, ...] | None = ()
        """None: not known."""
        self._asked_at_s = float("-inf")
        self._once_more = False
        """Whether it is to be said again that nothing is asked for."""

    async def replace(self, bundles: tuple[Bundle, ...], now_s: float) -> None:
        """Have this stand.

        Raises:
            ClusterUnavailable: Ray did not answer. The next call goes on.
        """
        await self._recall()
        before = self._stands
        due = now_s - self._asked_at_s >= ASK_EVERY_S and (bool(bundles) or self._once_more)
        if bundles == before and not due:
            return
        if bundles:
            await self._keep(asked=True)
        self._stands, self._asked_at_s = None, now_s  # it may count although no answer comes
        await self._ray.ask(bundles)
        self._stands, self._once_more = bundles, before != ()
        if not bundles and not self._once_more:
            await self._keep(asked=False)

    async def withdraw(self) -> None:
        """Ask for nothing, as well as that is possible in a moment."""
        if self._stands == ():
            return
        with contextlib.suppress(ClusterUnavailable, TimeoutError):
            async with asyncio.timeout(STOPPING_S):
                await self._ray.ask(())
                self._stands = ()
                await self._keep(asked=False)

    async def _recall(self) -> None:
        if self._recalled:
            return
        with contextlib.suppress(StateUnavailable):
            if await self._live.asked_for_nodes() and self._stands == ():
                self._stands = None
            self._recalled = True

    async def _keep(self, *, asked: bool) -> None:
        with contextlib.suppress(StateUnavailable):
            await self._live.put_asked_for_nodes(asked=asked)
