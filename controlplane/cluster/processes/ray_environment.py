"""What Ray's processes are told by the environment, and where they keep what is theirs.

Nothing here imports Ray: its settings have to stand before that.
"""

import os
from pathlib import Path

from controlplane.settings import Settings

TOKEN_FILE = "ray.token"  # noqa: S105 - a file name
"""In the state directory: the token of Ray, its own or that of the cluster."""

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

MEMORY = {
    # Where a machine's memory is 95 % full, whoever took it, Ray would end gateways, control loop
    # and workers, all at once (docs/decisions/0028-faults.md).
    "RAY_memory_monitor_refresh_ms": "0",
    # And it would have the kernel end these before all others, whatever they take. So the process
    # that takes most goes, and before it whatever tries a foreign model (``profiler.sandbox``).
    "RAY_worker_oom_score_adjustment": "0",
}
"""Who ends where the memory of one machine is short: unless the environment says otherwise, that is
for the kernel."""

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
        ours = LOGS | MEMORY | SELDOM
        environment |= {name: os.environ.get(name, value) for name, value in ours.items()}
    return environment


def token_path(settings: Settings) -> Path:
    """The file with Ray's token: where the environment says, of a cluster that others started."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH") if settings.ray_address else None
    return Path(named).expanduser() if named else settings.state_dir / TOKEN_FILE


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
