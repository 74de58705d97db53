"""What every route of the control API stands on: the catalog, the artifacts, the live state."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Protocol

from controlplane.machine import rooms_here
from controlplane.registry.over_rest.operations import Operations, Registrations
from controlplane.settings import Settings
from controlplane.timestamps import StampAges, timestamp
from controlplane.views.answered_status import AnsweredStatus, answered_status
from controlplane.views.machines.certificate_status import CertificateStatus, certificate_status
from controlplane.views.machines.core_shortage import CoreStatus, core_status
from controlplane.views.machines.keys_file import KeysStatus, keys_status
from controlplane.views.machines.loop_silence import LoopStatus, loop_status
from controlplane.views.storage_status import StorageStatus, all_rooms, storage_status
from planner.feedback.by_class import ByClass
from planner.types import Refusal
from variants.artifacts.protocol import ArtifactStore
from variants.catalog.protocol import Catalog
from variants.core_time import CoreTime
from variants.disk import DiskRoom
from variants.errors import StateUnavailable
from variants.types import CatalogSnapshot, Event, TaskName
from workers.types import WorkerStatus

OLD_S = 120.0
"""What the control loop told so long ago says nothing of now."""


class ControlReads(Operations, Protocol):
    """What the control API reads of the live state, and where operations are kept.

    Every method raises ``StateUnavailable`` when the live state cannot be reached.
    """

    async def worker_status(self) -> Sequence[WorkerStatus | Mapping[str, Any]]:
        """The last status of each worker that is there, as a value or its fields."""

    async def whole_worker_status(self) -> Sequence[WorkerStatus]:
        """The last status of each worker, whole, as the worker sent it."""

    async def unload(self, worker: str, task: str, variant: str, /) -> None:
        """Unload a variant from a worker, once its queries are answered.

        Raises:
            DeadlineExceeded: it takes too long; it goes on.
            ReplicaLost: the worker is gone.
        """

    async def drain(self, worker: str, /) -> None:
        """Have a worker take no more queries and leave, once those that it has are answered.

        Raises:
            DeadlineExceeded: it takes too long; it goes on.
            ReplicaLost: the worker is gone.
        """

    async def nodes(self) -> Mapping[str, Any] | None:
        """``{"kinds": {kind: [node]}, "advice": [sentence]}``, where a control loop looked; with
        ``slices``, the device kinds as a setting says them, where these follow the nodes."""

    async def core_times(self) -> Sequence[CoreTime]:
        """How the time of cores was used lately, as gateways and workers say it."""

    def refused(self) -> str:
        """Why the live state took nothing of what was last written; empty where it did."""

    async def controller(self) -> Mapping[str, Any] | None:
        """What the control loop told last of itself
        (``controlplane.controller.events.loop_report``), where one did."""

    async def clients(self) -> Sequence[Mapping[str, Any]]:
        """``{name, weight, asked, answered, refused, old_key}`` of each client's key."""

    async def old_token(self) -> Mapping[str, Any] | None:
        """``{watched_since, used_at, requests}`` of the operator's older token; None where there is
        one token."""

    async def machines(self) -> Mapping[str, Any] | None:
        """What ``controlplane.controller.nodes.node_counts`` tells, where a control loop looked."""

    async def feedback(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """By task and variant, how many rows clients have said to be right and to be wrong."""

    async def feedback_by_class(self) -> Mapping[str, Mapping[str, ByClass]]:
        """The same of each class, of tasks whose accuracy is by class."""

    async def canaries(self) -> Mapping[str, Any]:
        """By the number of each share, what the control loop has found of it
        (``controlplane.views.canary_schemas.judged_canary``)."""

    async def put_notice(self, notice: Mapping[str, Any], /) -> None:
        """Say that a node goes: ``node``, ``why`` and ``until_s``, a Unix time or 0."""

    async def history(self) -> Sequence[Mapping[str, Any]]:
        """What gateways left of the last hour, for ``controlplane.views.history``."""

    async def slo_report(self) -> Mapping[str, Any]:
        """``controlplane.views.service_status.slo_report`` of what all gateways report."""


def happened(kind: str, subject: str, message: str) -> Event:
    """An event of now."""
    return Event(at=timestamp(), kind=kind, subject=subject, message=message)


@dataclass(slots=True, kw_only=True)
class ApiContext:
    """All that the control API stands on."""

    catalog: Catalog
    store: ArtifactStore
    settings: Settings
    live: ControlReads
    registrations: Registrations | None = None
    """Made from the rest when it is not given."""
    rooms: Callable[[Settings], tuple[DiskRoom, ...]] = rooms_here
    """The disks of this machine that are written."""
    certificate_ends_s: Callable[[], float | None] = lambda: None
    """When the gateway's certificate ends, as Unix time; None without TLS."""
    keys_status: Callable[[], KeysStatus] = lambda: keys_status("", known=True)
    """Whether the file of clients' keys can be read."""
    unanswered: Callable[[], Mapping[TaskName, Refusal]] = dict
    """The tasks that nothing answers now, and what a query of each would be told."""
    _seen: Mapping[str, Any] | None = None
    """What the control loop told last of the nodes: it holds while nobody can say it."""
    _ages: StampAges = field(default_factory=StampAges)
    _snapshot: CatalogSnapshot = field(default_factory=lambda: CatalogSnapshot(revision=-1))

    async def snapshot(self) -> CatalogSnapshot:
        """The catalog now; read again only when it is another one than was read last."""
        return await asyncio.to_thread(self._read)

    async def settings_now(self) -> Settings:
        """The settings, with the device kinds of nodes that joined since the start."""
        with contextlib.suppress(StateUnavailable):
            seen = await self.live.nodes() if self.settings.ray_address else None
            self._seen = self._seen if seen is None else seen
        return self.settings.as_seen(self._seen)

    async def tell(self, *events: Event) -> None:
        """Keep events in the catalog, all of them or none.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        await asyncio.to_thread(self.catalog.add_event, *events)

    async def storage(self) -> StorageStatus:
        """Whether what has to be kept can be written, here and where the control loop runs."""
        told = await self.told()
        rooms = await asyncio.to_thread(self.rooms, self.settings)
        return storage_status(
            all_rooms(rooms, told), told.get("unwritable", ""), told.get("slow_ms", 0.0),
            self.live.refused(), told.get("live_slow_ms", 0.0),
        )  # fmt: skip

    async def cores(self) -> CoreStatus:
        """Whether what answers queries has the cores that it needs."""
        before = (await self.told()).get("cores_short", ())
        return core_status(await self.live.core_times(), before)

    async def answered(self) -> AnsweredStatus:
        """Whether each task could be answered, by what the gateway that answers this knows."""
        return answered_status(await self.snapshot(), self.unanswered())

    def certificate(self) -> CertificateStatus:
        """Whether the certificate of the gateway that answers this ends soon."""
        return certificate_status(self.certificate_ends_s(), time())

    async def control_loop(self) -> LoopStatus:
        """Whether the control loop turns."""
        told = await self.told()
        return loop_status(self._silent_s(told), str(told.get("control_store", "")))

    async def told(self) -> Mapping[str, Any]:
        """What the control loop told last of itself; nothing where the live state has none."""
        with contextlib.suppress(StateUnavailable):
            return await self.live.controller() or {}
        return {}

    async def headroom(self) -> Mapping[str, Any] | None:
        """What the control loop says of how much more could be served; None where it does not."""
        told = await self.told()
        silent_s = self._silent_s(told)
        if silent_s is None or silent_s >= OLD_S:
            return None
        found: Mapping[str, Any] | None = told.get("headroom")
        return found

    def _silent_s(self, told: Mapping[str, Any]) -> float | None:
        """How long ago the control loop turned last; None where it has not said."""
        turned_s = told.get("turned_s")
        return None if turned_s is None else self._ages.age_s("control loop", float(turned_s))

    def _read(self) -> CatalogSnapshot:
        if self.catalog.marks().state != self._snapshot.state:
            self._snapshot = self.catalog.snapshot()
        return self._snapshot
