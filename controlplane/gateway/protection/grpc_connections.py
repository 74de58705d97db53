"""GrpcConnections: the caps on connections where gRPC's library holds the sockets.

It takes at most so many in all by itself, and says nothing of where they come from. So about once a
second, if there are enough files open for anybody to have too many, the process looks at its own
sockets. Who has more than it may gets its newest connections marked: calls on them are refused with
a sentence, and a second later they are shut down, as a connection without calls cannot be told.
"""

import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress

from controlplane.gateway.protection.connections import ConnectionCaps, network_of

FILES = "/proc/self/fd"
Peer = tuple[str, int]
"""Address and port of a client."""


class GrpcConnections:
    """The connections to one port of this process."""

    def __init__(self, caps: ConnectionCaps, port: int, refused: Callable[[], None]) -> None:
        """
        Args:
            refused: called for each connection that is shut down.
        """
        self.caps = caps
        self.open = 0
        self._port = port
        self._refused = refused
        self._since: dict[Peer, int] = {}
        self._sweep = 0
        self.marked: dict[Peer, int] = {}
        """Connections over the cap, and how many their address may have."""

    def look(self) -> None:
        """Shut down what was marked at the last look, mark what is too many now.

        It takes about 10 µs for each open file; meant for a thread.
        """
        sockets = _sockets_on(self._port)
        try:
            self._judge(sockets)
        finally:
            for own in sockets.values():
                own.close()

    def _judge(self, sockets: dict[Peer, socket.socket]) -> None:
        self._sweep += 1
        self.open = len(sockets)
        self._since = {peer: self._since.get(peer, self._sweep) for peer in sockets}
        for peer in self.marked.keys() & sockets.keys():
            self._shut(sockets[peer])
        kept = sockets.keys() - self.marked.keys()
        counts = Counter(network_of(address) for address, _ in kept)
        marked: dict[Peer, int] = {}
        over: defaultdict[str, list[Peer]] = defaultdict(list)
        for peer in kept:
            limit = self.caps.limit_of(peer[0])
            if limit is not None and counts[network_of(peer[0])] > limit:
                over[network_of(peer[0])].append(peer)
        for network, peers in over.items():
            limit = self.caps.limit_of(peers[0][0])
            assert limit is not None
            peers.sort(key=lambda peer: self._since[peer], reverse=True)
            marked.update(dict.fromkeys(peers[: counts[network] - limit], limit))
        self.marked = marked

    def _shut(self, own: socket.socket) -> None:
        with suppress(OSError):  # it may have gone
            own.shutdown(socket.SHUT_RDWR)
            self._refused()

    def worth_a_look(self) -> bool:
        """Whether so many files are open that somebody may have too many connections."""
        least = self.caps.most_per_address
        return bool(self.marked) or (least is not None and open_files() > least)

    def limit_over(self, peer: str) -> int | None:
        """The cap that a call's connection is over, if it is.

        Args:
            peer: as gRPC names it: ``ipv4:127.0.0.1:50312`` or ``ipv6:%5B::1%5D:50312``.
        """
        if not self.marked:
            return None
        kind, _, rest = peer.partition(":")
        host, _, port = rest.rpartition(":")
        if kind not in ("ipv4", "ipv6") or not port.isdigit():
            return None
        host = host.replace("%5B", "").replace("%5D", "").strip("[]").replace("%25", "%")
        return self.marked.get((host, int(port)))


def open_files() -> int:
    """How many files this process has open, or more."""
    found = os.stat(FILES).st_size  # of Linux 6.2 and later
    return found or len(os.listdir(FILES))


def _sockets_on(port: int) -> dict[Peer, socket.socket]:
    """Own handles of this process' connections to a port, by who is at the other end.

    A handle is a copy: the library may close its own meanwhile, and its number may be another
    file's by then.
    """
    found: dict[Peer, socket.socket] = {}
    for name in os.listdir(FILES):
        try:
            if not os.readlink(f"{FILES}/{name}").startswith("socket:"):
                continue
            own = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # it has gone
            continue
        try:
            mine = own.family in (socket.AF_INET, socket.AF_INET6) and own.getsockname()[1] == port
            peer = own.getpeername() if mine else None
        except OSError:  # it listens
            peer = None
        if peer is None:
            own.close()
        else:
            # The library listens on IPv6, where an address of IPv4 has a prefix.
            found[str(peer[0]).removeprefix("::ffff:"), int(peer[1])] = own
    return found
