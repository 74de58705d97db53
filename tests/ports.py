"""Ports for servers that a test starts."""

import socket
from random import SystemRandom

FIRST, LAST = 20_000, 32_767
"""Below 32,768 the kernel of Linux gives none to connections and to servers that let it choose
(``net.ipv4.ip_local_port_range``): what it gives may be taken again before the server that it was
meant for is up, which takes a whole deployment half a minute. Below 20,000 are the ports of Ray's
workers (10,002 to 19,999) and of well-known services."""
_RANDOM = SystemRandom()
"""A test that sets a seed shall not have all processes draw the same ports."""
_drawn: set[int] = set()


def free_port() -> int:
    """A port on which nothing listens, which this process was not given before and which hardly any
    other test draws."""
    while True:
        port = _RANDOM.randint(FIRST, LAST)
        if port in _drawn:  # maybe for HTTP, and now for gRPC of the same server
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _drawn.add(port)
        return port
