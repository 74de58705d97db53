"""Listening: the gateway's socket. Apart from the gateway, for those that only try an address."""

import errno
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.settings import Settings

BACKLOG = 2_048
"""Connections that the kernel keeps until they are taken. With the event loop's own 100, who comes
with more than that at once waits a second for his next try, because the kernel drops the first."""


CONNECT_S = 0.5


def somebody_listens(host: str, port: int) -> bool:
    """Whether another gateway answers on the port already."""
    try:
        with socket.create_connection((host, port), CONNECT_S):
            return True
    except OSError:
        return False


def other_place(error: OSError, port: str) -> str:
    """What to do where ``bind`` failed: it is not the port that is wrong with an address that no
    interface has, or a name that nobody knows.

    Args:
        port: how another port is chosen.
    """
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return "set MODELLESS_HOST to an address of this machine"
    return f"choose another port with {port}"


class Kept(Exception):
    """Another installation of this user has an address, or is starting and will have it."""


def keep(host: str, port: int) -> socket.socket:
    """Keep an address for one installation, until what is returned is closed or its process ends.

    Gateways share their port, so the kernel lets those of two installations share it, too: who asks
    then gets the answers of either. The name is an abstract one, which no file stands for: only
    processes that see the same ports see it.

    Raises:
        Kept: another installation keeps it.
    """
    keeping = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        keeping.bind(f"\0modelless of {os.getuid()} at {host[:60]}:{port}")
    except OSError as error:
        keeping.close()
        raise Kept(f"another installation that runs, or starts, has {host}:{port}") from error
    return keeping


def bind(
    settings: "Settings", *, alone: bool = False, port: int = 0, listen: bool = True
) -> socket.socket:
    """A listening socket for the gateway; with ``alone``, one that does not share the port.

    Args:
        port: another one than that for HTTP.
        listen: False to see whether the address is free, and take no connection from others.

    Raises:
        OSError: the address is taken or is not ours.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not alone:
            # Also a single gateway: while one that hangs is being stopped, its successor answers.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host, port or settings.port))
        if listen:
            listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
