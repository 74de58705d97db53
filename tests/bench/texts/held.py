"""What it costs that plans do not know which models hold a text:
``python -m tests.bench.texts.held``.

Of each task's two models one is cheap, and its tokenizer makes more tokens of a text. A part of the
queries are too long for it, so that only the dear one may answer them. Simulated, in virtual time,
with plans that count these as any others, and with plans that count them for the variant that would
answer them (``controlplane.gateway.texts.holding``).
"""

import argparse
from collections.abc import Iterable
from math import cos, inf, pi
from time import perf_counter

import numpy as np

from planner.canary.some_versions import without_versions
from planner.forecasting.estimator_of import DEMAND_WEIGHT
from planner.policies.modelless import Modelless, planner_of
from planner.selection.plan_following import choose
from planner.selection.routes import EMPTY
from planner.selection.select import suited
from planner.simulate import offers_of
from planner.simulation.engine import Engine
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind
from planner.types import Choice, Demand, Query, Refusal, Snapshot
from tests.planner.builders import catalog, kind, profile, task, variant
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    ProfileSource,
    TaskName,
    VariantKey,
)

CHEAP, DEAR = "cheap", "dear"
PARTS = (0.0, 0.02, 0.1, 0.3)
SLO_MS, SECONDS = 200.0, 1_800
SOON_S = 120.0
"""So long workers are kept that nobody needs, where they come and go."""
NEGLIGIBLE_QPS = 1e-3


class Held(Modelless):
    """Our own policy, where a part of the queries is held by the dear models only."""

    part, knows = 0.0, False

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        super().__init__(brief, fleet, planner_of(brief))
        self._only: dict[VariantKey, float] = {}
        self._rates: dict[VariantKey, float] = {}
        self._parts: dict[TaskName, tuple[Snapshot, Snapshot]] = {}

    def _is_long(self, query: Query) -> bool:
        return (query.draw >> 32) % 1_000 < 1_000 * self.part

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        if not (self.knows and self._is_long(query)):
            return super().choose(query, now_ms)
        snapshot = self._held(self._snapshot or self._refresh(), query.task)
        best = suited(snapshot, query)
        assert best is not None
        key = (query.task, best.variant)
        self._only[key] = self._only.get(key, 0.0) + 1
        return self._choose(query, now_ms)

    def _choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        if not self._is_long(query):
            return super()._choose(query, now_ms)
        if now_ms - self._heard_ms >= 1_000.0:
            self._hear(now_ms)
        snapshot = self._held(self._snapshot or self._refresh(), query.task)
        found = choose(snapshot, EMPTY, self._congestion, query, now_ms)
        if isinstance(found, Choice) and not found.cold:
            longest_ms = self._routes.longest_ms(found.worker.id, query.latency_ms)
            self._congestion.batches.sent(found.candidate, found.worker, 1, now_ms, longest_ms)
        return found

    def _held(self, snapshot: Snapshot, of: TaskName) -> Snapshot:
        known = self._parts.get(of)
        if known is None or known[0] is not snapshot:
            held = without_versions(snapshot, of, {f"{CHEAP}-v1": "is too long"})
            known = self._parts[of] = (snapshot, held)
        return known[1]

    def _demands(self, now_s: float) -> tuple[tuple[Demand, ...], ...]:
        weight = 1.0 - (1.0 - DEMAND_WEIGHT) ** self.tick_s
        counts, self._only = self._only, {}
        self._rates = {
            key: rate
            for key in self._rates.keys() | counts.keys()
            if (
                rate := (1 - weight) * self._rates.get(key, 0.0)
                + weight * counts.get(key, 0.0) / self.tick_s
            )
            >= NEGLIGIBLE_QPS
        }
        own = tuple(
            Demand(task=name, latency_ms=SLO_MS, accuracy=None, qps=qps, variant=of, slo_ms=SLO_MS)
            for (name, of), qps in sorted(self._rates.items())
        )
        return tuple((*each, *own) for each in super()._demands(now_s))


def known_catalog(tasks: int, mib: float, device_mib: float, load_s: float) -> CatalogSnapshot:
    names = [f"t{index:02}" for index in range(tasks)]
    given = {CHEAP: (0.90, 8.0), DEAR: (0.93, 32.0)}
    return catalog(
        [variant(f"{one}", given[one][0], name) for name in names for one in given],
        [
            profile(
                one, given[one][1], task=name, memory_mib=mib, load_s=load_s,
                source=ProfileSource.EXACT,
            )
            for name in names
            for one in given
        ],
        kinds=[kind(memory_mib=device_mib)],
        tasks=[task(name) for name in names],
    )  # fmt: skip


def drawn(tasks: int, qps: float, skew: float, seconds: int = SECONDS) -> Trace:
    """Poisson arrivals at a rate that swings twice between a third of ``qps`` and all of it."""
    random = np.random.default_rng(0)
    rates = [qps * (2 - cos(4 * pi * second / seconds)) / 3 for second in range(seconds)]
    at = np.concatenate(
        [second + np.sort(random.random(random.poisson(rate))) for second, rate in enumerate(rates)]
    )
    weights = np.arange(1, tasks + 1) ** -skew
    of = random.choice(tasks, len(at), p=weights / weights.sum())
    return Trace(
        tasks=tuple(TaskName(f"t{index:02}") for index in range(tasks)),
        arrival_s=at.tolist(), task=of.tolist(), latency_ms=[SLO_MS] * len(at),
        min_accuracy=[-inf] * len(at), max_cost=[inf] * len(at),
    )  # fmt: skip


def simulated(setting: Setting, trace: Trace, part: float, knows: bool) -> Report:
    policy = type("Policy", (Held,), {"part": part, "knows": knows})
    brief = Brief(setting=setting, average=tuple, clock_s=perf_counter)
    fleet = Fleet(offers_of(setting.catalog), setting.kinds)
    engine = Engine(setting, trace, fleet, lambda known: policy(brief, known), perf_counter)
    end_ms = engine.run()
    return engine.tally.report("modelless", engine.devices.billed, end_ms, 60_000.0)


def scenarios() -> Iterable[tuple[str, Setting, Trace]]:
    def made(known: CatalogSnapshot, count: int, *, elastic: bool = False) -> Setting:
        [device] = known.device_kinds
        kinds = AvailableKind(
            name=DeviceKindName("cpu-1"), count=count, memory_mib=device.memory_mib,
            usd_per_hour=device.usd_per_hour,
        )  # fmt: skip
        return Setting(catalog=known, kinds=(kinds,), elastic=elastic, linger_s=SOON_S)

    one = known_catalog(1, 100.0, 1_000.0, 1.0)
    yield "1 task, workers come and go", made(one, 20, elastic=True), drawn(1, 300.0, 0, 3_600)
    yield "1 task, 4 workers", made(one, 4), drawn(1, 200.0, 0)
    many = known_catalog(20, 400.0, 4_000.0, 2.0)
    yield "20 tasks, 4 workers, 40 of 160 replicas", made(many, 4), drawn(20, 150.0, 1.0)
    # Hardly more than the cheap ones.
    short = known_catalog(20, 400.0, 2_400.0, 2.0)
    yield "the same, 24 of 160 replicas", made(short, 4), drawn(20, 100.0, 1.0, 900)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, choices=(1, 2, 3, 4))
    only = parser.parse_args().only
    print("| | held by the dear one alone | late or refused | USD | plans know | USD |")
    print("|---|--:|--:|--:|--:|--:|")
    for number, (about, setting, trace) in enumerate(scenarios(), 1):
        for part in PARTS if only in (None, number) else ():
            unaware, aware = (simulated(setting, trace, part, knows) for knows in (False, True))
            print(
                f"| {about} | {part:.0%} | {unaware.violation_ratio:.2%} | {unaware.cost_usd:.3f}"
                f" | {aware.violation_ratio:.2%} | {aware.cost_usd:.3f} |", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
