"""How fast the simulator is: ``python -m tests.bench.simulation.simulator``.

Simulated queries per second on one core: ten tasks on forty devices, the objective ``accuracy``, a
constant rate of 0.6 of what the cheapest variants could serve. Each number is the median of
``ROUNDS`` runs, by wall time and by processor time, which differ where others compute as well. The
clock is read twice a query, as in ``modelless simulate``, and the garbage collector is called as
rarely. ``--large S`` plays S seconds of 1,200 variants on 60 devices with short memory
(``tests.bench.simulation.large_catalog``) at a load of 0.4 instead; ``--rows-of 0.1`` makes rows
and the latency SLO as much shorter there. ``--profile POLICY`` shows where the time goes instead.
"""

import argparse
import cProfile
import gc
import pstats
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from controlplane.cli.commands.planning.simulate import collected_rarely
from planner.policies.registry import POLICIES
from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.machine import describe
from tests.bench.planning.catalogs import Ground, synthetic
from tests.bench.simulation.large_catalog import large, zipf
from tests.bench.simulation.workloads import draw, workloads

ROUNDS = 3
LOAD = 0.6
LARGE_LOAD = 0.4
WANTED = 40_000
WANTED_LARGE = 10_000
"""Queries per second of processor time under our own policy (docs/decisions/
0020-simulating-faster.md)."""


def played(ground: Ground, trace: Trace, policy: str) -> Report:
    setting = Setting(catalog=ground.catalog, kinds=ground.kinds, objective=Objective.ACCURACY)
    return simulate(setting, trace, policy, clock=time.perf_counter)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.simulator")
    parser.add_argument("--policies", help="names of policies, by commas")
    parser.add_argument("--profile", metavar="POLICY", help="show where the time goes")
    parser.add_argument("--large", metavar="S", type=int, help="1,200 variants on 60 devices")
    parser.add_argument("--rows-of", metavar="FACTOR", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args(arguments)
    if asked.large:
        ground = large(rows_of=asked.rows_of)
        trace, wanted = draw(zipf(ground, LARGE_LOAD, asked.large), ground, 0).trace, WANTED_LARGE
    else:
        ground = synthetic()
        steady = workloads(ground, None)[0]
        drawn = draw(replace(steady, load=[LOAD] * steady.duration_s), ground, 0)
        trace, wanted = drawn.trace, WANTED
    if asked.profile:
        profile = cProfile.Profile()
        profile.runcall(played, ground, trace, asked.profile)
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(30)
        return 0
    print(describe())
    print(f"{len(trace):,} queries; wanted of our own policy: {wanted:,}/s\n")
    print("| policy | queries/s | by processor time | runs | violated | µs of a decision p50 |")
    print("|---|--:|--:|---|--:|--:|")
    for policy in asked.policies.split(",") if asked.policies else POLICIES:
        rates: list[float] = []
        alone: list[float] = []
        for _ in range(asked.rounds):
            gc.collect()
            began_s, used_s = time.perf_counter(), time.process_time()
            with collected_rarely():
                report = played(ground, trace, policy)
            rates.append(len(trace) / (time.perf_counter() - began_s))
            alone.append(len(trace) / (time.process_time() - used_s))
        shown = ", ".join(f"{rate:,.0f}" for rate in alone)
        print(
            f"| {policy} | {median(rates):,.0f} | {median(alone):,.0f} | {shown} "
            f"| {report.violation_ratio:.2%} | {report.decision_us_p50:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
