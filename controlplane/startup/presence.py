"""The state file: what a running ``modelless up`` writes down about itself.

It holds a lock for as long as it lives, so what a killed one wrote is never taken for true. A
service manager that started it is told as well.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import orjson

from controlplane.settings import SECRETS, Settings
from variants.errors import InvalidInput

TOLD = (
    "url", "host", "port", "grpc_port", "cores", "workers", "slices", "tls_cert", "ray_address",
)  # fmt: skip
"""Settings that a ``modelless up`` may have been told on its own command line, or by an environment
that is gone. One of an earlier version has not written down all of them."""


def base_url(settings: Settings, node: str = "127.0.0.1") -> str:
    """Where the gateway is reached that runs on this node, by default on this machine."""
    return settings.url_at(node)


def state_path(settings: Settings) -> Path:
    """What a ``modelless up`` writes down about itself."""
    return settings.run_dir / "up.json"


def lock_path(settings: Settings) -> Path:
    """What a ``modelless up`` holds locked for as long as it lives."""
    return settings.run_dir / "up.lock"


def ready_path(settings: Settings) -> Path:
    """What is there, with the process in it, once a ``modelless up`` serves."""
    return settings.run_dir / "ready"


def write_state(
    settings: Settings, pid: int, processes: set[tuple[int, float]], url: str = "", ray: str = ""
) -> None:
    """Write down this process and the processes that it started, atomically.

    Args:
        ray: the address of the Ray that it has joined or started.
    """
    state = {
        "pid": pid,
        "url": url or base_url(settings),
        "host": settings.host,
        "port": settings.port,
        "grpc_port": settings.grpc_port,
        "cores": settings.cores,
        "workers": settings.workers,
        "slices": settings.slices,
        "tls_cert": settings.tls_cert,
        "ray_address": settings.ray_address,
        "ray": ray,
        "secrets": secret_digests(settings),
        "processes": sorted(processes),
    }
    path = state_path(settings)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(orjson.dumps(state))
    fresh.replace(path)


def secret_digests(settings: Settings) -> dict[str, str]:
    """Digests of the secret settings, by which one can tell whether they are others now; none
    before the channel's secret, which keys them, is there."""
    from workers.channel.secret import digest

    try:
        secret = settings.secret_path.read_bytes()
    except OSError:
        return {}
    return {name: digest(secret, name, getattr(settings, name)) for name in SECRETS}


def read_state(settings: Settings) -> dict[str, object] | None:
    """What the running ``modelless up`` wrote, if there is any."""
    try:
        state = orjson.loads(state_path(settings).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    known = isinstance(state, dict) and {"pid", "url", "processes"} <= state.keys()
    return state if known else None


def running(settings: Settings) -> dict[str, object] | None:
    """State of a live ``modelless up`` on this state directory, or None.

    Raises:
        InvalidInput: it is another user's, so that nobody can tell.
    """
    try:
        with _opened(lock_path(settings)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_state(settings)
    except PermissionError as error:
        raise InvalidInput(
            f"{settings.run_dir} cannot be looked into: {error.strerror}; run this as the user of"
            " the installation, or set MODELLESS_STATE_DIR"
        ) from error
    except OSError:
        return None
    return None


def _opened(path: Path) -> IO[str]:
    """The file of the lock; a disk that became read-only keeps nobody from looking at it."""
    try:
        return path.open("a+")
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return path.open()


def is_serving(settings: Settings, state: Mapping[str, object]) -> bool:
    """Whether a live ``modelless up`` has begun to serve: before, it trains, measures and loads."""
    try:
        return ready_path(settings).read_text() == str(state["pid"])
    except OSError:
        return False


def tell_service_manager(told: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell systemd, or who speaks as it does, how it stands: ``READY=1``, ``STOPPING=1``.

    Who wants to hear it has set ``NOTIFY_SOCKET``, the address of a Unix socket for datagrams, with
    an ``@`` in front where it has no file (``man sd_notify``). Whoever does not listen any more is
    not told.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(told.encode(), address)


def where_it_is(settings: Settings, state: Mapping[str, object] | None) -> str:
    """What a live ``modelless up`` does, as the beginning of a sentence."""
    if state is None:
        return "modelless is already running, or a backup is being restored"
    pid = state["pid"]
    if is_serving(settings, state):
        return f"modelless is already running at {state['url']} (process {pid})"
    return (
        f"modelless is starting (process {pid}): it trains, measures or loads, and answers once it"
        " says that it is ready"
    )


def already_running(settings: Settings, state: Mapping[str, object] | None) -> str:
    """Why another one cannot be started, and what can be done instead."""
    instead = "`modelless down` stops it"
    if state is None or is_serving(settings, state):
        instead = (
            f"`modelless upgrade` replaces what runs by what is installed and set now, {instead}"
        )
    return f"{where_it_is(settings, state)}; {instead}"


def as_running(settings: Settings) -> Settings:
    """The settings with what a live ``modelless up`` was told on its own command line.

    Its addresses, how it slices this machine, and the cluster that it has joined; without one they
    stay as they are. Where MODELLESS_URL names a gateway, that is asked all the same, and commands
    that work on the state directory measure for what runs on that.
    """
    state = running(settings)
    if state is None:
        return settings
    told = as_told(settings, state)
    return told.model_copy(update={"url": settings.url}) if settings.url else told


def as_told(settings: Settings, state: dict[str, object]) -> Settings:
    """The settings with those that stand in the state of a live ``modelless up``."""
    return settings.model_copy(update={name: state[name] for name in TOLD if name in state})
