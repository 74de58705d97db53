"""The Serve applications of device kinds that change while an installation runs.

Each kind is an application of its own, so that one that is added touches no other: Serve gives
whatever is deployed by a call a new version, and starts the replicas of an old version anew. What a
kind is stands in its application's configuration, where the next control loop reads it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.cluster.measuring_nodes import in_time
from controlplane.cluster.ray_adapter import ANSWERING
from controlplane.cluster.serve_applications import (
    ANSWER_S,
    WORKER_APP,
    begin_deleting,
    deploy_beside,
    serve_details,
)
from controlplane.slices import Kind, Slice, slices_of
from variants.errors import ClusterUnavailable
from variants.types import DeviceKindName

PLACED = (*ANSWERING, "STARTING", "RECOVERING")
"""States of a replica that has its node, where it has one: Ray has given it the cores there."""
SLICE = "slice"
"""The name under which an application says what its kind is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """Workers of a kind, as Serve has them."""

    slice: Slice | None
    """What they were last deployed as by a control loop; None: only at the start."""
    target: int
    """How many Serve was told to run."""
    nodes: frozenset[str]
    """The ids of the nodes on which some run or start."""
    placed: int
    """How many run or start on a node; the others wait for room."""
    wrong: str = ""
    """What is wrong with what the application says of its kind, if anything is."""


class KindApplications:
    """Deploys them, and says which there are. Used inside the control loop's replica."""

    def __init__(
        self,
        made: Callable[[Kind, int, Mapping[str, Any]], Any],
        details: Callable[[], Awaitable[Mapping[str, Any]]] = serve_details,
    ) -> None:
        """
        Args:
            made: makes the application of so many workers of a kind, with a configuration.
        """
        self._made = made
        self._details = details

    async def deployed(self) -> dict[DeviceKindName, Deployed]:
        """All device kinds that have an application.

        Raises:
            ClusterUnavailable: Serve does not answer.
        """
        found = {}
        for name, application in (await self._details())["applications"].items():
            deployment = application["deployments"].get("worker")
            if name.startswith(WORKER_APP) and deployment and application["status"] != "DELETING":
                kind = DeviceKindName(name.removeprefix(WORKER_APP))
                nodes = [
                    node
                    for replica in deployment["replicas"]
                    if replica["state"] in PLACED and (node := replica.get("node_id"))
                ]
                one, wrong = _slice_of(kind, deployment)
                found[kind] = Deployed(
                    slice=one,
                    target=deployment["target_num_replicas"],
                    nodes=frozenset(nodes),
                    placed=len(nodes),
                    wrong=wrong,
                )
        return found

    async def deploy(self, kind: Kind, one: Slice, replicas: int) -> None:
        """Have Serve run so many workers of a kind, on the nodes that it is bound to.

        Those of a kind that is there already are started anew, one after the other.

        Raises:
            ClusterUnavailable: Serve does not do it.
        """
        application = self._made(kind, replicas, {SLICE: str(one)})
        await in_time(lambda: deploy_beside(WORKER_APP + kind.name, application))

    async def remove(self, kind: DeviceKindName) -> None:
        """Have Serve end the application of a kind.

        Raises:
            ClusterUnavailable: Serve does not do it.
        """
        await in_time(lambda: begin_deleting(WORKER_APP + kind))


class LaterKinds:
    """Kinds of which there may be no worker, deployed when some are wanted for the first time.

    Serve deploys no application without a replica: its ``options`` refuse the number 0, and where a
    deployment has it all the same, Serve's own status cannot be read. One that is deployed and
    scaled down at once asks Ray for room meanwhile, for which an autoscaler may start a node.
    """

    def __init__(
        self,
        kinds: Callable[[], Iterable[Kind]],
        made: Callable[[Kind, int, Mapping[str, Any]], Any],
        deploy: Callable[[str, Any], None] = deploy_beside,
        patience_s: float = ANSWER_S,
    ) -> None:
        """
        Args:
            kinds: says which there are now.
            made: makes the application of so many workers of a kind, with a configuration.
            deploy: has Serve take an application of a name. Called in a thread.
            patience_s: how long that is waited for, before it is tried again.
        """
        self._kinds = kinds
        self._made = made
        self._deploy = deploy
        self._patience_s = patience_s
        self._under_way: set[str] = set()
        """A call that is given up goes on in its thread."""

    def includes(self, kind: str) -> bool:
        """Whether it is one of them."""
        return any(one.name == kind and one.may_be_none for one in self._kinds())

    async def deploy(self, kind: str, count: int) -> None:
        """Have Serve run so many workers of a kind that it does not know.

        Raises:
            ClusterUnavailable: Serve does not do it.
        """
        if kind in self._under_way:  # what is deployed twice starts twice
            raise ClusterUnavailable(f"workers of {kind} are being deployed, and Serve is silent")
        [one] = [one for one in self._kinds() if one.name == kind]

        def call() -> None:
            self._under_way.add(kind)
            try:
                self._deploy(WORKER_APP + kind, self._made(one, count, {}))
            finally:
                self._under_way.discard(kind)

        await in_time(call, self._patience_s)


def _slice_of(kind: str, deployment: Mapping[str, Any]) -> tuple[Slice | None, str]:
    """What an application says of its kind, and what is wrong with that: another version of
    modelless may have written it."""
    told = (deployment.get("deployment_config", {}).get("user_config") or {}).get(SLICE)
    if told is None:
        return None, ""
    try:
        [found] = slices_of(str(told))
    except ValueError as error:
        return None, f"what its application says of it cannot be read: {error}"
    if found.name != kind:
        return None, f"its application says that it is {found.name}"
    return found, ""
