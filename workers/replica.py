"""What every replica of ours is to Ray Serve: its socket, its log, its priority, how it leaves.

It imports little: Ray unpickles the class of a replica before that can give way to others, and one
more gateway is started where cores are full (``controlplane.gateway_replica``).
"""

import asyncio
import logging
import socket
from collections.abc import Mapping
from copy import copy
from typing import Any

from ray import get_runtime_context, serve
from ray.util import get_node_ip_address

from workers.process.niceness import take_niceness
from workers.process.release import generation, release

log = logging.getLogger(__name__)

CONTROL_STORE_S = 2.0
"""How long Ray may take to say whether this node goes, and Serve whether a new worker comes."""


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


def node_name() -> str:
    """The node on which this replica runs, as people know it."""
    return f"{socket.gethostname()} ({get_node_ip_address()})"


def session_name() -> str:
    """The session of the Ray cluster, which begins with when its head was started; a head that
    comes back with what it knew goes on with it."""
    return str(get_runtime_context().get_session_name())


def node_zone() -> str:
    """The zone of the node on which this replica runs, by its labels; "" where none says it."""
    from workers.types import ZONE_LABELS

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


async def application_ends() -> bool:
    """Whether all replicas of this one's application are stopped, as far as Serve says in time."""
    try:
        return says_end(await serve_details(), serve.get_replica_context().app_name)
    except Exception:  # Serve may have ended already
        return True


async def serve_details() -> Mapping[str, Any]:
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
