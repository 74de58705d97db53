"""The Serve applications: gateway, control loop, workers, by import path.

``modelless up`` deploys them on this machine; a KubeRay ``RayService`` or ``serve deploy`` names
``controlplane.app:gateway``, ``:controller`` and ``:worker`` and starts the same ones. Each takes a
dictionary of arguments. Settings are resolved here, once, and travel with the application; no
secret stands in a Serve configuration (``controlplane.cluster.sending_settings``).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ray import serve
from ray._common.constants import HEAD_NODE_RESOURCE_NAME

from controlplane.access import client_keys
from controlplane.access.client_keys import KeysOfHead
from controlplane.cluster.head import HeadSecrets, WorkerSupplies
from controlplane.cluster.kind_placement import options_for
from controlplane.cluster.sending_settings import receive, secrets_of, send
from controlplane.cluster.sent_settings import SentSettings
from controlplane.gateway_replica import GatewayReplica
from controlplane.settings import Settings, load_settings
from controlplane.slices import Kind, cpu_kind
from variants.errors import InvalidInput
from variants.types import DeviceKindName
from workers.channel.secret import own_digest
from workers.deployment import worker_app
from workers.process.niceness import YIELDING
from workers.replica import (
    Replaceable,
    bind_replica_to_loopback,
    log_options,
    log_through_serve,
    node_name,
    session_name,
    take_priority,
)
from workers.types import WorkerConfig

if TYPE_CHECKING:
    from controlplane.controller.events.journal import Journal
    from controlplane.controller.profiles.measuring import Measuring

log = logging.getLogger(__name__)

HEAD: dict[str, float] = {HEAD_NODE_RESOURCE_NAME: 0.001}
"""A part of what Ray's head node alone offers."""
READERS = 4
"""Threads in which the control loop's replica answers questions about artifacts."""


def gateway(args: Mapping[str, Any]) -> serve.Application:
    """The gateway; ``replicas`` of them. Those on one node share the port."""
    settings = load_settings()
    deployment = serve.deployment(
        GatewayReplica,
        name="gateway",
        num_replicas=int(args.get("replicas", settings.gateway_count)),
        ray_actor_options={"num_cpus": 0, "resources": gateway_resources(settings)},
        user_config={},
        health_check_period_s=1,
        health_check_timeout_s=5,
        graceful_shutdown_timeout_s=20,
        graceful_shutdown_wait_loop_s=0.05,
        logging_config=log_options(settings.log_format),
    )
    return deployment.bind(send(settings))


def controller(_args: Mapping[str, Any]) -> serve.Application:
    """The control loop: one replica on the head, which Serve restarts when it dies."""
    settings = load_settings()
    deployment = serve.deployment(
        ControllerReplica,
        name="controller",
        num_replicas=1,
        ray_actor_options={"num_cpus": 0, "resources": HEAD if settings.ray_address else {}},
        user_config={},
        max_ongoing_requests=100,
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=5,
        graceful_shutdown_wait_loop_s=0.05,
        logging_config=log_options(settings.log_format),
    )
    return deployment.bind(send(settings))


def worker(args: Mapping[str, Any]) -> serve.Application:
    """Workers of one device kind, with ``cores``, ``memory_mib``, ``replicas`` and ``listen``.

    What is not given is as the settings say of the ``device_kind``, or of the first one.
    """
    settings = load_settings()
    kinds = {str(kind.name): kind for kind in settings.kinds}
    name = args.get("device_kind")
    own = kinds.get(str(name)) or next(iter(kinds.values()), None)
    if own is None:
        raise InvalidInput(
            "MODELLESS_SLICES=found has the control loop start workers of the kinds that it finds,"
            " so no application of workers is deployed"
        )
    cores = int(args.get("cores", own.cores))
    named = own.name if cores == own.cores else cpu_kind(cores)
    kind = replace(
        own,
        name=DeviceKindName(str(name or named)),
        cores=cores,
        memory_mib=float(args.get("memory_mib", own.memory_mib)),
        nodes=own.nodes if own.name == (name or named) else None,
    )
    return workers_of(
        kind,
        settings,
        send(settings).secret,
        replicas=int(args.get("replicas", own.most)),
        listen=str(args.get("listen", settings.listen_channel)),
        num_gpus=float(args.get("num_gpus", 0 if own.gpu is None else 1)),
    )


def workers_of(
    kind: Kind,
    settings: Settings,
    secret_digest: str,
    *,
    replicas: int,
    listen: str = "",
    num_gpus: float | None = None,
    user_config: Mapping[str, Any] | None = None,
) -> serve.Application:
    """So many workers of a device kind, on the nodes that it is bound to.

    Args:
        listen: where their channel listens; empty: as the settings say.
        num_gpus: of one worker; None: one where the kind has some.
    """
    config = WorkerConfig(
        device_kind=kind.name,
        cores=kind.cores,
        memory_mib=kind.memory_mib,
        run_dir=str(settings.run_dir),
        secret_path=str(settings.secret_path),
        secret_digest=secret_digest,
        listen=listen or settings.listen_channel,
        max_frame_mib=settings.max_frame_mib,
        quarantine_dir=str(settings.state_dir / "quarantine"),
        batching=settings.batching,
        late_share=settings.late_share,
        eviction=settings.eviction,
        pin_cores=settings.pin_cores and kind.gpu is None,  # which leaves no core for it
        log_format=settings.log_format,
    )
    supplies = WorkerSupplies(
        secret_path=config.secret_path,
        secret_digest=config.secret_digest,
        artifacts_url=settings.artifacts_url,
        artifacts_dir=str(settings.artifacts_dir),
        copies_dir=str(settings.copies_dir),
        limit_mib=settings.artifact_cache_mib,
    )
    return worker_app(
        config,
        replicas=replicas,
        num_gpus=(0 if kind.gpu is None else 1) if num_gpus is None else num_gpus,
        options=options_for(kind),
        supplies=supplies if settings.ray_address or settings.artifacts_url else None,
        user_config=user_config,
    )


def gateway_resources(settings: Settings) -> dict[str, float]:
    """What a node must offer to run a gateway: being the head, or the resource that was named.

    A gateway belongs where its documents say that it listens, and not where there was room.
    """
    if not settings.ray_address:
        return {}
    return HEAD if settings.gateway_nodes == "head" else {settings.gateway_nodes: 1.0}


class ControllerReplica(Replaceable):
    """The control loop inside a Serve replica."""

    def __init__(self, sent: SentSettings) -> None:
        self._remember_start(sent)
        from controlplane.cluster.autoscaling.ray_autoscaler import RayAutoscaler
        from controlplane.cluster.head import store_of
        from controlplane.cluster.kind_applications import KindApplications, LaterKinds
        from controlplane.cluster.processes.ray_processes import watch_control_store
        from controlplane.cluster.ray_adapter import ServeCluster
        from controlplane.controller.loop import ControlLoop
        from controlplane.controller.other_installations import owner_of
        from controlplane.live_state import LiveState
        from variants.artifacts.served import ArtifactService
        from variants.artifacts.store import FileArtifactStore
        from variants.catalog.database import SERVING_TIMEOUT_S
        from variants.catalog.sql import open_catalog

        bind_replica_to_loopback()
        take_priority(YIELDING)
        settings, secret = receive(sent, node_name(), on_head=True)
        log_through_serve(settings.log_level)
        self._artifacts = ArtifactService(FileArtifactStore(settings.artifacts_dir))
        # Of their own: the loop's writes shall not wait behind machines that fetch.
        self._reading = ThreadPoolExecutor(READERS, thread_name_prefix="artifacts")
        self._secrets = secrets_of(settings, secret)
        self._client_keys = settings.client_keys_path
        self._live = LiveState(settings.live_url)
        self._sent = sent
        self._catalog = open_catalog(settings.catalog_url, SERVING_TIMEOUT_S)

        def workers(kind: Kind, replicas: int, user_config: Mapping[str, Any]) -> serve.Application:
            digest = own_digest(secret)
            return workers_of(kind, settings, digest, replicas=replicas, user_config=user_config)

        self._loop = ControlLoop(
            settings=settings,
            catalog=self._catalog,
            store=store_of(settings),
            live=self._live,
            cluster=ServeCluster(later=LaterKinds(lambda: self._loop.settings.kinds, workers)),
            secret=secret,
            owner=owner_of(
                secret, serve.get_replica_context().replica_id.unique_id, session_name()
            ),
            measuring_of=self._measuring_on(bool(settings.ray_address)),
            # On a cluster nodes of other kinds may join.
            kind_applications=KindApplications(workers) if settings.ray_address else None,
            autoscaler=RayAutoscaler() if settings.ray_address else None,
            control_store=watch_control_store(settings),
        )
        self._running: asyncio.Task[None] | None = None

    def _measuring_on(self, cluster: bool) -> Callable[["Journal"], "Measuring"]:
        """What has profiles measured: on the nodes of a cluster, or on this machine."""
        from controlplane.cluster.measuring_nodes import MeasuringHere, MeasuringNodes
        from controlplane.controller.profiles.measuring import Measuring

        def now() -> Settings:
            return self._loop.settings

        nodes = (MeasuringNodes if cluster else MeasuringHere)(self._sent, now)
        return lambda journal: Measuring(now, self._catalog, nodes, journal, monotonic)

    async def reconfigure(self, _user_config: dict[str, Any]) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._loop.run())

    async def artifacts(self, question: str, *arguments: Any) -> Any:
        """Answer machines that do not see the files (``controlplane.cluster.head``)."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._reading, partial(self._artifacts.answer, question, *arguments)
        )

    async def secrets(self) -> HeadSecrets:
        """Tell them what they may not read in a Serve configuration."""
        return self._secrets

    async def client_keys(self) -> KeysOfHead:
        """Tell gateways there which keys clients have now."""
        return await asyncio.to_thread(client_keys.told, self._client_keys)

    async def check_health(self) -> None:
        """Raise when the loop has ended or hangs; Serve then starts a successor."""
        self._check_stays()
        if self._running is not None and self._running.done():
            self._running.result()
            raise RuntimeError("the control loop has ended")
        self._loop.check()

    async def __del__(self) -> None:
        if not hasattr(self, "_running"):  # it never began, and why is told already
            return
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._live.close()
        self._catalog.close()
