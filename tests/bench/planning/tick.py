"""How long a tick takes on a large fleet: ``python -m tests.bench.planning.tick``.

A thousand workers of three kinds and a hundred tasks of ten variants each, of which a worker has
room for a part. The first ticks make a plan and load it; what is timed is the tick after that, when
everything is in place:

* *the same*: nothing was observed that was not observed before, but that time went on;
* *steady*: the demand moved by chance, queries are in flight, replicas were used at other times;
* *missing*: besides, one worker has lost a variant, another one each time;
* *corrected*: as steady, and live latency contradicts what was known, so that a plan is looked for
  anew.

Each number is the median of ``ROUNDS`` ticks, the observation made beforehand: workers tell their
state in objects that are new each time, and the control loop makes its reports of them, which is
timed on its own. ``--profile`` shows where a corrected tick spends its time.
"""

import argparse
import cProfile
import gc
import pstats
import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import median
from time import process_time

from controlplane.controller.met_workers.worker_reports import Reports
from planner.reconcile.live_profiles import scaled
from planner.reconcile.tick import tick
from planner.solver.greedy import greedy
from planner.types import (
    Decision,
    Demand,
    Load,
    Objective,
    Observation,
    Scale,
    Unload,
)
from tests.bench.machine import describe
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import CatalogSnapshot, DeviceKindName, ReplicaState, TaskName, WorkerId
from workers.types import ReplicaStatus, WorkerStatus

ROUNDS = 7
TASKS = 100
VARIANTS = 10
SPEEDS = {"cpu-4": (1.0, 0.2), "cpu-16": (3.0, 0.7), "gpu": (10.0, 2.5)}
"""Speed and USD per hour of a kind."""


def registered() -> CatalogSnapshot:
    draw = Random(0)
    variants, profiles = [], []
    for task in range(TASKS):
        for number in range(VARIANTS):
            name = f"v{number}"
            variants.append(variant(name, 0.7 + 0.025 * number, f"t{task:03}"))
            for on, (speed, _) in SPEEDS.items():
                ms = 4.0 * 1.5**number * draw.uniform(0.8, 1.2) / speed
                mib = 60.0 * (1 + number)
                profiles.append(
                    profile(name, ms, kind=on, task=f"t{task:03}", memory_mib=mib, load_s=1.0)
                )
    return catalog(
        variants, profiles, kinds=[kind(on, usd, 4_000.0) for on, (_, usd) in SPEEDS.items()]
    )


def demanded(qps: float, draw: Random, noise: float) -> tuple[Demand, ...]:
    """Tasks as 1 / rank, each with a class without a floor and one with."""
    weights = [1.0 / (1 + task) for task in range(TASKS)]
    return tuple(
        Demand(
            task=TaskName(f"t{task:03}"),
            latency_ms=200.0,
            accuracy=floor,
            qps=qps * weight / sum(weights) / 2 * draw.gauss(1.0, noise),
        )
        for task, weight in enumerate(weights)
        for floor in (None, 0.8)
    )


class Fleet:
    """Workers that do at once what they are told."""

    def __init__(self, count: int, qps: float, objective: Objective, *, elastic: bool) -> None:
        self.draw = Random(1)
        self.qps = qps
        self.held: dict[WorkerId, dict[tuple[str, str], ReplicaStatus]] = {}
        self.reports = Reports()
        self.reporting_ms = 0.0
        """How long it took to make the latest reports."""
        self.kinds: dict[WorkerId, DeviceKindName] = {}
        names = list(SPEEDS)
        for number in range(count):
            on = DeviceKindName(names[number % len(names)])
            self.kinds[WorkerId(f"{on}-{number:04}")] = on
            self.held[WorkerId(f"{on}-{number:04}")] = {}
        counts = {on: sum(1 for each in self.kinds.values() if each == on) for on in names}
        known = registered()
        self.mib = {(p.device_kind, p.task, p.variant): p.memory_mib for p in known.profiles}
        demand = demanded(qps, self.draw, 0.0)
        self.observation = Observation(
            catalog=known,
            workers=(),
            demand=demand,
            inventory={DeviceKindName(on): n for on, n in counts.items()},
            running={DeviceKindName(on): n for on, n in counts.items()},
            plan=None,
            now_s=0.0,
            objective=objective,
            elastic=elastic,
            expected=demand,
            envelope=demand,
        )

    def observe(
        self, decision: Decision | None, *, steady: bool, corrected: bool = False
    ) -> Observation:
        """What is there now; ``steady``: with the noise of traffic; ``corrected``: one variant of
        each task takes a little longer, or less long, on each kind."""
        if corrected:
            self._correct()
        before = self.observation
        demand = demanded(self.qps, self.draw, 0.02) if steady else before.demand
        statuses = [self._status(name, steady) for name in self.kinds]
        began_s = process_time()
        workers = self.reports.of(statuses)
        self.reporting_ms = (process_time() - began_s) * 1_000
        self.observation = replace(
            before,
            now_s=before.now_s + 1.0,
            workers=workers,
            demand=demand,
            expected=demand,
            envelope=demand,
            plan=decision.plan if decision is not None and decision.changed else before.plan,
            corrected=corrected,
        )
        return self.observation

    def _correct(self) -> None:
        known = self.observation.catalog
        off = {
            TaskName(f"t{task:03}"): f"v{self.draw.randrange(VARIANTS)}" for task in range(TASKS)
        }
        profiles = tuple(
            scaled(each, self.draw.uniform(0.95, 1.05)) if each.variant == off[each.task] else each
            for each in known.profiles
        )
        self.observation = replace(self.observation, catalog=replace(known, profiles=profiles))

    def _status(self, name: WorkerId, steady: bool) -> WorkerStatus:
        held = self.held[name]
        if not steady:
            self.held[name] = held = {
                key: replace(
                    replica,
                    idle_s=replica.idle_s + 1.0,
                    loaded_for_s=replica.loaded_for_s + 1.0,
                )
                for key, replica in held.items()
            }
        else:
            for key, replica in held.items():
                held[key] = replace(
                    replica,
                    queued=self.draw.randrange(3),
                    idle_s=self.draw.random(),
                    rate_qps=self.draw.random(),
                    asked=True,
                )
        return WorkerStatus(
            worker=name,
            device_kind=self.kinds[name],
            memory_mib=4_000.0,
            reserved_mib=sum(r.memory_mib for r in held.values()),
            draining=False,
            backlog_us=0,
            busy_ratio=0.0,
            replicas=tuple(held.values()),
        )

    def lose(self, number: int) -> None:
        """Have one worker hold one variant less."""
        holding = [held for held in self.held.values() if held]
        held = holding[number * 7 % len(holding)]
        del held[next(iter(held))]

    def apply(self, decision: Decision) -> None:
        for action in decision.actions:
            if isinstance(action, Scale):
                continue
            key = (action.task, action.variant)
            if isinstance(action, Load):
                mib = self.mib[self.kinds[action.worker], *key]
                self.held[action.worker][key] = ReplicaStatus(
                    task=action.task, variant=action.variant, state=ReplicaState.READY,
                    memory_mib=mib, loaded_for_s=1_000.0, idle_s=1_000.0,
                )  # fmt: skip
            elif isinstance(action, Unload):
                del self.held[action.worker][key]


def settled(fleet: Fleet) -> Decision:
    """The decision after which nothing is left to do."""
    decision = None
    for _ in range(12):
        decision = tick(fleet.observe(decision, steady=False), greedy, decision)
        if not decision.changed and not decision.actions:
            return decision
        fleet.apply(decision)
    raise AssertionError("the plan does not settle")


def timed(
    fleet: Fleet,
    decision: Decision,
    *,
    steady: bool,
    missing: bool = False,
    corrected: bool = False,
) -> str:
    took_ms, reporting_ms, changes = [], [], 0
    for number in range(ROUNDS):
        if missing:
            fleet.lose(number)
        observation = fleet.observe(decision, steady=steady, corrected=corrected)
        gc.collect()
        began_s = process_time()
        decision = tick(observation, greedy, decision)
        took_ms.append((process_time() - began_s) * 1_000)
        reporting_ms.append(fleet.reporting_ms)
        changes += decision.changed
        fleet.apply(decision)
    return (
        f"{median(took_ms):.1f} ms, its reports {median(reporting_ms):.1f} ms "
        f"({changes} of {ROUNDS} changed the plan)"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.planning.tick")
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--qps", type=float, default=20_000.0)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args(arguments)
    print(describe())
    for objective, elastic in ((Objective.ACCURACY, False), (Objective.COST, False)):
        fleet = Fleet(asked.workers, asked.qps, objective, elastic=elastic)
        decision = settled(fleet)
        replicas = sum(len(held) for held in fleet.held.values())
        print(
            f"{objective.value}, {asked.workers} workers, {replicas:,} replicas, "
            f"{len(decision.plan.routes):,} routes: the same {timed(fleet, decision, steady=False)}"
            f"; steady {timed(fleet, decision, steady=True)}"
            f"; missing {timed(fleet, decision, steady=True, missing=True)}"
            f"; corrected {timed(fleet, decision, steady=True, corrected=True)}",
            flush=True,
        )
        if asked.profile:
            observation = fleet.observe(decision, steady=True, corrected=True)
            found = cProfile.Profile()
            found.runcall(tick, observation, greedy, decision)
            pstats.Stats(found, stream=sys.stdout).sort_stats("cumtime").print_stats(30)
    return 0


if __name__ == "__main__":
    sys.exit(main())
