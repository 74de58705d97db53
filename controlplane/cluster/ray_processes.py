"""Ray's own processes: started or joined, found, and left. Ray is imported on use."""

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from controlplane.cluster.control_store import ControlStoreWatch
from controlplane.cluster.one_machine.single_machine import bare_ray
from controlplane.cluster.one_machine.spare_room import keep
from controlplane.cluster.one_machine.template_process import TemplateProcess
from controlplane.cluster.patience import patience
from controlplane.settings import Settings
from variants.errors import ClusterUnavailable

TOKEN_FILE = "ray.token"  # noqa: S105 - a file name
"""In the state directory: the token of Ray, its own or that of the cluster."""
REACH_S = 30.0
"""How long nothing may listen at the address of a cluster that is joined."""
SHUTDOWN_S = 60.0
"""How long Serve may take to end its applications; it gives their queries 30 s."""
PROBE_S = 2.0
"""How long a cluster may take to say whether it knows a token; then Ray itself tries."""

LOGS = {
    # Each of Ray's processes prints what it has counted: once a minute, that is 8 MiB an hour.
    "RAY_event_stats_print_interval_ms": str(3600 * 1000),
    # Of each file; and five older ones. Ray's own 512 MiB would be 3 GiB for each process.
    "RAY_ROTATION_MAX_BYTES": str(64 * 2**20),
}
"""What keeps the logs of one machine small, unless the environment says otherwise."""

PRELOADED = ("workers.process.streams", "controlplane.cluster.bare_serve")
SELDOM_NODES = "controlplane.cluster.one_machine.seldom_nodes"
"""What each of Ray's workers imports first, and what on one machine."""

SELDOM = {
    # Each replica and each handle adds to Ray's counters 10 times a second; nobody reads them here.
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "60000",
    # The raylet looks after its object store 10 times a second each: whether objects are to be
    # fetched, whether its disk is full, whether Python should collect. It holds next to nothing.
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_local_fs_monitor_interval_ms": "10000",
    "RAY_raylet_check_gc_period_milliseconds": "1000",
    # And 5 times a second whether a process has nothing to do, which is none here.
    "RAY_kill_idle_workers_interval_ms": "1000",
    # The control store asks the raylet what waits for room, for an autoscaler, which is not there.
    "RAY_gcs_pull_resource_loads_period_milliseconds": "60000",
}
"""What Ray's processes do many times a second that one machine needs seldom, unless the environment
says otherwise."""


def ray_environment(settings: Settings) -> dict[str, str]:
    """What has to stand in the environment before Ray is imported.

    Token authentication is on, with a token of this installation, or on a cluster with the one that
    the environment names for it. On one machine Ray is told not to
    expect a cluster, which makes it bind loopback only: ``ray.init`` has no argument for that and
    replaces a loopback address by a reachable one.
    """
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_path(settings)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_LOG_TO_STDERR": "0",
        "RAY_DEDUP_LOGS": "0",
        # Ray runs its workers at nice 15; these answer queries.
        "RAY_worker_niceness": "0",
        # Else all processes end a minute after Ray's control store died, and queries with them.
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(24 * 3600),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # A full disk must not keep Ray's processes from starting, and none needs pandas.
        "RAY_preload_python_modules": ",".join(PRELOADED),
    }
    if not settings.ray_address:
        environment["RAY_preload_python_modules"] = ",".join((*PRELOADED, SELDOM_NODES))
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        # Serve's controller looks at everything ten times a second, which takes 3 % of a core.
        environment["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] = "0.25"
        # Ray's dashboard, for which these are, is not there.
        environment["RAY_task_events_report_interval_ms"] = "0"
        # Else ``ray.init`` waits for the first process of a worker, for ever and deaf to signals
        # where these crash or hang.
        environment["RAY_prestart_worker_first_driver"] = "0"
        ours = LOGS | SELDOM
        environment |= {name: os.environ.get(name, value) for name, value in ours.items()}
    return environment


def token_path(settings: Settings) -> Path:
    """The file with Ray's token: where the environment says, of a cluster that others started."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH") if settings.ray_address else None
    return Path(named).expanduser() if named else settings.state_dir / TOKEN_FILE


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
            f" there for {REACH_S:.0f} s; is MODELLESS_RAY_ADDRESS that of `ray start --head`?"
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


def head_address(settings: Settings) -> tuple[str, int] | None:
    """Where the control store of the named cluster listens; None where the name is no address."""
    host, _, port = settings.ray_address.rpartition(":")
    if "://" in settings.ray_address or not host or not port.isdigit():
        return None
    return host.strip("[]"), int(port)


def answers_in_time(settings: Settings, patience_s: float = REACH_S) -> bool:
    """Whether something listens at the address of the cluster, or comes to within the patience.

    Ray itself would try again for as long as queries may go on without a control store: a day.
    """
    where = head_address(settings)
    deadline = time.monotonic() + patience_s
    while where is not None and not answers(where):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def refuses_token(settings: Settings) -> bool:
    """Whether what listens at the cluster's address says that it knows no such token.

    Ray itself says nothing but that it tries again, for a third of a minute.
    """
    import grpc

    if head_address(settings) is None:
        return False
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    with contextlib.suppress(OSError, UnicodeDecodeError):
        token = token or token_path(settings).read_text().strip()
    with grpc.insecure_channel(settings.ray_address) as channel:
        ask = channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")
        try:
            ask(b"", timeout=PROBE_S, metadata=(("authorization", f"Bearer {token}"),))
        except grpc.RpcError as error:
            return bool(error.code() is grpc.StatusCode.UNAUTHENTICATED)
    return False


def not_joined(settings: Settings, error: Exception) -> str:
    """Why the cluster that the settings name was not joined, and what to look at.

    Ray's own error is the same for a cluster that is not there and for one that refuses.
    """
    words = f"the Ray cluster at {settings.ray_address} could not be joined: {error}"
    where = head_address(settings)
    if where is None:
        return words
    if not answers(where):
        return f"{words}; nothing listens there: is it the address of `ray start --head`?"
    return (
        f"{words}; something listens there: look whether Ray was started there with the token in"
        f" {token_path(settings)} (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN_PATH), and with"
        " the same version of Ray"
    )


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


class RayletWatch:
    """Whether the raylet of this machine has ended. It is held by one connection, which ends with
    it: of each that comes and goes it writes a line into its log."""

    def __init__(self, path: str) -> None:
        """
        Args:
            path: of its Unix socket.
        """
        self._path = path
        self._held: socket.socket | None = None

    def has_ended(self) -> bool:
        if self._held is not None:
            try:
                if self._held.recv(1):
                    return False
            except BlockingIOError:
                return False
            except OSError:
                pass
            self.close()
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.settimeout(1.0)
        try:
            probe.connect(self._path)
        except OSError as error:
            probe.close()
            # A connection that waits to be taken is a raylet that is busy.
            return not isinstance(error, TimeoutError)
        probe.setblocking(False)
        self._held = probe
        return False

    def close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def answers(where: tuple[str, int], patience_s: float = 1.0) -> bool:
    """Whether anything listens at an address."""
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(patience_s)
        try:
            probe.connect(where)
        except OSError:
            return False
    return True


def ray_dir(settings: Settings) -> Path:
    """Where Ray keeps sockets and logs.

    Ray puts Unix sockets about 60 characters below it and they must stay under 107, and it writes
    paths in ASCII. So a state directory with a long path, or with other characters in it, gets a
    short neighbour under ``/tmp``, named after it.
    """
    inside = settings.run_dir / "ray"
    if len(str(inside)) <= 40 and str(inside).isascii():
        return inside
    from hashlib import blake2b

    tag = blake2b(os.fsencode(settings.state_dir.resolve()), digest_size=6).hexdigest()
    return Path(f"/tmp/modelless-{os.getuid()}-{tag}")  # noqa: S108


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
                with patience(SHUTDOWN_S):
                    serve.shutdown()
        finally:
            ray.shutdown()
