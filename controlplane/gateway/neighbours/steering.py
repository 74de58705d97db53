"""Steering: to which of several sockets that share a port the kernel gives new connections.

It deals them out at random. A socket that is closed has those reset whose handshake is not complete
in that moment, or that came since the last of them was taken. So before that all are led to another
socket for a moment, by a program of the kernel's packet filter that names it by its place among
them (``SO_ATTACH_REUSEPORT_CBPF``, Linux 4.5). The places are nobody's to read, so a connection to
itself shows whether the first one is that which is to be closed.
"""

import asyncio
import ctypes
import socket
from contextlib import suppress

ATTACH, DETACH = 51, 68
"""``SO_ATTACH_REUSEPORT_CBPF`` and ``SO_DETACH_REUSEPORT_BPF``, for which Python has no names."""
RETURNS = 0x06
"""``BPF_RET | BPF_K``: the program's only instruction, which gives a constant."""
HANDSHAKE_S = 0.2
"""So long at most a handshake goes on that had begun before."""
PATIENCE_S = 1.0
"""How long a connection to itself may take to be seen; event loops may be full."""
LOOK_S = 0.005
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
ASKS = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jump_true", ctypes.c_uint8),
        ("jump_false", ctypes.c_uint8),
        ("constant", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("first", ctypes.POINTER(_Instruction)))


async def lead_away(leaving: socket.socket, own: socket.socket) -> list[socket.socket]:
    """Have new connections go to another socket than the one that is to be closed, and wait until
    those that had begun are there.

    Where that cannot be done, as on another kernel, nothing is different. ``let_go`` ends it.

    Args:
        own: another socket of the same port.

    Returns:
        The connections that were waiting at the one that is to be closed.
    """
    found: list[socket.socket] = []
    try:
        _lead(own, 0)
        if await _comes_to(leaving, found):
            _lead(own, 1)
        await asyncio.sleep(HANDSHAKE_S)
    except (OSError, TimeoutError):
        let_go(own)
    return found + accepted(leaving)


def let_go(own: socket.socket) -> None:
    """Have the kernel deal connections out at random, as before. This may be called at any time."""
    with suppress(OSError):  # there is no program
        own.setsockopt(socket.SOL_SOCKET, DETACH, 0)


def accepted(listening: socket.socket) -> list[socket.socket]:
    """All connections that wait at a socket."""
    found = []
    with suppress(OSError):  # none is left
        while True:
            found.append(listening.accept()[0])
    return found


def _lead(own: socket.socket, place: int) -> None:
    """Give all new connections to the socket at a place; where there is none, at random."""
    instruction = _Instruction(RETURNS, 0, 0, place)
    program = _Program(1, ctypes.pointer(instruction))
    own.setsockopt(socket.SOL_SOCKET, ATTACH, bytes(program))


async def _comes_to(leaving: socket.socket, found: list[socket.socket]) -> bool:
    """Whether a new connection comes to this socket.

    Args:
        found: gets all others that came there.

    Raises:
        TimeoutError: nobody has taken it for too long.
    """
    host, port = leaving.getsockname()[:2]
    with socket.socket(leaving.family, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().sock_connect(probe, (ANY.get(host, host), port))
            probe.send(ASKS)
            own_address = probe.getsockname()
            while True:
                for one in accepted(leaving):
                    if one.getpeername() == own_address:
                        one.close()
                        return True
                    found.append(one)
                if _is_answered(probe):
                    return False
                await asyncio.sleep(LOOK_S)


def _is_answered(connection: socket.socket) -> bool:
    """Whether somebody has taken a connection, and answered or ended it."""
    try:
        connection.recv(1)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True
