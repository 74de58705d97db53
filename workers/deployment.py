"""The Ray Serve deployment around a worker: the only file of this folder that knows Ray.

Serve owns the replica: where it runs, its restarts, its health, how many there are. Queries do not
pass through it: they arrive on the worker's own socket (``workers.channel.client``).
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict, replace
from typing import Any

from ray import get_runtime_context, serve
from ray.util import get_node_ip_address

from workers.channel.secret import read_shared_secret
from workers.execution.artifacts import Artifacts
from workers.host import STOP_S, WorkerHost
from workers.process.niceness import take_niceness
from workers.process.release import generation, release
from workers.runtimes.onnx_arena import ARENA
from workers.types import ZONE_LABELS, WorkerConfig

log = logging.getLogger(__name__)

EVERYWHERE = ("tcp:0.0.0.0", "tcp:[::]")
"""Stands for the address that Ray knows the replica's machine by."""
DRAIN_S = 20.0
"""How long a worker that must leave may take to finish what it has admitted."""

HANDOVER_S = 3.0
"""How long a worker goes on that leaves because its node does, or because its kind has more nodes
now: Serve stops it as soon as its replacement runs, which the control loop then has to meet and to
have load."""
CONTROL_STORE_S = 2.0
"""How long Ray may take to say whether this node goes, and Serve whether a new worker comes."""
LEAVES_S = 2 * CONTROL_STORE_S + HANDOVER_S + DRAIN_S + STOP_S
"""What leaving takes at most. Serve kills a replica that takes longer, and a batch or load that it
kills may be put down to its variant."""


Supplies = Callable[[str], tuple[bytes, Artifacts]]
"""Gives a replica on a machine of a cluster, which it names, the channel's secret and artifacts."""


def bind_replica_to_loopback() -> None:
    """Keep this replica's own gRPC server, which Serve opens on all interfaces, on loopback.

    Ray Serve 2.60 binds ``[::]:0`` in every replica, without authentication and whatever the node's
    address, for calls between deployments. Nothing of ours uses it, on a cluster neither: the
    control loop's handles call actors. Called from a replica's constructor, which runs before that
    server starts. Tests look at the listening sockets.
    """
    from ray.serve._private import replica

    bind = replica.add_port_to_grpc_server
    if getattr(bind, "on_loopback", False):
        return

    def on_loopback(server: Any, address: str) -> Any:
        return bind(server, address.replace("[::]", "127.0.0.1"))

    on_loopback.on_loopback = True  # type: ignore[attr-defined]
    replica.add_port_to_grpc_server = on_loopback


class ThroughServe(logging.Handler):
    """Writes into the log that Serve keeps for this replica, which says the time and the level.

    What goes to standard error gets there too, but each line as ``INFO``.
    """

    def emit(self, record: logging.LogRecord) -> None:
        told = copy(record)
        told.msg, told.args = f"{record.name}: {record.getMessage()}", None
        logging.getLogger("ray.serve").handle(told)


def log_options(log_format: str) -> dict[str, Any]:
    """What Serve is told of the log of a replica.

    It would write a line for each look of the control loop at it, and what matters would drown.

    Args:
        log_format: ``text`` or ``json``.
    """
    return {"enable_access_log": False, "encoding": log_format.upper()}


def log_through_serve(level: str | int) -> None:
    """Have all that this replica logs from ``level`` on stand in its log."""
    logging.basicConfig(level=level, handlers=[ThroughServe()])


def take_priority(wanted: int = 0) -> None:
    """Run this replica at niceness ``wanted``, or warn that it is above.

    Ray runs its workers at 15 unless the raylet was started with ``RAY_worker_niceness=0``; only a
    privileged process can mend that from within.
    """
    niceness = take_niceness(wanted)
    if niceness > wanted:
        log.warning(
            "this replica runs at niceness %d and yields to other programs of its node;"
            " start Ray there with RAY_worker_niceness=0",
            niceness,
        )


def node_zone() -> str:
    """The zone of the node on which this replica runs, by its labels; "" where none says it."""
    labels = get_runtime_context().get_node_labels()
    return next((str(labels[name]) for name in ZONE_LABELS if labels.get(name)), "")


class LeavesInOrder(logging.Filter):
    """Says that a health check fails on purpose: Serve's own words sound like a fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == "Replica health check failed.":
            record.msg = "Asked to leave: the health check fails so that another one is started."
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


class Replaceable:
    """A replica that says what it is, and leaves when `modelless upgrade` asks it to."""

    _asked_to_leave = False

    def _remember_start(self, *told: Any) -> None:
        """Keep which code and settings this replica started with."""
        self._replica = serve.get_replica_context().replica_id.unique_id
        self._generation, self._release = generation(*told), release()

    async def identity(self) -> dict[str, str]:
        """What this replica is."""
        return {
            "replica": self._replica,
            "generation": self._generation,
            "release": self._release,
        }

    async def leave(self, replica: str) -> bool:
        """Have Serve put another one in the place of this replica, if it is the one named.

        Serve stops it as when its health check fails, gracefully, and starts another one. It has no
        other way to be told which one shall go.
        """
        if replica == self._replica:
            self._will_leave()
        return bool(replica == self._replica)

    def _will_leave(self) -> None:
        if not self._asked_to_leave:
            self._asked_to_leave = True
            logging.getLogger("ray.serve").addFilter(LeavesInOrder())

    def _check_stays(self) -> None:
        if self._asked_to_leave:
            raise RuntimeError("this replica was asked to leave; another one takes its place")


class WorkerReplica(Replaceable):
    """One worker: a slice of hardware, a socket, and any number of loaded variants."""

    def __init__(self, config: dict[str, Any], supplies: Supplies | None = None) -> None:
        self._remember_start(config, supplies)
        bind_replica_to_loopback()
        log_through_serve(logging.WARNING)
        take_priority()
        settings = replace(WorkerConfig(**config), zone=node_zone())
        node = f"{socket.gethostname()} ({get_node_ip_address()})"
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
        return says_otherwise(await _details(), serve.get_replica_context().app_name, told)
    except Exception:  # then it leaves at once
        return False


async def application_ends() -> bool:
    """Whether all replicas of this one's application are stopped, as far as Serve says in time."""
    try:
        return says_end(await _details(), serve.get_replica_context().app_name)
    except Exception:  # Serve may have ended already
        return True


async def _details() -> Mapping[str, Any]:
    """What Serve says of all applications, in time."""
    from ray.serve.context import _get_global_client

    controller = _get_global_client()._controller
    async with asyncio.timeout(CONTROL_STORE_S):
        details: Mapping[str, Any] = await controller.get_serve_instance_details.remote()
    return details


def says_end(details: Mapping[str, Any], application: str) -> bool:
    """Whether an application is there no more, or will not be for long.

    Args:
        details: what Serve says of all of them.
    """
    found = details["applications"].get(application)
    return found is None or found["status"] == "DELETING"


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
