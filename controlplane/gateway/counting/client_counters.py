"""What a gateway counts of clients, their keys and their connections."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, NamedTuple, Self

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
    """How an older key is used while its owner changes to another one.

    Both times are Unix times.
    """

    since_s: float
    """From when on this was looked at."""
    last_s: float = 0.0
    """When a request came with it last; 0 where none did."""
    requests: int = 0
    """How many came with it."""

    def and_of(self, other: "OldKeyUse") -> "OldKeyUse":
        """The same of two gateways together."""
        return OldKeyUse(
            min(self.since_s, other.since_s),
            max(self.last_s, other.last_s),
            self.requests + other.requests,
        )


class OldKeys:
    """How keys are used that others have come beside (``modelless keys rotate``), by digest."""

    def __init__(self) -> None:
        self.uses: dict[str, OldKeyUse] = {}

    def has(self, digest: str) -> None:
        """From now on it is looked at whether a request comes with this one."""
        self.uses.setdefault(digest, OldKeyUse(time()))

    def came(self, digest: str) -> None:
        """A request came with this one."""
        now_s = time()
        known = self.uses.get(digest) or OldKeyUse(now_s)
        self.uses[digest] = OldKeyUse(known.since_s, now_s, known.requests + 1)

    def plain(self) -> dict[str, Any]:
        """For ``add``. Builds that do not count requests read pairs of times."""
        uses = list(self.uses.items())
        return {
            "old_keys": {digest: list(use[:2]) for digest, use in uses},
            "old_key_requests": {digest: use.requests for digest, use in uses},
        }

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what another gateway has seen, as ``plain`` gave it, also by way of JSON."""
        requests = told.get("old_key_requests", {})
        for digest, (since_s, last_s) in told.get("old_keys", {}).items():
            use, known = OldKeyUse(since_s, last_s, requests.get(digest, 0)), self.uses.get(digest)
            self.uses[digest] = use if known is None else use.and_of(known)


@dataclass(slots=True)
class ClientCounters:
    """What was asked by one client, with whichever of its keys."""

    answered: int = 0
    refused: int = 0
    """Whatever the error was."""
    old_keys: OldKeys = field(default_factory=OldKeys)

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
