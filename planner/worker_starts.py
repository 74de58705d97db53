"""Worker starts: which device kinds wait for their first worker, and when it may be expected."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from variants.types import DeviceKindName

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
        left_ms = self.since_ms + self.usual_ms - now_ms
        return min(max(left_ms, -left_ms, OVERDUE_MS), MOST_START_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which workers should run, as far as a gateway knows."""

    counts: Mapping[DeviceKindName, int] | None = None
    """By kind; None: not known."""
    starting: Mapping[DeviceKindName, Start] = field(default_factory=dict)
    """Kinds of which some are wanted and none is there."""
    listed: bool = True
    """Whether the live state says where the workers are; False: it did not answer."""

    def kinds(self) -> list[DeviceKindName]:
        """The device kinds of which at least one worker should run."""
        return sorted(kind for kind, count in (self.counts or {}).items() if count > 0)

    def first_ms(self, kinds: Iterable[DeviceKindName], now_ms: float) -> float:
        """Time in ms until the first worker of any of these kinds is expected."""
        starts = (self.starting[kind] for kind in kinds if kind in self.starting)
        return min((start.remaining_ms(now_ms) for start in starts), default=START_MS)


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
