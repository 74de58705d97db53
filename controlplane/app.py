"""The Serve applications: gateway, control loop, workers, by import path.

``modelless up`` deploys them on this machine; a KubeRay ``RayService`` or ``serve deploy`` names
``controlplane.app:gateway``, ``:controller`` and ``:worker`` and starts the same ones. Each takes a
dictionary of arguments; all other settings come from the replica's environment and the state
directory, so no secret stands in a Serve configuration.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from ray import serve

from controlplane.settings import Settings, load_settings
from workers.deployment import bind_replica_to_loopback, worker_app
from workers.types import WorkerConfig

log = logging.getLogger(__name__)


def gateway(args: Mapping[str, Any]) -> serve.Application:
    """The gateway; ``replicas`` of them share the port."""
    settings = load_settings()
    deployment = serve.deployment(
        GatewayReplica,
        name="gateway",
        num_replicas=int(args.get("replicas", settings.gateways)),
        ray_actor_options={"num_cpus": 0},
        user_config={},
        health_check_period_s=1,
        health_check_timeout_s=5,
        graceful_shutdown_timeout_s=20,
        graceful_shutdown_wait_loop_s=0.05,
    )
    return deployment.bind()


def controller(_args: Mapping[str, Any]) -> serve.Application:
    """The control loop: one replica, which Serve restarts when it dies."""
    deployment = serve.deployment(
        ControllerReplica,
        name="controller",
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        user_config={},
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=5,
        graceful_shutdown_wait_loop_s=0.05,
    )
    return deployment.bind()


def worker(args: Mapping[str, Any]) -> serve.Application:
    """Workers of one device kind, with ``cores``, ``memory_mib``, ``replicas`` and ``listen``.

    Without arguments they are what the settings say of this machine.
    """
    settings = load_settings()
    cores = int(args.get("cores", settings.worker_cores))
    config = WorkerConfig(
        device_kind=str(args.get("device_kind", f"cpu-{cores}")),
        cores=cores,
        memory_mib=float(args.get("memory_mib", settings.memory_mib)),
        run_dir=str(settings.run_dir),
        secret_path=str(settings.secret_path),
        listen=str(args.get("listen", settings.listen_channel)),
        max_frame_mib=settings.max_frame_mib,
        quarantine_dir=str(settings.state_dir / "quarantine"),
        batching=settings.batching,
    )
    return worker_app(
        config,
        replicas=int(args.get("replicas", settings.workers)),
        num_gpus=float(args.get("num_gpus", 0)),
    )


class GatewayReplica:
    """A gateway inside a Serve replica, listening on its own socket."""

    def __init__(self) -> None:
        from controlplane.gateway import Gateway
        from variants.sql import open_catalog
        from variants.store import FileArtifactStore
        from workers.secret import read_secret

        settings = _replica_settings()
        self._gateway = Gateway(
            settings,
            open_catalog(settings.catalog_url),
            FileArtifactStore(settings.artifacts_dir),
            read_secret(settings.secret_path),
        )
        self._starting = asyncio.Lock()
        self._started = False

    async def reconfigure(self, _user_config: dict[str, Any]) -> None:
        """Listen. Serve waits for this before it calls the replica ready."""
        async with self._starting:
            if not self._started:
                await self._gateway.start()
                self._started = True

    async def check_health(self) -> None:
        self._gateway.check()

    async def __del__(self) -> None:
        await self._gateway.stop()


class ControllerReplica:
    """The control loop inside a Serve replica."""

    def __init__(self) -> None:
        from controlplane.cluster import ServeCluster
        from controlplane.live import LiveState
        from controlplane.loop import ControlLoop
        from variants.sql import open_catalog
        from variants.store import FileArtifactStore
        from workers.secret import read_secret

        settings = _replica_settings()
        self._live = LiveState(settings.live_url)
        self._catalog = open_catalog(settings.catalog_url)
        self._loop = ControlLoop(
            settings=settings,
            catalog=self._catalog,
            store=FileArtifactStore(settings.artifacts_dir),
            live=self._live,
            cluster=ServeCluster(),
            secret=read_secret(settings.secret_path),
            owner=serve.get_replica_context().replica_id.unique_id,
        )
        self._running: asyncio.Task[None] | None = None

    async def reconfigure(self, _user_config: dict[str, Any]) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._loop.run())

    async def check_health(self) -> None:
        """Raise when the loop has ended or hangs; Serve then starts a successor."""
        if self._running is not None and self._running.done():
            self._running.result()
            raise RuntimeError("the control loop has ended")
        self._loop.check()

    async def __del__(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._live.close()
        self._catalog.close()


def _replica_settings() -> Settings:
    """Settings inside a replica, with logging as they say and no port beyond loopback."""
    settings = load_settings()
    if not settings.ray_address and settings.listen_channel == "unix":
        bind_replica_to_loopback()
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    return settings
