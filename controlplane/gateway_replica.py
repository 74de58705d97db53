"""The gateway's replica. It imports little, and the gateway itself in a thread that yields.

Another gateway is started because there is much to do, on cores that are full. What its start
computes comes out of what queries need: it imports 500 modules and makes the routes of the API. So
where somebody answers on the port already, all of that is done aside (``workers.process.niceness``)
and only taking connections at normal priority. Ray unpickles this class and its argument before
that, which is why neither may import much (decision 24).
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from controlplane.cluster.sent_settings import SentSettings
from controlplane.gateway.listening import somebody_listens
from workers.process.niceness import aside
from workers.replica import (
    Replaceable,
    application_ends,
    bind_replica_to_loopback,
    log_through_serve,
    node_name,
    node_zone,
    session_name,
    take_priority,
)

if TYPE_CHECKING:
    from controlplane.gateway.gateway import Gateway


class GatewayReplica(Replaceable):
    """A gateway inside a Serve replica, listening on its own socket."""

    def __init__(self, sent: SentSettings) -> None:
        self._sent = sent
        bind_replica_to_loopback()
        take_priority()
        made = partial(self._made, sent)
        others = somebody_listens(str(sent.values["host"]), int(sent.values["port"]))
        self._gateway = aside(made) if others else made()
        self._starting = asyncio.Lock()
        self._started = self._ends = False

    def _made(self, sent: SentSettings) -> "Gateway":
        self._remember_start(sent)
        from controlplane.cluster.head import ask_client_keys, knows_keys_from_head, store_of
        from controlplane.cluster.sending_settings import receive
        from controlplane.gateway.gateway import Gateway
        from variants.catalog.database import SERVING_TIMEOUT_S
        from variants.catalog.sql import open_catalog

        settings, secret = receive(sent, node_name())
        log_through_serve(settings.log_level)
        gateway = Gateway(
            settings.model_copy(update={"zone": settings.zone or node_zone()}),
            open_catalog(settings.catalog_url, SERVING_TIMEOUT_S),
            store_of(settings),
            secret,
            keys_of_head=ask_client_keys if knows_keys_from_head(settings) else None,
            cluster=session_name(),
        )
        gateway.prepare()
        return gateway

    async def reconfigure(self, _user_config: dict[str, Any]) -> None:
        """Listen. Serve waits for this before it calls the replica ready."""
        async with self._starting:
            if not self._started:
                await self._gateway.start()
                self._started = True

    async def settings_of_start(self) -> SentSettings:
        """What this gateway was told of the settings as it started."""
        return self._sent

    async def check_health(self) -> None:
        self._check_stays()
        # Serve asks one that it ends while it starts, as the one more of an upgrade that is not
        # needed any more, and would log what is no failure with a traceback.
        if not self._ends:
            self._gateway.check()

    async def __del__(self) -> None:
        if hasattr(self, "_gateway"):  # else it never began, and why is told already
            self._ends = True
            await self._gateway.stop(others_stay=not await application_ends())
