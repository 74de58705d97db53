"""The order of refusal: who is refused first where not all can be served.

1. Whose client takes more than the share of its key (``Client.weight`` among those that ask),
2. then whose task takes more than its share (``planner.batching.fairness``),
3. then who has the lower priority,
4. then who has the latest deadline.

The first three are the ``Standing`` of a query. Where room is short it decides at once
(``planner.batching.queue_room``). Where time is short nobody is given up who was promised to be in
time; but while somebody was refused lately whom more room would have helped, a query that stands
behind him may wait for the first half of its slack only, so that the other half is free for who
stands before it
(``planner.batching.deadline_queue`` in a worker, and the gateway's query path).

While all queries are one client's, all of this is a comparison of a query's client with that one.
"""

from collections.abc import Iterable
from math import exp, inf

from planner.batching.fairness import ACTIVE_MS, EXCESS
from planner.batching.variant_queues import DECAY_MS
from planner.types import Client

STAYS_MS = 10_000.0
"""For so long after one was refused those above the share of their key are held back: so much
rarer is the refusal that shows that they have to be."""
FRESH_MS, FRESH_MS_PER_CLIENT = 10.0, 0.1
"""For so long it is not looked anew who is above his share: at least, and for each that asks."""
FORGOTTEN_MS = 60_000.0
"""Who has not asked for so long is not counted any more."""

Standing = tuple[bool, bool, int]
"""Whether a query's client is above its share; its task; its priority, 1 is the highest. The
greater, the sooner it is refused."""


class ClientShare:
    """A client at one slice, or one gateway: what it may use and has used."""

    __slots__ = ("_stamp_ms", "_used_ms", "seen_ms", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.seen_ms = -inf
        """When a query of it last came."""
        self._used_ms = self._stamp_ms = 0.0

    def used_ms(self, now_ms: float) -> float:
        """Time of the device that it used, older time counting less."""
        return self._used_ms * exp(min(0.0, self._stamp_ms - now_ms) / DECAY_MS)

    def use(self, ms: float, now_ms: float) -> None:
        self._used_ms, self._stamp_ms = self.used_ms(now_ms) + ms, now_ms


class ClientShares:
    """The clients of one slice, or of one gateway. Deterministic; knows no clock."""

    __slots__ = ("_looked_ms", "_over", "_shares", "_swept_ms", "only")

    def __init__(self) -> None:
        self.only: Client | None = None
        """The one whose queries are all there have been; None where several have asked."""
        self._shares: dict[str, ClientShare] = {}
        self._over: frozenset[str] = frozenset()
        self._looked_ms = self._swept_ms = -inf

    def saw(self, client: Client, now_ms: float) -> None:
        """A query of a client has come. Nothing is missed where it is ``only``."""
        share = self._shares.get(client.name)
        if share is None:
            share = self._shares[client.name] = ClientShare(client.weight)
        share.weight = client.weight
        share.seen_ms = now_ms
        if now_ms >= self._swept_ms + FORGOTTEN_MS:
            self._swept_ms = now_ms
            for name, each in [*self._shares.items()]:
                if now_ms - each.seen_ms > FORGOTTEN_MS:
                    del self._shares[name]
        self.only = client if len(self._shares) == 1 else None

    def use(self, client: Client, ms: float, now_ms: float) -> None:
        """Count time of the device for a client; needed only where there are ``several``."""
        share = self._shares.get(client.name)
        if share is not None:
            share.use(ms, now_ms)

    def is_over(self, client: Client, now_ms: float) -> bool:
        """Whether a client uses more than its share; False where no other one asks."""
        if len(self._shares) < 2:
            return False
        fresh_ms = max(FRESH_MS, FRESH_MS_PER_CLIENT * len(self._shares))
        if not 0.0 <= now_ms - self._looked_ms < fresh_ms:
            self._looked_ms = now_ms
            self._over = frozenset(self._above(now_ms))
        return client.name in self._over

    def _above(self, now_ms: float) -> Iterable[str]:
        active = {
            name: share.used_ms(now_ms)
            for name, share in self._shares.items()
            if now_ms - share.seen_ms <= ACTIVE_MS
        }
        if len(active) < 2:
            return
        weights = sum(self._shares[name].weight for name in active)
        unit_ms = EXCESS * sum(active.values()) / weights
        for name, used_ms in active.items():
            if used_ms > self._shares[name].weight * unit_ms:
                yield name


class LatelyRefused:
    """Who was refused for want of time lately: of these, the one who is to be refused last."""

    __slots__ = ("_at_ms", "_best", "priority")

    def __init__(self) -> None:
        self._best: Standing = (False, False, 2**31)
        self._at_ms = -inf
        self.priority = 2**31
        """His priority: a query within all shares, and of none that is lower, is not behind him."""

    def add(self, standing: Standing, now_ms: float) -> None:
        """A query was refused."""
        if standing == self._best:
            self._at_ms = now_ms
            return
        since_ms = now_ms - self._at_ms
        if standing > self._best:
            if since_ms <= ACTIVE_MS:
                return
            if standing[0] and not self._best[0] and since_ms <= STAYS_MS:
                return  # whoever is above his share goes on standing behind the one who is not
        self._best, self.priority, self._at_ms = standing, standing[2], now_ms

    def is_fresh(self, now_ms: float) -> bool:
        """Whether somebody was refused a moment ago."""
        return now_ms - self._at_ms <= ACTIVE_MS

    def is_before(self, standing: Standing, now_ms: float) -> bool:
        """Whether somebody was refused lately who stands before such a query."""
        if standing <= self._best:
            return False
        since_ms = now_ms - self._at_ms
        return since_ms <= ACTIVE_MS or (standing[0] and not self._best[0] and since_ms <= STAYS_MS)
