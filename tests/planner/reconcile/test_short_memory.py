"""Short memory: the loop and what queries load on demand, played together without a process.

One worker, a hot class and five pinned variants of lower rates. Each second the loop looks at the
worker and acts; between, each query finds its variant, or has it loaded in place of what is worth
less, as workers do. Loads take no time here: what counts is which variant leaves for which.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from controlplane.controller.arrivals import Arrivals
from controlplane.demand_counters import counter_name
from planner.eviction.popularity import Popularity
from planner.eviction.rules import Resident
from planner.eviction.victims import room_for
from planner.reconcile.tick import tick
from planner.types import Load, ReplicaReport, Unload, WorkerReport
from tests.planner.builders import catalog, observation, profile, variant
from variants.types import CatalogSnapshot, Plan, ReplicaState, TaskName, VariantName, WorkerId

HOT, FILLER = "hot", ("filler-a", "filler-b", "filler-c")
RARE = {"a": 1.0, "b": 0.6, "c": 0.4, "d": 0.3, "e": 0.2}
SIZES_MIB = {HOT: 16.0, "a": 6.0, "b": 5.0, "c": 4.0, "d": 3.0, "e": 3.0} | dict.fromkeys(
    FILLER, 3.0
)
LOAD_S = 0.024
SECONDS = 120


def registered() -> CatalogSnapshot:
    """The hot variant alone meets the hot class; fillers are the cheapest."""
    return catalog(
        [variant(name, 0.99 if name == HOT else 0.9) for name in SIZES_MIB],
        [
            profile(
                name,
                1.0 if name in FILLER else 2.0,
                memory_mib=size,
                load_s=LOAD_S,
            )
            for name, size in SIZES_MIB.items()
        ],
    )


@dataclass
class Loaded:
    no: int
    asked: bool
    since_s: float
    used_s: float


@dataclass
class Played:
    """A worker and the loop above it, and what happened."""

    memory_mib: float
    held: dict[str, Loaded] = field(default_factory=dict)
    book: Popularity[str] = field(default_factory=Popularity)
    plan: Plan | None = None
    happened: Counter[tuple[str, str]] = field(default_factory=Counter)
    loads: int = 0

    @property
    def free_mib(self) -> float:
        return self.memory_mib - sum(SIZES_MIB[name] for name in self.held)

    def report(self, now_s: float) -> WorkerReport:
        rates = self.book.rates(self.held, now_s)
        return WorkerReport(
            id=WorkerId("w1"),
            device_kind=registered().device_kinds[0].name,
            memory_mib=self.memory_mib,
            reserved_mib=self.memory_mib - self.free_mib,
            replicas=tuple(
                ReplicaReport(
                    task=TaskName("digits"),
                    variant=VariantName(name),
                    state=ReplicaState.READY,
                    memory_mib=SIZES_MIB[name],
                    idle_s=now_s - one.used_s,
                    rate_qps=rate if name in self.book else 0.0,
                    asked=one.asked,
                    load_no=one.no,
                    loaded_for_s=now_s - one.since_s,
                )
                for (name, one), rate in zip(self.held.items(), rates, strict=True)
            ),
        )

    def load(self, name: str, now_s: float, *, asked: bool) -> None:
        self.loads += 1
        self.held[name] = Loaded(self.loads, asked, now_s, now_s)

    def query(self, name: str, now_s: float) -> None:
        if name not in self.held:
            self.happened["missed", name] += 1
            self.book.seen(name, now_s)
            leaving = self.leaving(name, now_s)
            if leaving is None:  # workers wait for what has to serve first, if the query can
                leaving = self.leaving(name, now_s + 11 * LOAD_S)
            if leaving is None:
                self.happened["cold", name] += 1
                return
            for other in leaving:
                self.happened["evicted", self.called(other)] += 1
                del self.held[other]
            self.load(name, now_s, asked=True)
        self.book.seen(name, now_s)
        self.held[name].asked, self.held[name].used_s = True, now_s

    def leaving(self, name: str, now_s: float) -> tuple[str, ...] | None:
        return room_for(
            self.resident(name, now_s),
            [self.resident(other, now_s) for other in self.held],
            SIZES_MIB[name] - self.free_mib,
            now_s,
            waiting=True,
        )

    def resident(self, name: str, now_s: float) -> Resident[str]:
        one = self.held.get(name, Loaded(0, True, now_s, now_s))
        rate = self.book.rate(name, now_s) if name in self.book else 0.0
        return Resident(
            key=name, memory_mib=SIZES_MIB[name], load_s=LOAD_S, popularity=rate,
            last_used_s=one.used_s, in_use=False, loaded_s=one.since_s, asked=one.asked,
        )  # fmt: skip

    def called(self, name: str) -> str:
        """What leaves, by its name if a query has asked for it since it was loaded."""
        return name if self.held[name].asked else "not asked for"

    def turn(self, arrivals: Arrivals, now_s: float) -> None:
        seen = observation(registered(), self.report(now_s), demand=arrivals.demand, plan=self.plan)
        decision = tick(
            replace(seen, expected=(*arrivals.estimator.expected, *arrivals.pinned), now_s=now_s)
        )
        self.plan = decision.plan
        for action in decision.actions:
            if isinstance(action, Unload):
                self.happened["unloaded", self.called(str(action.variant))] += 1
                del self.held[str(action.variant)]
            elif isinstance(action, Load) and SIZES_MIB[str(action.variant)] <= self.free_mib:
                self.happened["loaded", str(action.variant)] += 1
                self.load(str(action.variant), now_s, asked=False)


def queries(seed: int) -> Iterator[tuple[float, str]]:
    draw = random.Random(seed)
    found = []
    for name, qps in {HOT: 34.0, **RARE}.items():
        at_s = draw.expovariate(qps)
        while at_s < SECONDS:
            found.append((at_s, name))
            at_s += draw.expovariate(qps)
    yield from sorted(found)


def play(memory_mib: float, seed: int) -> Played:
    played = Played(memory_mib)
    arrivals = Arrivals()
    totals: Counter[str] = Counter()
    coming = queries(seed)
    at_s, name = next(coming)
    known = registered()
    for second in range(SECONDS):
        report = {"demand": dict(totals), "tightest": dict.fromkeys(totals, 500.0)}
        arrivals.count({"g1": report}, known, float(second))
        played.turn(arrivals, float(second))
        while at_s < second + 1:
            pin = None if name == HOT else VariantName(name)
            floor = 0.99 if name == HOT else None
            totals[counter_name(TaskName("digits"), 500.0, floor, (0.9, 0.99), pin)] += 1
            played.query(name, at_s)
            at_s, name = next(coming, (float("inf"), ""))
    return played


def test_where_all_that_is_asked_fits_nothing_of_it_ever_leaves() -> None:
    for seed in range(3):
        played = play(40.0, seed)  # 37 MiB are asked for
        happened = played.happened
        assert sum(n for (what, _), n in happened.items() if what == "cold") == 0
        left = {name for what, name in happened if what in ("unloaded", "evicted")}
        assert left <= {"not asked for"}
        assert max((n for (what, _), n in happened.items() if what == "missed"), default=0) <= 1


def test_where_it_does_not_fit_no_filler_comes_and_the_hot_one_stays() -> None:
    for seed in range(3):
        played = play(28.0, seed)
        happened = played.happened
        assert sum(n for (what, _), n in happened.items() if what == "cold") == 0
        late = {name for name in FILLER if happened["loaded", name] > 1}
        assert late == set(), "a filler came back"
        assert happened["unloaded", HOT] + happened["evicted", HOT] == 0
        unloads = sum(n for (what, _), n in happened.items() if what == "unloaded")
        assert unloads <= SECONDS / 10
        misses = sum(n for (what, _), n in happened.items() if what == "missed")
        assert misses <= lru_misses(28.0, seed)


def lru_misses(memory_mib: float, seed: int) -> int:
    """How often a plain LRU cache of variants has to load on the same queries."""
    held: dict[str, float] = {}
    misses = 0
    for _, name in queries(seed):
        misses += name not in held
        held[name] = held.pop(name, SIZES_MIB[name])  # the last used comes last
        while sum(held.values()) > memory_mib:
            del held[next(iter(held))]
    return misses
