"""What a gateway counts of clients, their keys and their connections."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import time
from typing import NamedTuple, Self

from planner.types import Client


class ByOldKey(Client):
    """A client that presents its older key, while it changes to another one."""

    digest: str

    @classmethod
    def of(cls, client: Client, digest: str) -> Self:
        found = cls(*client)
        found.digest = digest
        return found


class OldKeyUse(NamedTuple):
    """How the older key of a client is used while the client changes to another one.

    Both are Unix times.
    """

    since_s: float
    """From when on this was looked at."""
    last_s: float = 0.0
    """When a query came with it last; 0 where none did."""

    def and_of(self, other: "OldKeyUse") -> "OldKeyUse":
        """The same of two gateways together."""
        return OldKeyUse(min(self.since_s, other.since_s), max(self.last_s, other.last_s))


@dataclass(slots=True)
class ClientCounters:
    """What was asked by one client, with whichever of its keys."""

    answered: int = 0
    refused: int = 0
    """Whatever the error was."""
    old_keys: dict[str, OldKeyUse] = field(default_factory=dict)
    """By the digest of a key that another one has come beside (``modelless keys rotate``)."""

    def has_old_key(self, digest: str) -> None:
        """From now on it is looked at whether a query comes with this one."""
        self.old_keys.setdefault(digest, OldKeyUse(time()))

    def asked_by_old_key(self, digest: str) -> None:
        """A query came with this one."""
        now_s = time()
        known = self.old_keys.get(digest)
        self.old_keys[digest] = OldKeyUse(now_s if known is None else known.since_s, now_s)

    def ended(self, *, answered: bool) -> None:
        """Count a query."""
        if answered:
            self.answered += 1
        else:
            self.refused += 1


class ConnectionCounters:
    """What became of clients' connections."""

    def __init__(self) -> None:
        self.refusals: dict[tuple[str, str], int] = {}
        """By protocol and code of the error."""
        self.ends: dict[str, int] = {}
        """By why the gateway ended them."""
        self.open: dict[str, Callable[[], int]] = {}
        """By protocol, what counts those that are open."""
        self.passed = 0
        """Those that went on at another gateway of the machine."""

    def went_on(self, count: int) -> None:
        """So many have been passed on to another gateway."""
        self.passed += count

    def refused(self, protocol: str, code: str) -> None:
        key = (protocol, code)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def ended(self, reason: str) -> None:
        self.ends[reason] = self.ends.get(reason, 0) + 1
