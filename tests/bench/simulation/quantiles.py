"""What the forecast's quantile is worth under ``cost``: violations and USD for each, by simulation.

Run with ``python -m tests.bench.simulation.quantiles``; a run takes a minute or so. There are two
workloads on slow and fast devices: a load that swings slowly between 0.15 and 0.6 of the capacity,
six devices of each kind; and, where MODELLESS_BENCH_DATA names a directory with
``twitter_rate.csv``, some of its jumps, two seconds a minute, on four of each. The fleet is
elastic.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import planner.forecasting.demand_estimator as estimating
from planner.simulate import simulate
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.planning.catalogs import Ground
from tests.bench.simulation.capacity import Class
from tests.bench.simulation.mixed_speed import LATENCY_MS, Shape, ground, workload
from tests.bench.simulation.workloads import PEAK, Drawn, Opening, Workload, draw, minutes

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
LINGERS_S = (300.0, 120.0)
JUMPS = slice(700, 1_500)
"""Seconds of the stream, two for each of its minutes."""


def cases(seed: int) -> Iterator[tuple[str, Ground, Drawn]]:
    known = ground(seed, slow=6, fast=6, latency_ms=LATENCY_MS)
    shape = Shape(slow=6, fast=6, highest=0.6, swing=4.0, period_s=600)
    opening = Opening(calm_s=20, rise_s=20)
    swing = workload("swing", shape, known, seconds=1_300, opening=opening)
    yield "swing", known, draw(swing, known, seed)
    data = os.environ.get("MODELLESS_BENCH_DATA")
    if data is not None:
        known = ground(seed, slow=4, fast=4, latency_ms=LATENCY_MS)
        rates = minutes(Path(data) / "twitter_rate.csv")
        mix = {Class(task, ms): 1.0 for task, ms in known.latency_ms.items()}
        load = [PEAK * rate / max(rates) for rate in rates for _ in range(2)][JUMPS]
        stream = Workload(name="stream", about="", load=load, mix=lambda _: mix)
        yield "stream", known, draw(stream, known, seed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.quantiles")
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    for name, known, drawn in cases(seed):
        print(f"{name}: {len(drawn.trace):,} queries")
        for linger_s in LINGERS_S:
            for level in LEVELS:
                estimating.QUANTILE[Objective.COST] = level
                setting = Setting(
                    catalog=known.catalog, kinds=known.kinds, objective=Objective.COST,
                    seed=seed, linger_s=linger_s,
                )  # fmt: skip
                found = simulate(setting, drawn.trace, "modelless", clock=time.thread_time)
                print(
                    f"  linger {linger_s:.0f} s, quantile {level}: "
                    f"{found.violation_ratio:.3%} violated, {found.cost_usd:.3f} USD",
                    flush=True,
                )


if __name__ == "__main__":
    main()
