"""The Ray Serve deployment around a worker.

Serve owns the replica: where it runs, its restarts, its health, how many there are. Queries do not
pass through it: they arrive on the worker's own socket (``workers.channel.client``).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from ray import get_runtime_context, serve
from ray.util import get_node_ip_address

from workers.channel.secret import read_shared_secret
from workers.execution.artifacts import Artifacts
from workers.host import STOP_S, WorkerHost
from workers.replica import (
    CONTROL_STORE_S,
    Replaceable,
    bind_replica_to_loopback,
    log_options,
    log_through_serve,
    node_name,
    node_zone,
    serve_details,
    take_priority,
)
from workers.runtimes.sharing.arena import ARENA
from workers.types import WorkerConfig

log = logging.getLogger(__name__)

EVERYWHERE = ("tcp:0.0.0.0", "tcp:[::]")
"""Stands for the address that Ray knows the replica's machine by."""
DRAIN_S = 20.0
"""How long a worker that must leave may take to finish what it has admitted."""

HANDOVER_S = 3.0
"""How long a worker goes on that leaves because its node does, or because its kind has more nodes
now: Serve stops it as soon as its replacement runs, which the control loop then has to meet and to
have load."""
LEAVES_S = 2 * CONTROL_STORE_S + HANDOVER_S + DRAIN_S + STOP_S
"""What leaving takes at most. Serve kills a replica that takes longer, and a batch or load that it
kills may be put down to its variant."""


Supplies = Callable[[str], tuple[bytes, Artifacts]]
"""Gives a replica on a machine of a cluster, which it names, the channel's secret and artifacts."""


class WorkerReplica(Replaceable):
    """One worker: a slice of hardware, a socket, and any number of loaded variants."""

    def __init__(self, config: dict[str, Any], supplies: Supplies | None = None) -> None:
        self._remember_start(config, supplies)
        bind_replica_to_loopback()
        log_through_serve(logging.WARNING)
        take_priority()
        settings = replace(WorkerConfig(**config), zone=node_zone())
        node = node_name()
        self._on_cluster = supplies is not None
        secret, artifacts = None, None
        if supplies is not None:
            secret, artifacts = supplies(node)
        elif settings.secret_digest:
            secret = read_shared_secret(settings.secret_path, settings.secret_digest, node)
        if settings.listen in EVERYWHERE:
            # Gateways on other machines need an address that leads to this one.
            settings = replace(settings, listen=f"tcp:{get_node_ip_address()}")
        unique = serve.get_replica_context().replica_id.unique_id
        self._id = f"{settings.device_kind}-{unique}"
        ARENA.share()
        self._host = WorkerHost(settings, self._id, secret=secret, artifacts=artifacts)
        self._device_kind = settings.device_kind
        self._address = ""
        self._told: dict[str, Any] = {}
        """What the application says of itself, of which this worker is."""
        self._starting = asyncio.Lock()

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Open the socket. Serve waits for this before it calls the replica ready."""
        async with self._starting:
            self._told = user_config
            if not self._address:
                self._address = await self._host.start()

    async def describe(self) -> dict[str, str]:
        """Where this worker is reached."""
        return {"id": self._id, "address": self._address, "device_kind": self._device_kind}

    async def check_health(self) -> None:
        """Raise when the socket or the executor is dead, or an operator has it leave; Serve then
        replaces the replica."""
        if self._host.told_to_leave:
            self._will_leave()
        self._check_stays()
        self._host.check()

    async def __del__(self) -> None:
        """Serve calls and awaits this when it shrinks the deployment: leave without losing a query.

        Serve chooses which replica goes and sees no traffic on our socket, so any replica must be
        able to leave under load: it tells all gateways, finishes what it has admitted, then stops.
        """
        if not hasattr(self, "_host"):  # it never began, and why is told already
            return
        if self._on_cluster and (await _node_goes() or await _is_replaced(self._told)):
            await asyncio.sleep(HANDOVER_S)
        await self._host.drain_and_stop(DRAIN_S)


async def _node_goes() -> bool:
    """Whether this node drains, as Ray says in time."""

    def ask() -> bool:
        from ray._private.state import state

        return get_runtime_context().get_node_id() in state.get_draining_nodes()

    try:
        async with asyncio.timeout(CONTROL_STORE_S):
            return await asyncio.to_thread(ask)
    except Exception:  # then it leaves at once
        return False


async def _is_replaced(told: Mapping[str, Any]) -> bool:
    """Whether another version of this worker's application was deployed, as Serve says in time.

    Args:
        told: what this version says of itself.
    """
    try:
        return says_otherwise(await serve_details(), serve.get_replica_context().app_name, told)
    except Exception:  # then it leaves at once
        return False


def says_otherwise(details: Mapping[str, Any], application: str, told: Mapping[str, Any]) -> bool:
    """Whether an application that stays says something else of itself now.

    Args:
        details: what Serve says of all of them.
    """
    found = details["applications"].get(application)
    if found is None or found["status"] == "DELETING" or "worker" not in found["deployments"]:
        return False
    deployment = found["deployments"]["worker"]
    return (deployment["deployment_config"].get("user_config") or {}) != told and bool(
        deployment["target_num_replicas"]
    )


def worker_app(
    config: WorkerConfig,
    *,
    replicas: int,
    num_gpus: float = 0,
    options: Mapping[str, Any] | None = None,
    supplies: Supplies | None = None,
    user_config: Mapping[str, Any] | None = None,
) -> serve.Application:
    """A Serve application of workers of one device kind.

    Args:
        options: those of Ray that say on which nodes they run.
        user_config: what the application shall say of itself; it changes nothing.
    """
    deployment = serve.deployment(
        WorkerReplica,
        name="worker",
        num_replicas=replicas,
        ray_actor_options={
            "num_cpus": config.cores,
            "num_gpus": num_gpus,
            **(options or {}),
        },
        user_config=dict(user_config or {}),
        max_ongoing_requests=100,
        health_check_period_s=1,
        health_check_timeout_s=5,
        graceful_shutdown_timeout_s=LEAVES_S,
        graceful_shutdown_wait_loop_s=0.05,
        logging_config=log_options(config.log_format),
    )
    return deployment.bind(asdict(config), supplies)
