"""Doubtful profiles: which variants are checked, because what queries get depends on their profile.

Latencies are learned from batches that run. A variant whose profile says far more than it takes
answers nobody, so nothing is learned, and it goes on answering nobody. So where a variant is ready
on a worker, has run nothing there lately, and queries are refused or go elsewhere for the sake of
its profile, the worker is to run a few batches of it (``workers.execution.lone_batches``).

*When.* Where queries are refused, or lose an answer that it could give, because it is too slow: at
once; on a worker that is not calm only if a batch holds up nobody for long. What no correction
could make quick enough is at stake for nobody: else any deadline would have anything checked. Where
another variant answers that may be dearer: after a minute, and on a calm worker only. A profile
that was measured beside other work is checked on a calm worker even if nobody asks for it. What
takes as long as was believed is left alone for a minute, then for two, up to an hour, and always
for ``SPARED`` times as long as the check took. Batches of queries are as good as a check.
Deterministic; knows no clock.
"""

from collections.abc import Iterable, Mapping
from math import exp, inf
from typing import NamedTuple

from planner.reconcile.corrections.correction import FARTHEST
from planner.selection.eligibility import LATENCY, profile_rule
from planner.types import Demand, ProfileKey, ReplicaKey, Snapshot
from variants.types import DeviceKindName, WorkerId

FIRST_S, MOST_S = 60.0, 3_600.0
"""How long what was confirmed is believed at first, and at most."""
SPARED = 100.0
"""Part of a worker's time that checks of one variant may take, as its inverse."""
CALM = 0.5
"""A worker that computes for less than this part of the time is calm."""

DISTURBS = 0.5
"""A batch that is believed to take more than this part of the tightest deadline that its worker
serves is run on a calm worker only."""


class Stake(NamedTuple):
    """What depends on a profile, in rows per second."""

    refused_qps: float = 0.0
    """Rows that are refused: by its profile it is too slow for them, and so is every other."""
    passed_qps: float = 0.0
    """Rows that go elsewhere: by its profile it is too slow for them, and others are not."""
    open_qps: float = 0.0
    """Rows that it may answer, as others may."""
    tightest_ms: float = inf
    """The tightest deadline of those that it may answer."""

    @property
    def urgent(self) -> bool:
        """Whether queries are refused, or lose their better answer, because it is too slow."""
        return self.refused_qps > 0.0 or self.passed_qps > 0.0


NONE = Stake()


def stakes(snapshot: Snapshot, demand: Iterable[Demand]) -> dict[ProfileKey, Stake]:
    """What depends on each profile, of the tasks that are asked for."""
    found: dict[ProfileKey, Stake] = {}
    for asked in demand:
        view = snapshot.tasks.get(asked.task)
        if view is None or asked.qps <= 0.0:
            continue
        rule = profile_rule(_as_tight(asked), snapshot.transport_ms)
        judged = [(candidate, rule(candidate)) for candidate in view.by_cost]
        left_ms = asked.tightest_ms - snapshot.transport_ms
        answered = any(obstacle is None for _, obstacle in judged)
        for candidate, obstacle in judged:
            if obstacle is not None and obstacle is not LATENCY:
                continue
            key = (candidate.task, candidate.variant, candidate.device_kind)
            refused, passed, open_, tightest_ms = found.get(key, NONE)
            if obstacle is None:
                open_ += asked.qps
                tightest_ms = min(tightest_ms, asked.tightest_ms)
            elif candidate.table.ms[1] > left_ms * exp(FARTHEST):
                continue  # no correction goes so far
            elif answered:
                passed += asked.qps
            else:
                refused += asked.qps
            found[key] = Stake(refused, passed, open_, tightest_ms)
    return found


def _as_tight(asked: Demand) -> Demand:
    """The class by the tightest deadline that was seen in it."""
    return Demand(
        task=asked.task, latency_ms=asked.tightest_ms, accuracy=asked.accuracy, qps=asked.qps,
        variant=asked.variant,
    )  # fmt: skip


class Held(NamedTuple):
    """A variant that is ready on a worker, as the worker says."""

    replica: ReplicaKey
    kind: DeviceKindName
    mark: str
    """The profile's identity: when it was measured."""
    batches: int
    """That ran since it was loaded, or since the worker was told of the profile."""
    busy_ratio: float
    """Of the worker."""
    beside_load: bool = False
    """Whether the profile was measured beside other work."""
    lone_ms: float = 0.0
    """What a lone row takes there, by the batches that ran or else by the profile."""
    load_no: int = 0
    """Of the loads of that worker, the one by which it is there."""

    @property
    def profile(self) -> ProfileKey:
        return (self.replica[1], self.replica[2], self.kind)


class _Known:
    """Of one replica."""

    __slots__ = ("batches", "believed_s", "confirmed_s", "load_no", "mark", "met_s", "told")

    def __init__(self, held: Held, now_s: float) -> None:
        self.mark = held.mark
        self.load_no = held.load_no
        self.told = held.batches
        """Batches by the latest report."""
        self.batches = held.batches
        """The same, or more where a check has said so since."""
        self.met_s = now_s
        self.confirmed_s = now_s if held.batches else -inf
        """When a batch last ran."""
        self.believed_s = FIRST_S
        """How long that counts."""

    def is_of_before(self, held: Held) -> bool:
        """Whether it was loaded, or its profile measured, again since.

        A report that is older than a check has fewer batches than the check, and never fewer than
        the report before it.
        """
        measured_again = self.mark != held.mark or held.batches < self.told
        return measured_again or self.load_no != held.load_no


class DoubtfulProfiles:
    """The doubtful profiles of all replicas that are ready."""

    def __init__(self) -> None:
        self._known: dict[ReplicaKey, _Known] = {}
        self._held: tuple[Held, ...] = ()

    def look(self, now_s: float, held: Iterable[Held]) -> None:
        """Take in what all workers say; ``now_s`` ascends from call to call."""
        self._held = tuple(held)
        known, self._known = self._known, {}
        for each in self._held:
            one = known.get(each.replica)
            if one is None or one.is_of_before(each):
                one = _Known(each, now_s)
            elif each.batches > one.batches:
                one.batches, one.confirmed_s = each.batches, now_s
            one.told = each.batches
            self._known[each.replica] = one

    def doubted(self, now_s: float) -> list[Held]:
        """Replicas of which no batch has run lately."""
        return [
            each
            for each in self._held
            if now_s - (one := self._known[each.replica]).confirmed_s >= one.believed_s
        ]

    def due(
        self,
        now_s: float,
        believed: Mapping[ProfileKey, Stake],
        as_measured: Mapping[ProfileKey, Stake],
    ) -> list[tuple[Held, Stake]]:
        """What is to be checked and what depends on it, the most pressing first.

        Args:
            believed: what depends on profiles as live latency has them.
            as_measured: the same by the profiles themselves, which are all that a worker knows of
                what it has not run.
        """
        found: list[tuple[Stake, Held]] = []
        tightest_ms: dict[WorkerId, float] = {}
        for each in self._held:
            worker, of_it = each.replica[0], believed.get(each.profile, NONE)
            tightest_ms[worker] = min(tightest_ms.get(worker, inf), of_it.tightest_ms)
        for each in self.doubted(now_s):
            stake = (believed if each.batches else as_measured).get(each.profile, NONE)
            settled = now_s - self._known[each.replica].met_s >= FIRST_S
            may_wait = each.beside_load or stake.open_qps > 0.0
            calm = each.busy_ratio < CALM
            disturbs = each.lone_ms > DISTURBS * tightest_ms[each.replica[0]]
            if (stake.urgent and (calm or not disturbs)) or (may_wait and settled and calm):
                found.append((stake, each))
        found.sort(key=lambda one: (*(-qps for qps in one[0][:3]), one[1].replica))
        return [(each, stake) for stake, each in found]

    def checked(
        self, replica: ReplicaKey, now_s: float, *, total: int, took_s: float, agrees: bool | None
    ) -> None:
        """A check is over.

        Args:
            total: batches that the worker counts by now, as in ``Held.batches``.
            took_s: what those of the check took together.
            agrees: whether they took what was believed, or more; None where they were too few to
                tell.
        """
        one = self._known.get(replica)
        if one is not None:
            one.confirmed_s = now_s
            one.batches = max(one.batches, total)
            if agrees is not None:
                one.believed_s = min(2.0 * one.believed_s, MOST_S) if agrees else FIRST_S
            one.believed_s = max(one.believed_s, SPARED * took_s)
