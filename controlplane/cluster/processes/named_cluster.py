"""The Ray cluster that the settings name: whether it is there, and lets this installation in.

It is not joined for that.
"""

import contextlib
import os
import socket
import time

from controlplane.cluster.processes.ray_environment import token_path
from controlplane.settings import Settings

REACH_S = 30.0
"""How long nothing may listen at the address of a cluster that is joined."""
PROBE_S = 2.0
"""How long a cluster may take to say whether it knows a token; then Ray itself tries."""


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
