"""Memory that is short, as simulated workers see it: who leaves for whom, and what that costs.

The decisions are ``planner.eviction``'s, as in ``workers.execution.room``. One book of what is
asked for serves all devices, and is told when it matters instead of with each query.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import overload

from planner.eviction.displacement import Ladder, Place, Rung, ladder, rungs_of
from planner.eviction.expected import all_expected_qps, learned_qps
from planner.eviction.query_rates import QueryRates
from planner.eviction.rules import (
    LEAST_LOAD_S,
    LEAST_MIB,
    MOST_LOAD_S,
    VIOLATION_S,
    Resident,
    loss_s,
)
from planner.eviction.victims import (
    MIN_RESIDENCY_S,
    PROTECTED_LOADS,
    room_for,
    turn_gain,
    victims,
    worth,
)
from planner.simulation.fleet import Replica, Worker
from planner.simulation.setting import Setting
from planner.types import Candidate
from variants.types import ReplicaState, VariantKey

_READY, _UNLOADING = ReplicaState.READY, ReplicaState.UNLOADING
REPORT_MS = 1_000.0
"""How old what a worker says of itself may be, unless something was loaded or has left."""


class Memories:
    """The memories of all devices under one eviction rule.

    Args:
        rule: a name in ``planner.eviction.registry.RULES``.
        asked: what queries ask for.
        weighs: whether a load that a query asks for has to be worth what leaves for it, as in the
            product; otherwise every load that a policy asks for evicts.
        min_residency_s: 0 where loads take no time.
    """

    def __init__(
        self,
        rule: str,
        asked: QueryRates[VariantKey],
        *,
        weighs: bool,
        min_residency_s: float = MIN_RESIDENCY_S,
    ) -> None:
        self._rule = rule
        self._weighs = weighs and rule == "modelless"
        self._min_residency_s = min_residency_s
        self._asked = asked
        self._learned = _Learned(asked)
        self.urgency = asked.urgency
        self.asked = asked.query
        """A query asks for a variant."""

    def missed(self, key: VariantKey, *, waits: bool) -> None:
        """A query asks for a variant that is not ready, and waits for its load or cannot."""
        self.asked(key)
        self.urgency.missed(key, waits=waits)

    def learned_qps(self, key: VariantKey, now_s: float) -> float:
        """Queries per second that ask for a variant, from those that came."""
        self._asked.tell(now_s)
        return learned_qps(self._asked, (key,), now_s)[0]

    def report(self, workers: Iterable[Worker], now_ms: float, *, heard: bool = True) -> None:
        """What has to be said now and then: what is asked for, and how fast memories turn over.

        What was learned of each replica is only said where it is ``heard``: ticks read it, and the
        last report before one replaces those before it.
        """
        now_s = now_ms / 1_000
        self._asked.tell(now_s)
        for worker in workers:
            worker.view.churn_per_s = worker.churn.per_s(now_s)
            if not heard or not worker.replicas:
                continue
            learned = self._learned.of(worker.replicas, now_s)
            for replica, (rate, urgent) in zip(worker.replicas.values(), learned, strict=True):
                replica.rate_qps, replica.urgent = rate, urgent

    def to_evict(
        self,
        worker: Worker,
        candidate: Candidate,
        now_ms: float,
        *,
        waiting: bool | None,
        patience_ms: float = 0.0,
    ) -> tuple[VariantKey, ...] | None:
        """What has to leave a worker so that a variant has room, if that is possible and worth it.

        What is loading or in use stays. The caller evicts them. ``lfu`` and ``gdsf`` count the
        queries since the load, the one that it was for included (Cherkasova 1998, section 3).

        Args:
            waiting: whether the query that asks for it waits for the load; None: no query does.
            patience_ms: how much later than now it may begin, for the query that waits.
        """
        need_mib = candidate.memory_mib
        if need_mib > worker.kind.memory_mib:
            return None
        short_mib = need_mib - worker.free_mib
        key = (candidate.task, candidate.variant)
        self._asked.tell(now_ms / 1_000)
        if short_mib <= 0.0:
            return ()
        residents, now_s = self._residents(worker, now_ms), now_ms / 1_000
        if waiting is not None and self._weighs:
            leave = room_for(
                self._newcomer(key, candidate, now_s), residents, short_mib, now_s,
                waiting=waiting, patience_s=patience_ms / 1_000,
                min_residency_s=self._min_residency_s,
            )  # fmt: skip
        else:
            leave = victims(
                residents, short_mib, now_s, self._rule, min_residency_s=self._min_residency_s
            )
        gone = [each for each in residents if each.key in (leave or ())]
        if self._rule == "gdsf":
            values = [worth(each, self._rule) for each in gone]
            worker.inflation = max(worker.inflation, *values, 0.0)
        if gone:
            worker.churn.evicted(sum(each.memory_mib for each in gone), now_s)
            worker.view.churn_per_s = worker.churn.per_s(now_s)
        return leave

    def by_gain(
        self, worker: Worker, wished: Iterable[Candidate], now_ms: float
    ) -> list[Candidate]:
        """Loads that wait for their turn on a worker, in the order in which it comes: as they came,
        and under our own rule what brings most first."""
        waiting = list(wished)
        if not self._weighs or len(waiting) < 2:
            return waiting
        self._asked.tell(now_ms / 1_000)
        residents, free_mib = self._residents(worker, now_ms), worker.free_mib

        def gain(candidate: Candidate) -> float:
            key = (candidate.task, candidate.variant)
            newcomer = self._newcomer(key, candidate, now_ms / 1_000)
            return turn_gain(newcomer, residents, candidate.memory_mib - free_mib)

        return sorted(waiting, key=gain, reverse=True)

    def ladder(self, worker: Worker, now_ms: float) -> tuple[Rung, ...]:
        """What a worker would say of what may leave it."""
        if self._rule == "modelless":
            idle, learned = self._learned_of_idle(worker, now_ms)
            return rungs_of(_places(idle, learned, now_ms / 1_000, self._min_residency_s))
        residents = self._residents(worker, now_ms)
        losses_s = {r.key: loss_s(r) for r in self._expected(worker, now_ms)}
        return ladder(
            residents, now_ms / 1_000, self._rule,
            losses_s=losses_s, min_residency_s=self._min_residency_s,
        )  # fmt: skip

    def _residents(self, worker: Worker, now_ms: float) -> list[Resident[VariantKey]]:
        """What may leave a worker, with the popularity that the rule counts."""
        if self._rule == "modelless":
            return self._expected(worker, now_ms)
        idle = _idle(worker)
        return _as_residents(idle, [float(each.arrived) for each in idle], [0.0] * len(idle))

    def _expected(self, worker: Worker, now_ms: float) -> list[Resident[VariantKey]]:
        """What may leave a worker, with the rates to expect."""
        idle, learned = self._learned_of_idle(worker, now_ms)
        expected = all_expected_qps(
            [rate for rate, _ in learned], [replica.planned_qps for replica in idle]
        )
        return _as_residents(idle, expected, [urgent for _, urgent in learned])

    def _learned_of_idle(
        self, worker: Worker, now_ms: float
    ) -> tuple[list[Replica], list[tuple[float, float]]]:
        """What may leave a worker, and what is learned of each."""
        idle = _idle(worker)
        if not idle and all(r.state is _UNLOADING for r in worker.replicas.values()):
            return [], []
        return idle, self._learned.of([replica.key for replica in idle], now_ms / 1_000)

    def _newcomer(
        self, key: VariantKey, candidate: Candidate, now_s: float
    ) -> Resident[VariantKey]:
        return Resident(
            key=key, memory_mib=candidate.memory_mib, load_s=candidate.load_ms / 1_000,
            popularity=learned_qps(self._asked, (key,), now_s)[0], last_used_s=now_s, in_use=False,
            loaded_s=now_s, urgent=self.urgency.share(key),
        )  # fmt: skip


class _Learned:
    """What is learned of variants, looked up once for all devices while nothing changes."""

    __slots__ = ("_asked", "_known", "_when")

    def __init__(self, asked: QueryRates[VariantKey]) -> None:
        self._asked = asked
        self._known: dict[VariantKey, tuple[float, float]] = {}
        self._when: tuple[float, int, tuple[float, float]] = (-1.0, 0, (0.0, 0.0))

    def of(self, keys: Collection[VariantKey], now_s: float) -> list[tuple[float, float]]:
        """Of each key: queries per second, and the share of them that cannot wait for a load."""
        asked, known = self._asked, self._known
        when = (now_s, asked.told, asked.urgency.counted)
        if when != self._when:
            known.clear()
            self._when = when
            new = list(keys)
        else:
            new = [key for key in keys if key not in known]
            if not new:
                return [known[key] for key in keys]
        # Also of nothing: the account is told of what came until now.
        rates = learned_qps(asked, new, now_s)
        found = list(zip(rates, asked.urgency.shares(new), strict=True))
        known.update(zip(new, found, strict=True))
        return found if len(new) == len(keys) else [known[key] for key in keys]


def _idle(worker: Worker) -> list[Replica]:
    """What is ready on a worker and not in use: nothing else is a victim under any rule, so that
    nothing has to be known of it."""
    return [
        replica
        for replica in worker.replicas.values()
        if replica.state is _READY and not replica.in_flight
    ]


def _as_residents(
    replicas: Sequence[Replica], popularities: Sequence[float], urgent: Sequence[float]
) -> list[Resident[VariantKey]]:
    # There is one for each variant on each device, and its own constructor takes twice as long.
    new = tuple.__new__
    return [
        new(
            Resident,
            (
                replica.key,
                candidate.memory_mib,
                candidate.load_ms / 1_000,
                popularity,
                replica.last_used_ms / 1_000,
                False,
                replica.loaded_ms / 1_000,
                replica.inflation,
                True,
                share,
                False,  # the simulator knows no pins
            ),
        )
        for replica, popularity, share in zip(replicas, popularities, urgent, strict=True)
        for candidate in (replica.candidate,)
    ]


def _places(
    idle: Sequence[Replica],
    learned: Sequence[tuple[float, float]],
    now_s: float,
    min_residency_s: float,
) -> list[Place]:
    """As ``ladder`` makes them of residents under ``modelless``, which take longer to make than all
    that follows: there are some hundreds on a device, and hosts are asked for each cold query."""
    places: list[Place] = []
    new = tuple.__new__
    for index, (replica, (rate, urgent)) in enumerate(zip(idle, learned, strict=True)):
        candidate, planned_qps = replica.candidate, replica.planned_qps
        qps = planned_qps if planned_qps > rate else rate
        memory_mib, load_s = candidate.memory_mib, candidate.load_ms / 1_000
        waits_s = load_s if load_s > LEAST_LOAD_S else LEAST_LOAD_S
        if waits_s > MOST_LOAD_S:
            waits_s -= urgent * (waits_s - MOST_LOAD_S)
        absent_s = qps * (waits_s + VIOLATION_S * urgent)
        worth = absent_s / (memory_mib if memory_mib > LEAST_MIB else LEAST_MIB)
        there_s, protected = now_s - replica.loaded_ms / 1_000, False
        if there_s < min_residency_s:  # a copy of ``planner.eviction.victims.is_protected``
            stays_s = min(min_residency_s, PROTECTED_LOADS * load_s)
            protected = stays_s > 0.0 and there_s < stays_s
        place = (worth, replica.last_used_ms / 1_000, index, memory_mib, absent_s, protected)
        places.append(new(Place, place))
    return places


class ToldLadder(Sequence[Rung]):
    """The ladder of a worker's last report, made when somebody reads it."""

    def __init__(self, worker: Worker, memories: Memories, clock_ms: Callable[[], float]) -> None:
        self._worker = worker
        self._memories = memories
        self._clock_ms = clock_ms
        self._told: Ladder = ()
        self._told_ms = -REPORT_MS
        self._told_mib, self._told_count = -1.0, 0
        """What was reserved for how many then."""

    def _now(self) -> Ladder:
        now_ms, worker = self._clock_ms(), self._worker
        reserved_mib, count = worker.reserved_mib, len(worker.replicas)
        if (
            now_ms - self._told_ms >= REPORT_MS
            or reserved_mib != self._told_mib
            or count != self._told_count
        ):
            self._told = self._memories.ladder(worker, now_ms)
            self._told_ms, self._told_mib, self._told_count = now_ms, reserved_mib, count
        return self._told

    def __iter__(self) -> Iterator[Rung]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    @overload
    def __getitem__(self, index: int) -> Rung: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Rung]: ...
    def __getitem__(self, index: int | slice) -> Rung | Sequence[Rung]:
        return self._now()[index]


def memories_of(setting: Setting, policy: object, asked: QueryRates[VariantKey]) -> Memories:
    """The memories of a simulation's devices, as its policy wants loads to be weighed."""
    return Memories(
        setting.eviction,
        asked,
        weighs=not setting.instant and getattr(policy, "weighs_loads", False),
        min_residency_s=0.0 if setting.instant else MIN_RESIDENCY_S,
    )
