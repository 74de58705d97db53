"""What the control loop needs of the cluster."""

from collections.abc import Iterable
from typing import Protocol

from controlplane.cluster.kinds.node import Node
from controlplane.cluster.ray_adapter import WorkerAddress


class Cluster(Protocol):
    """``controlplane.cluster.ray_adapter.ServeCluster`` is Ray's."""

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]: ...

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]: ...

    async def failed_starts(self, kinds: Iterable[str]) -> dict[str, str]: ...

    async def scale(self, kind: str, count: int) -> None: ...

    async def end_worker(self, worker: str, kind: str) -> None: ...

    async def scale_gateways(self, count: int) -> None: ...

    async def lend_room(self, cores: int, given: int) -> None: ...

    async def nodes(self) -> tuple[Node, ...]: ...
