"""Slow workers: those that take much longer than others of their kind get no queries for a while.

A neighbour on the machine, a throttled core, a failing disk: a worker may be slowed while others of
its kind are not. What it admits it still answers in time, but later than they would, so those that
hold the same variants answer instead. It stays loaded and ready. After a while it is asked again,
and if it is slow still, then twice as long is waited: the queries of that moment are the probe.
One that was slow has to be clearly quicker (``QUICK``) to be as good as the others again: means of
a few answers move by a third, and a worker near the bound would come and go every few seconds.
One that is quick when it is asked again and slow soon after is slow off and on, as where
neighbours take turns: until it has been quick for ``CALM_S``, the pauses go on growing, and all of
it is one ``Episode``.

Where the others are busy nobody is spared, because half a worker is more than none; and where more
workers of a kind are slow than are not, it is the kind that is slow, which live correction knows
(``planner.reconcile.live_corrections``). Deterministic; knows no clock.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Mapping, Sequence
from math import ceil, exp, inf, log, log2
from typing import NamedTuple

from planner.steps import finish
from variants.types import DeviceKindName, VariantKey, WorkerId

SLOW = 2.0
"""So many times as long as the others: less is what neighbours on one machine do to each other."""
QUICK = 1.5
"""Below so many times as long as the others one that was slow is as good as they are again."""
FORGOTTEN_S = 300.0
"""One that was slow and was not judged for so long, as nobody asked, is not known to be slow."""
CALM_S = 64.0
"""One that was slow and has been as quick as the others for so long is slow no more: what comes
after that is another episode, and it is spared as briefly as at first."""
LEAST_MS = 1.0
"""Less than this per batch is nobody's loss."""
ANSWERS = 8
"""Least new answers to judge by; a worker's model needs four batches to follow a change."""
MOST_BUSY = 0.7
"""Share of its time that each of the others may be busy, in the mean, while one is spared, with
what they do in its place."""
FIRST_S, MOST_S = 4.0, 64.0
"""For how long a slow worker is spared at first, and at most."""
MOST_DOUBLED = ceil(log2(MOST_S / FIRST_S))
"""After so many pauses they grow no more: a worker may be slow for days."""


Latency = Sequence[tuple[int, float, float]]
"""Size of batch, mean in ms and 95th percentile in ms, each size once."""


class WorkerTimes(NamedTuple):
    """What one worker says of its batches."""

    worker: WorkerId
    kind: DeviceKindName
    answers: int
    """That it gave, of those that are counted."""
    busy_ratio: float
    """Share of its time, lately."""
    beyond_ms: float
    """What its answers take beyond their time there (``planner.types.WorkerView``)."""
    latency: Mapping[VariantKey, Latency]
    """Of each variant."""


class Episode(NamedTuple):
    """From when a worker was found to be slow until it was as quick as the others for a while."""

    times: float
    """As long as the others it took at first, or, once it is over, at most."""
    lasted_s: float
    """Until it was quick for good, or not asked any more; 0 as long as that is not known."""
    pauses: int
    """How often queries were kept from it."""
    paused_s: float
    """For how long, in all of these pauses together."""


class _Known:
    """Of one worker."""

    __slots__ = (
        "answers", "began_s", "most_times", "paused_s", "pauses", "quick_s", "strikes",
        "times", "told", "until_s",
    )  # fmt: skip

    def __init__(self, answers: int) -> None:
        self.answers = answers
        """When it was judged last."""
        self.until_s = 0.0
        """Until then it is spared."""
        self.strikes = 0
        """How often it was found to be slow in this episode; 0 outside of one."""
        self.times = 1.0
        """As long as the others, when it was found to be slow."""
        self.quick_s = inf
        """Since then it is as quick as the others; infinite while it is slow."""
        self.told = False
        """Whether others know of the episode: what follows is of it."""
        self.began_s = self.paused_s = 0.0
        self.pauses, self.most_times = 0, 1.0

    def is_slow(self, now_s: float) -> bool:
        """Whether it was found to be slow, and not quick since: spared, or asked again."""
        return self.strikes > 0 and self.quick_s == inf and now_s < self.until_s + FORGOTTEN_S

    def begin(self, now_s: float, *, spared: bool) -> Episode:
        """Others hear of the episode; ``spared``: it has begun to be spared before."""
        self.told, self.began_s, self.most_times = True, now_s, self.times
        self.pauses, self.paused_s = int(spared), 0.0
        return Episode(self.times, 0.0, 0, 0.0)

    def end(self, now_s: float) -> Episode | None:
        """The episode, if it is over now and others know of it."""
        calm = now_s >= self.quick_s + CALM_S
        if not self.strikes or self.is_slow(now_s) or not (calm or self.quick_s == inf):
            return None
        lasted_s = min(self.quick_s, now_s) - self.began_s
        over = Episode(self.most_times, lasted_s, self.pauses, self.paused_s)
        told, self.told, self.strikes, self.quick_s = self.told, False, 0, inf
        return over if told else None


class SlowWorkers:
    """The workers that queries are kept from, of those that one gateway is connected to."""

    def __init__(self) -> None:
        self._known: dict[WorkerId, _Known] = {}
        self.spared: dict[WorkerId, float] = {}
        """Workers that get no queries, and how many times as long as the others they took."""
        self.slow: dict[WorkerId, float] = {}
        """All that are slow: those, and those that get queries because they are asked again, or
        because the others are busy."""
        self.begun: dict[WorkerId, Episode] = {}
        """Episodes that began at the last look."""
        self.ended: dict[WorkerId, Episode] = {}
        """Episodes that were over by the last look."""
        self._looked_s = 0.0

    def look(self, now_s: float, reports: Iterable[WorkerTimes]) -> bool:
        """Take in what all workers that are there say; whether ``spared`` has changed.

        ``now_s`` ascends from call to call.
        """
        return finish(self.looking(now_s, reports))

    def looking(self, now_s: float, reports: Iterable[WorkerTimes]) -> Generator[None, None, bool]:
        """The same in steps, each of which compares one worker; ``spared`` changes in the last.

        Whoever takes them may do something else in between, but does not begin to look again.
        """
        kinds: dict[DeviceKindName, list[WorkerTimes]] = {}
        for each in reports:
            kinds.setdefault(each.kind, []).append(each)
        there = {each.worker for of_kind in kinds.values() for each in of_kind}
        self._known = {worker: one for worker, one in self._known.items() if worker in there}
        spared: dict[WorkerId, float] = {}
        found: dict[WorkerId, float] = {}
        for of_kind in kinds.values():
            usual = UsualTimes(of_kind)
            slow: set[WorkerId] = set()
            slow_since: dict[WorkerId, float] = {}
            for each in of_kind:
                known = self._known.setdefault(each.worker, _Known(each.answers))
                if now_s >= known.until_s and self._is_due(known, each.answers):
                    yield
                    self._judge(now_s, known, slowness(each, usual))
                if now_s < known.until_s:
                    known.answers = each.answers
                    slow.add(each.worker)
                if known.is_slow(now_s):
                    slow_since[each.worker] = known.times
            if 2 * len(slow_since) <= len(of_kind):  # else it is the kind
                found.update(slow_since)
            others = [each.busy_ratio for each in of_kind if each.worker not in slow]
            # What the slow ones do now takes the others as much less time.
            moved = sum(
                each.busy_ratio / self._known[each.worker].times
                for each in of_kind
                if each.worker in slow
            )
            if len(slow) <= len(others) and sum(others) + moved <= MOST_BUSY * len(others):
                spared.update({worker: self._known[worker].times for worker in slow})
        changed = spared.keys() != self.spared.keys()
        self._tell(now_s, spared, found)
        self.spared, self.slow = spared, found
        return changed

    def _tell(
        self, now_s: float, spared: Mapping[WorkerId, float], found: Mapping[WorkerId, float]
    ) -> None:
        """Note which episodes have begun and ended since the last look, and count in the others."""
        self.begun, self.ended = {}, {}
        for worker, known in self._known.items():
            if worker in found and not known.told:
                self.begun[worker] = known.begin(now_s, spared=worker in self.spared)
            if worker in found:
                known.most_times = max(known.most_times, known.times)
            if worker in self.spared:
                known.paused_s += now_s - self._looked_s
            elif worker in spared:
                known.pauses += 1
            over = known.end(now_s)
            if over is not None:
                self.ended[worker] = over
        self._looked_s = now_s

    def _is_due(self, known: _Known, answers: int) -> bool:
        """Whether a worker has given enough answers since it was judged last."""
        fresh = answers - known.answers
        if fresh < 0 or fresh >= ANSWERS:  # it began anew, or it is judged now
            known.answers = answers
        return fresh >= ANSWERS

    def _judge(self, now_s: float, known: _Known, times: float) -> None:
        """Spare a worker for a while if it takes so many times as long as the others."""
        if times < (QUICK if known.is_slow(now_s) else SLOW):
            if known.strikes and known.quick_s == inf:
                known.quick_s = now_s
            return
        pause_s = MOST_S if known.strikes > MOST_DOUBLED else FIRST_S * 2.0**known.strikes
        known.until_s = now_s + min(pause_s, MOST_S)
        known.strikes += 1
        known.times, known.quick_s = times, inf


class UsualTimes:
    """What the workers of one kind take, in order, so that one can be compared with all others.

    Ordered only where somebody is compared, and then once for all.
    """

    def __init__(self, of_kind: Sequence[WorkerTimes]) -> None:
        self._of_kind = of_kind
        self._beyond_ms: list[float] = []
        self._held: dict[VariantKey, list[Latency]] = {}
        self._means_ms: dict[VariantKey, dict[int, list[float]]] = {}

    def beyond_ms(self, own_ms: float) -> float:
        """The others' median without one's own; 0 where there are no others."""
        if not self._beyond_ms:
            self._beyond_ms = sorted([each.beyond_ms for each in self._of_kind])
        return _median_without(self._beyond_ms, own_ms)

    def means_ms(self, variant: VariantKey) -> Mapping[int, list[float]]:
        """By size of batch, the means of all that ran it, ascending."""
        found = self._means_ms.get(variant)
        if found is None:
            found = self._means_ms[variant] = {}
            for latency in self._holding(variant):
                for size, mean_ms, _ in latency:
                    found.setdefault(size, []).append(mean_ms)
            for means_ms in found.values():
                means_ms.sort()
        return found

    def _holding(self, variant: VariantKey) -> list[Latency]:
        if not self._held:
            for each in self._of_kind:
                for held, latency in each.latency.items():
                    self._held.setdefault(held, []).append(latency)
        return self._held[variant]


def slowness(report: WorkerTimes, usual: UsualTimes) -> float:
    """How many times as long as the others a worker takes, in the geometric mean of what both ran.

    What counts is what an answer takes. A worker whose process is kept from running does not know
    of that, because its clock of a batch stands still as well. 1 where there is nothing to compare,
    or where an answer takes hardly longer.

    Args:
        usual: what all workers of its kind take, its own times among them.
    """
    own_beyond_ms = max(report.beyond_ms, 0.0)
    beyond_ms = max(usual.beyond_ms(report.beyond_ms), 0.0)
    logs: list[float] = []
    most_ms = 0.0
    for variant, latency in report.latency.items():
        means_ms = usual.means_ms(variant)
        for size, mean_ms, _ in latency:
            if len(means_ms[size]) > 1:
                usual_ms = _median_without(means_ms[size], mean_ms) + beyond_ms
                own_ms = mean_ms + own_beyond_ms
                logs.append(log(own_ms / usual_ms))
                most_ms = max(most_ms, own_ms - usual_ms)
    if not logs or most_ms < LEAST_MS:
        return 1.0
    return exp(sum(logs) / len(logs))


def _median_without(ascending: list[float], one: float) -> float:
    """The median of all numbers but one of them; 0 where there is no other."""
    rest = len(ascending) - 1
    if not rest:
        return 0.0
    at, half = bisect_left(ascending, one), rest // 2
    upper = ascending[half + (half >= at)]
    if rest % 2:
        return upper
    return (ascending[half - 1 + (half > at)] + upper) / 2
