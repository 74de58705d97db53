"""The cluster adapter: every call that the control plane makes to Ray stands here."""

import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.settings import Settings
from variants.errors import ClusterUnavailable

GATEWAY_APP = "modelless-gateway"
CONTROLLER_APP = "modelless-controller"
WORKER_APP = "modelless-worker-"
"""Followed by the device kind: one Serve application of workers for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAddress:
    """Where a running worker is reached, as the worker itself says."""

    id: str
    address: str
    device_kind: str


def ray_environment(settings: Settings) -> dict[str, str]:
    """What has to stand in the environment before Ray is imported.

    Token authentication is on, with a token of this installation. On one machine Ray is told not to
    expect a cluster, which makes it bind loopback only: ``ray.init`` has no argument for that and
    replaces a loopback address by a reachable one.
    """
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(settings.state_dir / "ray.token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "RAY_DEDUP_LOGS": "0",
        # Ray runs its workers at nice 15; these answer queries.
        "RAY_worker_niceness": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    if not settings.ray_address:
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return environment


def start_ray(settings: Settings) -> list[int]:
    """Start Ray on this machine, or join the cluster at ``settings.ray_address``.

    Returns the pids of the Ray processes that were started, none when a cluster was joined.

    Raises:
        ClusterUnavailable: Ray is not installed, does not start or cannot be reached.
    """
    os.environ.update(ray_environment(settings))
    try:
        import ray
        from ray._private import worker
    except ImportError as error:
        raise ClusterUnavailable(
            f"Ray cannot be imported ({error}); install modelless again"
        ) from error
    quiet: dict[str, Any] = {
        "logging_level": "ERROR",
        "log_to_driver": False,
        "namespace": "modelless",
    }
    try:
        if settings.ray_address:
            ray.init(address=settings.ray_address, **quiet)
            return []
        ray.init(
            address="local",
            num_cpus=settings.worker_cores * settings.workers,
            include_dashboard=False,
            # Nothing large travels through Ray's object store.
            object_store_memory=80 * 2**20,
            _temp_dir=str(ray_dir(settings)),
            **quiet,
        )
    except Exception as error:
        where = f" at {settings.ray_address}" if settings.ray_address else " on this machine"
        raise ClusterUnavailable(f"Ray could not be started{where}: {error}") from error
    node = worker._global_node
    return [info.process.pid for group in node.all_processes.values() for info in group]


def ray_dir(settings: Settings) -> Path:
    """Where Ray keeps sockets and logs.

    Ray puts Unix sockets about 60 characters below it and they must stay under 107, so a long
    state directory gets a short neighbour under ``/tmp``, named after it.
    """
    inside = settings.run_dir / "ray"
    if len(str(inside)) <= 40:
        return inside
    from hashlib import blake2b

    tag = blake2b(str(settings.state_dir.resolve()).encode(), digest_size=6).hexdigest()
    return Path(f"/tmp/modelless-{os.getuid()}-{tag}")  # noqa: S108


def deploy(settings: Settings) -> None:
    """Start the gateway, the control loop and the workers as Serve applications.

    Raises:
        ClusterUnavailable: Serve does not start them.
    """
    from ray import serve
    from ray.serve.api import RunTarget

    from controlplane import app

    applications = {
        WORKER_APP + settings.device_kind: app.worker({}),
        GATEWAY_APP: app.gateway({}),
        CONTROLLER_APP: app.controller({}),
    }
    targets = [
        RunTarget(application, name, route_prefix=None, external_scaler_enabled=True)
        for name, application in applications.items()
    ]
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
        serve.run_many(targets, wait_for_applications_running=True)
    except Exception as error:
        raise ClusterUnavailable(f"Ray Serve could not start modelless: {error}") from error


def stop_ray() -> None:
    """End the Serve applications (workers drain) and leave or stop Ray."""
    ray = sys.modules.get("ray")
    # An interrupted import leaves a module without content, or none.
    if ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized():
        from ray import serve

        serve.shutdown()
        ray.shutdown()


def worker_handle(kind: str) -> Any:
    """Serve's handle of the workers of a kind."""
    from ray import serve

    return serve.get_deployment_handle("worker", WORKER_APP + kind)


class ServeCluster:
    """The running cluster as the control loop sees it. Used inside a Serve replica."""

    def __init__(self, handle_of: Callable[[str], Any] = worker_handle) -> None:
        self._handle_of = handle_of
        self._handles: dict[str, Any] = {}
        self._described: dict[str, list[dict[str, str]]] = {}

    async def workers(self, kinds: Iterable[str]) -> list[WorkerAddress]:
        """All workers of these kinds that run now; what the cluster reports is the truth.

        A replica that has just died is left out: it shows up as missing until Serve replaces it.
        While one hangs, the answer is what was last known of its kind: the others still run.

        Raises:
            ClusterUnavailable: Serve's controller does not answer.
        """
        found: list[WorkerAddress] = []
        for kind in kinds:
            found += [WorkerAddress(**answer) for answer in await self._describe(kind)]
        return found

    async def _describe(self, kind: str) -> list[dict[str, str]]:
        from ray.exceptions import RayActorError
        from ray.serve.exceptions import RayServeException

        try:
            handle = self._handles.get(kind)
            if handle is None:
                handle = self._handles[kind] = self._handle_of(kind)
            answers = await handle.broadcast("describe").results_async(
                timeout_s=5, return_exceptions=True
            )
        except (RayActorError, RayServeException, TimeoutError) as error:
            if isinstance(error, TimeoutError) and kind in self._described:
                return self._described[kind]
            raise ClusterUnavailable(f"workers of {kind} cannot be listed: {error}") from error
        found = [answer for answer in answers if isinstance(answer, dict) and answer["address"]]
        self._described[kind] = found
        return found

    async def targets(self, kinds: Iterable[str]) -> dict[str, int]:
        """How many workers of each kind Serve was last told to run.

        Raises:
            ClusterUnavailable: Serve's controller does not answer.
        """
        from ray.exceptions import RayError
        from ray.serve.context import _get_global_client

        try:
            controller = _get_global_client()._controller
            details = await controller.get_serve_instance_details.remote()
        except RayError as error:
            raise ClusterUnavailable(f"Ray Serve does not answer: {_last_line(error)}") from error
        found: dict[str, int] = {}
        for kind in kinds:
            application = details["applications"].get(WORKER_APP + kind)
            if application is not None:
                found[kind] = application["deployments"]["worker"]["target_num_replicas"]
        return found

    async def scale(self, kind: str, count: int) -> None:
        """Tell Ray Serve how many workers of a kind to run: its lever for an outside planner.

        Raises:
            ClusterUnavailable: Serve's controller refused or did not answer.
        """
        from ray.exceptions import RayError
        from ray.serve._private.common import DeploymentID
        from ray.serve.context import _get_global_client

        deployment = DeploymentID(name="worker", app_name=WORKER_APP + kind)
        try:
            # What POST /api/v1/applications/{app}/deployments/{d}/scale calls; that route needs
            # Ray's dashboard, which a single machine runs without.
            controller = _get_global_client()._controller
            await controller.update_deployment_replicas.remote(deployment, count)
        except RayError as error:
            raise ClusterUnavailable(
                f"{kind} cannot be scaled to {count}: {_last_line(error)}"
            ) from error


def _last_line(error: Exception) -> str:
    """What happened, without the remote traceback that Ray puts before it."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
