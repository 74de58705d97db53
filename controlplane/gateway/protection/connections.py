"""ConnectionCaps: how many connections there may be, in all and from one address.

A connection costs a file descriptor and some kilobytes of memory, and nothing has been asked over
it yet. Without a cap, whoever opens connections fast enough takes them from all others.
"""

import logging
import resource
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from controlplane.settings import Settings
from variants.errors import ModellessError, Overloaded, RateLimited
from variants.figures import counted

log = logging.getLogger(__name__)

PER_ADDRESS = 2_048
"""Connections of one address, where the settings do not say: more than any client library or
benchmark keeps open, and an eighth of what a gateway takes in all."""
OTHER_FILES = 512
"""File descriptors that are kept back for workers, the live state, the database and artifacts; half
of all where there are fewer than twice as many. Two workers take some 80."""
BACK_S = 1.0
"""When one too many may try again."""


class ConnectionCaps:
    """The connections of one protocol of one gateway.

    Attributes:
        most: in all.
        most_per_address: from one address, or one /64 of IPv6; ``None``: any number.
        spare_loopback: whether this machine's own addresses are only counted in all.
    """

    def __init__(
        self, most: int, most_per_address: int | None, *, spare_loopback: bool = False
    ) -> None:
        self.most = most
        self.most_per_address = most_per_address
        self.spare_loopback = spare_loopback
        self.open = 0
        self._by_address: dict[str, int] = {}

    @classmethod
    def of(cls, settings: Settings) -> "ConnectionCaps":
        """As the settings say, and as many as the process may have files.

        Behind a proxy all connections are the proxy's own, and on loopback those of whoever works
        on this machine: by default neither is capped by address.
        """
        most = min(settings.max_connections, files_allowed(settings.max_connections))
        given = settings.max_connections_per_address
        if given:
            return cls(most, given)
        per_address = None if settings.behind_tls_proxy else PER_ADDRESS
        return cls(most, per_address, spare_loopback=True)

    def alike(self) -> "ConnectionCaps":
        """The same limits, for another protocol."""
        return ConnectionCaps(self.most, self.most_per_address, spare_loopback=self.spare_loopback)

    def limit_of(self, address: str) -> int | None:
        """How many connections an address may have; ``None``: any number."""
        return None if self.spare_loopback and is_loopback(address) else self.most_per_address

    def enter(self, address: str) -> ModellessError | None:
        """Count a connection, or say why it is one too many.

        Args:
            address: of the client, an IP address; empty where there is none.
        """
        if self.open >= self.most:
            open_ = f"{counted(self.most, 'connection')} {'is' if self.most == 1 else 'are'} open"
            return _full(Overloaded(f"{open_}, which is all there may be"))
        key = network_of(address)
        count = self._by_address.get(key, 0)
        limit = self.limit_of(address)
        if limit is not None and count >= limit:
            return _full(RateLimited(too_many(limit)))
        self.open += 1
        self._by_address[key] = count + 1
        return None

    def have_room(self, addresses: Iterable[str]) -> bool:
        """Whether a connection more of each of these may be open, all at once."""
        more: Counter[str] = Counter()
        for address in addresses:
            key, limit = network_of(address), self.limit_of(address)
            more[key] += 1
            if limit is not None and self._by_address.get(key, 0) + more[key] > limit:
                return False
        return self.open + more.total() <= self.most

    def leave(self, address: str) -> None:
        """A connection that was counted has ended."""
        self.open -= 1
        key = network_of(address)
        left = self._by_address[key] - 1
        if left:
            self._by_address[key] = left
        else:
            del self._by_address[key]


def too_many(limit: int) -> str:
    """The sentence for an address that has as many connections as it may have."""
    return f"{limit} connections from this address are open, which is all it may have"


def _full(error: ModellessError) -> ModellessError:
    error.retry_after_s = BACK_S
    return error


def network_of(address: str) -> str:
    """What an address is counted by: itself; of IPv6 the /64, which is what one client is given."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else found.exploded[:19]


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine's own that others cannot use."""
    if address.startswith("127.") or address == "::1":
        return True
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return not address  # a Unix socket has none
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def files_allowed(
    wanted: int,
    limits: Callable[[], tuple[int, int]] = lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
    raise_to: Callable[[int, int], None] = lambda soft, hard: resource.setrlimit(
        resource.RLIMIT_NOFILE, (soft, hard)
    ),
) -> int:
    """How many connections the limit on open files leaves room for, once it is raised if it may be.

    Args:
        wanted: connections to have room for, of each protocol.
        limits: the soft and the hard limit of this process.
        raise_to: sets them.
    """
    soft, hard = limits()
    needed = 2 * wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < needed:
        top = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with suppress(OSError, ValueError):
            raise_to(top, hard)
            soft = top
    room = connections_within(soft, wanted)
    if room < wanted:
        log.warning(
            "%d open files are allowed (ulimit -n), so at most %d connections of HTTP and as many"
            " of gRPC are taken, not %d",
            soft, room, wanted,
        )  # fmt: skip
    return room


def connections_within(files: int, wanted: int) -> int:
    """For how many of the wanted connections, of each protocol, so many open files leave room."""
    return max(1, min(wanted, (files - min(OTHER_FILES, files // 2)) // 2))
