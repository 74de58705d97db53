"""Ray's own processes: started or joined, found, and left. Ray is imported on use."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from controlplane.cluster.one_machine.single_machine import bare_ray
from controlplane.cluster.one_machine.spare_room import keep
from controlplane.cluster.one_machine.template_process import TemplateProcess
from controlplane.cluster.patience import patience
from controlplane.cluster.processes.control_store import ControlStoreWatch
from controlplane.cluster.processes.named_cluster import (
    REACH_S,
    answers,
    answers_in_time,
    not_joined,
    refuses_token,
)
from controlplane.cluster.processes.ray_environment import ray_dir, ray_environment, token_path
from controlplane.settings import Settings
from variants.errors import ClusterUnavailable

SHUTDOWN_S = 60.0
"""How long Serve may take to end its applications; it gives their queries 30 s."""


def worker_template(settings: Settings) -> TemplateProcess | None:
    """What Ray's workers on this machine will be forked from, importing from now on. None on a
    cluster, where others start Ray, and where it cannot be started: Ray then starts each by itself.
    """
    if settings.ray_address or not settings.fork_workers:
        return None
    template = TemplateProcess(ray_dir(settings))
    try:
        template.start({**os.environ, **ray_environment(settings)})
    except OSError:
        return None
    return template


def start_ray(settings: Settings, template: TemplateProcess | None = None) -> list[int]:
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
    settings = found(settings)
    if settings.ray_address and not answers_in_time(settings):
        raise ClusterUnavailable(
            f"the Ray cluster at {settings.ray_address} could not be joined: nothing has listened"
            f" there for {REACH_S:,.0f} s; is MODELLESS_RAY_ADDRESS that of `ray start --head`?"
        )
    if settings.ray_address and refuses_token(settings):
        raise ClusterUnavailable(
            f"the Ray cluster at {settings.ray_address} refuses the token in"
            f" {token_path(settings)}; RAY_AUTH_TOKEN_PATH names the file with another one"
        )
    quiet: dict[str, Any] = {
        "logging_level": "ERROR",
        "log_to_driver": False,
        "namespace": "modelless",
        "job_config": installed_code(),
    }
    try:
        if settings.ray_address:
            with sigterm_kept():
                ray.init(address=settings.ray_address, **quiet)
            return []
        with bare_ray(template), sigterm_kept():
            ray.init(
                address="local",
                num_cpus=settings.all_cores + settings.spare_cores,
                num_gpus=settings.all_gpus,
                include_dashboard=False,
                # Nothing large travels through Ray's object store.
                object_store_memory=80 * 2**20,
                _temp_dir=str(ray_dir(settings)),
                **quiet,
            )
            keep(settings.spare_cores, settings.all_cores)
    except Exception as error:
        if settings.ray_address:
            raise ClusterUnavailable(not_joined(settings, error)) from error
        raise ClusterUnavailable(f"Ray could not be started on this machine: {error}") from error
    # Only now: Ray's processes import the same at the same time.
    import controlplane.cluster.bare_serve  # noqa: F401

    node = worker._global_node
    return [info.process.pid for group in node.all_processes.values() for info in group]


def installed_code() -> Any:
    """What keeps Ray's processes from importing what lies in the folder where a command was typed.

    Ray has them look there first, before what is installed: a folder ``workers`` of somebody else's
    would be taken for ours. It leaves that out for jobs of its client.
    """
    from ray.job_config import JobConfig

    return JobConfig(_client_job=True)


@contextlib.contextmanager
def sigterm_kept() -> Iterator[None]:
    """While ``ray.init`` runs in this context, SIGTERM stays with whom it belonged to.

    Ray would take it twice: at first to exit with 15, and then its core for a handler that prints a
    trace and aborts, so that what was started is left. So it waits until the core is connected, in
    this thread and in those that Ray starts; processes that are started do not inherit that.
    """
    import ray._raylet
    from ray._private import services, utils

    handler, made, started = (
        signal.getsignal(signal.SIGTERM),
        ray._raylet.CoreWorker,
        services.ConsolePopen,
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def core(*given: Any, **named: Any) -> Any:
        try:
            return made(*given, **named)
        finally:
            signal.signal(signal.SIGTERM, handler)

    def process(*given: Any, **named: Any) -> Any:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            return started(*given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    try:
        with (
            patch.object(utils, utils.set_sigterm_handler.__name__, lambda _: None),
            patch.object(services, "ConsolePopen", process),
            patch.object(ray._raylet, "CoreWorker", core),
        ):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def found(settings: Settings) -> Settings:
    """The settings, with the address that ``auto`` leads to in its place.

    Ray looks for what runs on this machine, or goes by what was noted of the last cluster there,
    which may be gone.

    Raises:
        ClusterUnavailable: there is none.
    """
    if settings.ray_address != "auto":
        return settings
    from ray._private.services import canonicalize_bootstrap_address

    try:
        address = canonicalize_bootstrap_address("auto")
    except ConnectionError as error:
        raise ClusterUnavailable(
            "no Ray runs on this machine, where MODELLESS_RAY_ADDRESS=auto looks for one;"
            " start it with `ray start`, or set the address of its head"
        ) from error
    return settings.model_copy(update={"ray_address": address or settings.ray_address})


def joined_ray() -> str:
    """The address under which other processes of this machine join the same Ray."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def join_ray(settings: Settings, address: str) -> None:
    """Join the Ray of a running installation, beside the process that started it.

    Raises:
        ClusterUnavailable: it cannot be reached.
    """
    os.environ.update(ray_environment(settings))
    import ray
    from ray import serve  # noqa: F401, which sets its logger up

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    try:
        ray.init(
            address=address, namespace="modelless", logging_level="ERROR", log_to_driver=False,
            job_config=installed_code(),
        )  # fmt: skip
    except Exception as error:
        raise ClusterUnavailable(f"Ray at {address} cannot be joined: {error}") from error


def control_store() -> tuple[str, int]:
    """Where Ray's control store (GCS) listens; it knows the nodes, the actors and Serve's state."""
    import ray

    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    return host.strip("[]"), int(port)


def watch_control_store(settings: Settings) -> ControlStoreWatch:
    """Eyes on the control store of the Ray that this process is connected to."""
    where = control_store()
    return ControlStoreWatch(
        f"{where[0]}:{where[1]}",
        on_cluster=bool(settings.ray_address),
        answers=lambda: answers(where),
    )


def raylet_socket() -> str:
    """The Unix socket of the raylet on this machine, on which the process that joined Ray hangs."""
    from ray._private import worker

    return str(worker._global_node.raylet_socket_name)


def logs_place(settings: Settings) -> str:
    """Where Ray's logs and those of the replicas are, for a sentence that ends with it."""
    if not settings.ray_address:
        return str(ray_dir(settings) / "session_latest" / "logs")
    worker = sys.modules.get("ray._private.worker")
    node = getattr(worker, "_global_node", None)
    if node is None:  # over Ray's client, or not connected any more
        return "Ray's session folder on each node (`ray logs cluster` lists them)"
    return f"{node.get_logs_dir_path()} on each node"


def stop_ray(*, serving: bool) -> None:
    """End the Serve applications (workers drain) and leave or stop Ray. For the main thread.

    Args:
        serving: whether there are applications. Where Serve's controller never began, what ends
            them waits for it.

    Raises:
        TimeoutError: Serve does not answer; Ray is left or stopped all the same.
    """
    ray = sys.modules.get("ray")
    # An interrupted import leaves a module without content, or none.
    if ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized():
        from ray import serve

        # Without it there is nothing to end them by, and the call would wait for hours.
        try:
            if serving and answers(control_store()):
                # It says in its own form that nothing was deployed yet.
                logging.getLogger("ray.serve").setLevel(logging.ERROR)
                with patience(SHUTDOWN_S):
                    serve.shutdown()
        finally:
            ray.shutdown()
