"""Worker starts: which device kinds wait for their first worker, and when it may be expected; and
how long before it is needed another worker has to be ordered."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from variants.types import CatalogSnapshot, DeviceKindName, TaskName

START_MS = 6_000.0
"""How long a worker takes to start, where no start was seen: a Ray actor takes about five seconds
until it listens, and gateways hear of it within the next one."""
LEAST_START_MS = 1_000.0
"""A shorter absence was no start of a process: a connection broke and was made again."""
MOST_START_MS = 60_000.0
"""A longer start had to wait for a machine, which says nothing of the next start. No client is told
to wait for longer than this."""
OVERDUE_MS = 1_000.0
"""Least time that a start is expected to take from now on."""
MOST_ORDER_S = 900.0
"""A worker that took longer from its order waited for something that no other will wait for."""
CAUTION = 1.5
"""On what starting and loading took before: the next may take longer. The first guess, 6 s, was 4 s
live at a load of 13 on two cores; with it and the ticks the worker came 7 to 8 s early."""
MOST_LEAD_S = 3_600.0
"""Nothing is ordered longer before it is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Workers of a kind are wanted and none is there."""

    since_ms: float
    """On the clock of ``now_ms``."""
    usual_ms: float = START_MS
    """What a start took before."""

    def remaining_ms(self, now_ms: float) -> float:
        """How long it is expected to take from now on.

        A start that is overdue is expected to last about as much longer as it is overdue by now,
        which is the usual estimate for something of unknown duration.
        """
        overdue_ms = self.overdue_ms(now_ms)
        return min(max(-overdue_ms, overdue_ms, OVERDUE_MS), MOST_START_MS)

    def overdue_ms(self, now_ms: float) -> float:
        """By how much it takes longer than the usual start; negative: it does not yet."""
        return now_ms - self.since_ms - self.usual_ms

    def again_ms(self, now_ms: float) -> float:
        """When to ask again: one that is overdue may come at any moment, or is tried anew."""
        return min(self.remaining_ms(now_ms), max(self.usual_ms, OVERDUE_MS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which workers should run, as far as a gateway knows."""

    counts: Mapping[DeviceKindName, int] | None = None
    """By kind; None: not known."""
    starting: Mapping[DeviceKindName, Start] = field(default_factory=dict)
    """Kinds of which some are wanted and none is there."""
    listed: bool = True
    """Whether the live state says where the workers are; False: it did not answer."""
    ending: bool = False
    """Whether everything is being stopped: no worker that is missing will come."""
    failed: frozenset[DeviceKindName] = frozenset()
    """Kinds whose workers were tried to be started and do not start."""

    def kinds(self) -> list[DeviceKindName]:
        """The device kinds of which at least one worker should run."""
        return sorted(kind for kind, count in (self.counts or {}).items() if count > 0)

    def first_ms(self, kinds: Iterable[DeviceKindName], now_ms: float) -> float:
        """Time in ms until the first worker of any of these kinds is expected."""
        return min((one.remaining_ms(now_ms) for one in self._of(kinds)), default=START_MS)

    def again_ms(self, kinds: Iterable[DeviceKindName], now_ms: float) -> float:
        """Time in ms until it is worth to ask for one of them again."""
        return min((one.again_ms(now_ms) for one in self._of(kinds)), default=START_MS)

    def overdue_ms(self, kinds: Iterable[DeviceKindName], now_ms: float) -> float:
        """By how much the first of them is overdue; not above 0: it is not."""
        return min((one.overdue_ms(now_ms) for one in self._of(kinds)), default=0.0)

    def _of(self, kinds: Iterable[DeviceKindName]) -> list[Start]:
        return [self.starting[kind] for kind in kinds if kind in self.starting]


class Starts:
    """Learns from what a gateway sees how long the first worker of a kind takes to start."""

    def __init__(self) -> None:
        self._begun: dict[DeviceKindName, tuple[float, bool]] = {}
        """Since when a wanted kind has no worker, and whether that is known to be the beginning."""
        self._seen: set[DeviceKindName] = set()
        """Kinds that were wanted or present at an earlier look."""
        self._usual_ms: dict[DeviceKindName, float] = {}

    def see(
        self,
        counts: Mapping[DeviceKindName, int],
        present: Collection[DeviceKindName],
        now_ms: float,
    ) -> Mapping[DeviceKindName, Start]:
        """Take in which workers are wanted and which kinds are there; return what is starting."""
        for kind in {*counts, *present, *self._begun}:
            if counts.get(kind, 0) > 0 and kind not in present:
                # Where a kind is absent at the first look, it is not known since when.
                self._begun.setdefault(kind, (now_ms, kind in self._seen))
            elif (begun := self._begun.pop(kind, None)) is not None and kind in present:
                self._learn(kind, now_ms - begun[0] if begun[1] else 0.0)
            self._seen.add(kind)
        return {
            kind: Start(since_ms=since_ms, usual_ms=self._usual_ms.get(kind, START_MS))
            for kind, (since_ms, _) in sorted(self._begun.items())
        }

    def _learn(self, kind: DeviceKindName, took_ms: float) -> None:
        if LEAST_START_MS <= took_ms <= MOST_START_MS:
            before_ms = self._usual_ms.get(kind, took_ms)
            self._usual_ms[kind] = (before_ms + took_ms) / 2


class OrderTimes:
    """Learns from what a controller sees how long workers take from their order until they serve.

    Slow starts are remembered: an estimate rises at once and falls by halves.
    """

    def __init__(self, usual_s: Mapping[DeviceKindName, float] | None = None) -> None:
        """Go on from what another one learned."""
        self.usual_s: dict[DeviceKindName, float] = dict(usual_s or {})
        """By kind; kinds of which no order was seen through are missing."""
        self._wanted: dict[DeviceKindName, int] = {}
        self._ordered_s: dict[DeviceKindName, float] = {}

    def see(
        self,
        wanted: Mapping[DeviceKindName, int],
        present: Mapping[DeviceKindName, int],
        now_s: float,
    ) -> None:
        """Take in how many workers of each kind are ordered, and how many are there."""
        for kind, count in wanted.items():
            before = self._wanted.get(kind)
            if before is not None and count > before:
                self._ordered_s.setdefault(kind, now_s)
            elif before is not None and count < before:
                self._ordered_s.pop(kind, None)
            if present.get(kind, 0) >= count and kind in self._ordered_s:
                took_s = now_s - self._ordered_s.pop(kind)
                if took_s <= MOST_ORDER_S:
                    known_s = self.usual_s.get(kind, took_s)
                    self.usual_s[kind] = max(took_s, (known_s + took_s) / 2)
            self._wanted[kind] = count

    def longest_s(self, kinds: Iterable[DeviceKindName]) -> float:
        """What to allow for an order of any of these kinds; ``START_MS`` where nothing is known."""
        return max((self.usual_s.get(kind, START_MS / 1_000) for kind in kinds), default=0.0)


def lead_s(start_s: float, load_s: float, tick_s: float) -> float:
    """How long before it is needed a worker has to be ordered.

    Args:
        start_s: from its order until it can load; 0 where the workers are there already.
        load_s: what it loads then, one after the other.
        tick_s: between two decisions. One has to see the need, and the next one the worker.
    """
    return min(CAUTION * (start_s + load_s) + 3.0 * tick_s, MOST_LEAD_S)


def loading_s(catalog: CatalogSnapshot) -> float:
    """How long a worker loads that takes one variant of each task, the slowest to load."""
    slowest: dict[TaskName, float] = {}
    for profile in catalog.profiles:
        load_s = max(profile.load_s, profile.cold_load_s or 0.0)
        slowest[profile.task] = max(load_s, slowest.get(profile.task, 0.0))
    return sum(slowest.values())
