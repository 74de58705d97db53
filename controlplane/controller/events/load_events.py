"""What workers load and evict for queries, as events; many in a short time become one event.

The first occurrence of a kind, a worker and a variant becomes an event at once; those that follow
are counted, and become one event a minute. Workers keep what is not stored yet, so another
controller goes on where this one ended.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from controlplane.controller.events.status_events import StatusEvent
from workers.types import Occurrence, OccurrenceKind

TELL_EVERY_S = 60.0
GONE_KEPT = 100
"""So many workers that are gone are remembered: a connection may break and be made again."""

SeriesKey = tuple[OccurrenceKind, str, str]
"""What occurred, on which worker, and to which task/variant."""


@dataclass(slots=True)
class _Series:
    """Occurrences that are not told yet."""

    told_s: float = float("-inf")
    since_s: float = 0.0
    seqs: list[int] = field(default_factory=list)
    last: str = ""


class LoadEvents:
    """Counts occurrences until they are told, and says which are stored."""

    def __init__(self) -> None:
        self._series: dict[SeriesKey, _Series] = {}
        self._after: dict[str, int] = {}
        self._due: dict[str, list[int]] = {}
        self._stored: dict[str, list[int]] = {}

    def after(self, worker: str) -> int:
        """Number of the worker's newest occurrence that is known here."""
        return self._after.get(worker, 0)

    def told(self, worker: str) -> Collection[int]:
        """Numbers that the worker may forget."""
        return tuple(self._stored.get(worker, ()))

    def take(
        self,
        worker: str,
        occurrences: Iterable[Occurrence],
        acknowledged: Collection[int],
        now_s: float,
    ) -> None:
        """What a worker answered, after it was told to forget ``acknowledged``."""
        if acknowledged and worker in self._stored:
            done = set(acknowledged)
            self._stored[worker] = [seq for seq in self._stored[worker] if seq not in done]
        for one in occurrences:
            if one.seq <= self.after(worker):
                continue
            self._after[worker] = one.seq
            key = (one.kind, worker, f"{one.task}/{one.variant}")
            series = self._series.setdefault(key, _Series())
            if not series.seqs:
                series.since_s = now_s
            series.seqs.append(one.seq)
            series.last = one.why

    def due(self, here: Collection[str], now_s: float) -> Iterator[StatusEvent]:
        """What is to be told now; of workers that are gone, all that is left."""
        for key, series in tuple(self._series.items()):
            kind, worker, variant = key
            waits = worker in here and now_s - series.told_s < TELL_EVERY_S
            if series.seqs and not waits:
                count, for_s = len(series.seqs), now_s - series.since_s
                often = (
                    "" if count == 1 else f"{count} times within {max(1.0, for_s):,.0f} s, last "
                )
                yield kind.value, f"{variant} on {worker}", f"{often}{series.last}"
                self._due.setdefault(worker, []).extend(series.seqs)
                series.seqs, series.told_s = [], now_s
            elif not series.seqs and not waits:
                del self._series[key]
        gone = [worker for worker in self._after if worker not in here]
        for worker in gone[:-GONE_KEPT]:
            del self._after[worker]
            self._stored.pop(worker, None)

    def stored(self) -> None:
        """All that was due is stored for good."""
        for worker, seqs in self._due.items():
            self._stored.setdefault(worker, []).extend(seqs)
        self._due.clear()
