"""The calls to Ray's autoscaler. Used inside the control loop's replica, which runs on the head."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from controlplane.cluster.autoscaling.monitor import autoscaler_with, control_store_of, monitors
from controlplane.cluster.autoscaling.node_requests import Bundle
from controlplane.cluster.autoscaling.node_types import Autoscaler
from controlplane.cluster.kind_placement import options_for
from controlplane.cluster.kinds.node import NODE_LABEL
from controlplane.cluster.measuring_nodes import in_time
from controlplane.cluster.nodes import listed_nodes
from controlplane.cluster.ray_adapter import nodes_of_workers
from controlplane.cluster.serve_applications import serve_details
from controlplane.slices import Kind

HEAD = "node:__internal_head__"
"""What Ray's head node alone offers."""
ANSWER_S = 10.0
"""How long Ray's control store may take to answer."""

ENDS = {
    "AUTOSCALER_DRAIN_IDLE": "it was idle, and the autoscaler took it away",
    "AUTOSCALER_DRAIN_PREEMPTED": "it had drained",
    "EXPECTED_TERMINATION": "it was told to end",
}
"""How Ray says that nodes end, and how people do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node that is alive."""

    id: str
    host: str
    address: str
    is_head: bool = False
    cores: int = 0
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    drains_until_s: float | None = None
    """Unix time by which it goes; 0: it drains, and nobody said by when; None: it stays."""

    @property
    def name(self) -> str:
        """For people. Several nodes may be on one machine: its id tells them apart."""
        return f"{self.host} ({self.address}, {self.id[:8]})"

    def has_room_for(self, kind: Kind) -> bool:
        """Whether workers of a kind may run there, if nothing else does."""
        if kind.nodes is not None and self.labels.get(kind.nodes.label) not in kind.nodes.values:
            return False
        return self.cores >= kind.cores and (kind.gpu is None or self.gpus > 0)


class RayAutoscaler:
    """What the control loop asks of Ray. Each method raises ``ClusterUnavailable``."""

    async def find(self) -> Autoscaler | None:
        """The autoscaler of this cluster; None where nodes come and go by hand."""
        found: Autoscaler | None = await in_time(_find, ANSWER_S)
        return found

    async def ask(self, bundles: Sequence[Bundle]) -> None:
        """Have the cluster grow until these fit; what was asked for before stands no more."""
        await in_time(lambda: _ask(bundles), ANSWER_S)

    async def nodes(self) -> tuple[ClusterNode, ...]:
        """All nodes that are alive, by name."""
        found: tuple[ClusterNode, ...] = await in_time(_nodes, ANSWER_S)
        return found

    async def ends(self, ids: Container[str]) -> dict[str, str]:
        """How nodes ended that are alive no more, in Ray's words; those that it forgot miss."""
        found: dict[str, str] = await in_time(lambda: _ends(ids), ANSWER_S)
        return found

    async def workers(self, kinds: Iterable[str]) -> dict[str, str]:
        """The node that each worker of these kinds runs on, by worker."""
        return nodes_of_workers(await serve_details(), kinds)

    async def drain(self, node: str, why: str, until_s: float) -> str:
        """Tell Ray that a node goes: nothing is started on it any more, and Serve moves what runs.

        Returns why Ray refuses; nothing where it does not.

        Args:
            node: Ray's id of it.
            until_s: Unix time by which it goes; 0: when it is done.
        """
        return str(await in_time(lambda: _drain(node, why, until_s), ANSWER_S))


def _find() -> Autoscaler | None:
    import ray
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    address = ray.get_runtime_context().gcs_address
    for arguments in monitors():
        if control_store_of(arguments) == address:
            return autoscaler_with(arguments)
    # On Kubernetes it runs beside the head, in a container of its own.
    return Autoscaler() if is_autoscaler_v2() and _reports(address) else None


def _reports(address: str) -> bool:
    """Whether an autoscaler tells Ray what it does."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    reply = GetClusterStatusReply()
    reply.ParseFromString(GcsClient(address).get_cluster_status(timeout_s=ANSWER_S))
    return bool(reply.autoscaling_state.autoscaler_state_version)


_ASKING = Lock()
"""A call that nobody waits for any more goes on: a later one must not come before it."""


def _ask(bundles: Sequence[Bundle]) -> None:
    from ray.autoscaler.sdk import request_resources

    shapes: list[dict[str, float]] = []
    selectors: list[dict[str, str]] = []
    for one in bundles:
        shape = {"CPU": one.kind.cores} | ({} if one.kind.gpu is None else {"GPU": 1})
        shapes += [dict(shape) for _ in range(one.count)]
        label = options_for(one.kind).get("label_selector", {})
        selectors += [dict(label) for _ in range(one.count)]
    if not _ASKING.acquire(timeout=ANSWER_S):
        raise ConnectionError("an earlier request for nodes has no answer")
    try:
        request_resources(bundles=shapes, bundle_label_selectors=selectors)
    finally:
        _ASKING.release()


def _nodes() -> tuple[ClusterNode, ...]:
    found = [cluster_node(one) for one in listed_nodes() if one["Alive"]]
    return tuple(sorted(found, key=lambda node: (node.name, node.id)))


def _ends(ids: Container[str]) -> dict[str, str]:
    from ray.core.generated.common_pb2 import NodeDeathInfo

    found = {}
    for one in listed_nodes():
        if one["NodeID"] in ids and not one["Alive"]:
            reason = NodeDeathInfo.Reason.Name(one.get("DeathReason", 0))
            found[one["NodeID"]] = ENDS.get(reason, one.get("DeathReasonMessage") or reason)
    return found


def cluster_node(listed: Mapping[str, Any]) -> ClusterNode:
    """A node as ``listed_nodes`` lists it."""
    id_, resources = listed["NodeID"], listed["Resources"]
    drains_until_ms = listed.get("DrainsUntilMs")
    return ClusterNode(
        id=id_,
        host=listed["NodeManagerHostname"],
        address=listed["NodeManagerAddress"],
        is_head=HEAD in resources,
        cores=int(resources.get("CPU", 0)),
        gpus=int(resources.get("GPU", 0)),
        labels={NODE_LABEL: id_, **listed["Labels"]},
        drains_until_s=None if drains_until_ms is None else drains_until_ms / 1_000,
    )


def _drain(node: str, why: str, until_s: float) -> str:
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    accepted, refusal = GcsClient(ray.get_runtime_context().gcs_address).drain_node(
        node, DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION"), why, int(until_s * 1_000)
    )
    return "" if accepted else refusal or "Ray does not say why"
