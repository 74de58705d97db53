"""How far approximate simulation is from exact: ``python -m tests.bench.simulation.approximation``.

A rate trace that swings over ten tasks is played exactly, every query, and approximately, from
several seeds; the table shows both and the difference. ``--week`` estimates a week at a mean of
20,000 queries per second on 1,000 devices instead, and says how long that took.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf, pi
from typing import NamedTuple

import numpy as np

from planner.approximate import sample as sampling
from planner.approximate.approximate import Approximation, approximate
from planner.approximate.rates import RateTrace
from planner.approximate.sample import Sample, Slice, drawn
from planner.simulate import simulate
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.bench.machine import describe
from tests.bench.planning.catalogs import Ground, synthetic
from tests.bench.simulation.capacity import Class, capacity_qps

DAY_S = 86_400
COUNTED = (Objective.COST, Objective.ACCURACY)
LEAST = 0.25
"""The rate at night, as a part of the peak."""


class Shape(NamedTuple):
    """A trace on the synthetic ground."""

    name: str
    seconds: int
    period_s: int
    peak: float
    """Of what the cheapest variants could serve."""
    times: int = 1
    """Devices, compared with the synthetic ground's forty."""
    faster: float = 1.0
    """Latencies are divided by this."""
    burst: bool = False


SHAPES = (
    Shape("two swings in an hour", 3_600, 1_800, 0.7),
    Shape("with a flash crowd", 3_600, 1_800, 0.7, burst=True),
    Shape("three times the fleet", 1_800, 900, 0.7, times=3),
)
WEEK = Shape("a week", 7 * DAY_S, DAY_S, 0.8, times=25)


def ground_of(shape: Shape) -> Ground:
    ground = synthetic()
    profiles = tuple(
        replace(
            each,
            points=tuple(
                replace(
                    point,
                    p50_ms=point.p50_ms / shape.faster,
                    p95_ms=point.p95_ms / shape.faster,
                    p99_ms=point.p99_ms / shape.faster,
                )
                for point in each.points
            ),
        )
        for each in ground.catalog.profiles
    )
    return replace(
        ground,
        catalog=replace(ground.catalog, profiles=profiles),
        kinds=tuple(replace(kind, count=kind.count * shape.times) for kind in ground.kinds),
        latency_ms={task: ms / shape.faster for task, ms in ground.latency_ms.items()},
    )


def rates_of(shape: Shape, ground: Ground, mean_qps: float | None = None) -> RateTrace:
    """A cosine between ``LEAST`` and 1 of the peak, each task with a part and a phase of its own.

    ``mean_qps`` sets the mean; otherwise the peak is ``shape.peak`` of the capacity.
    """
    tasks = ground.tasks
    mix = {Class(task, ms): 1.0 for task, ms in ground.latency_ms.items()}
    second = np.arange(shape.seconds)
    parts = []
    for number in range(len(tasks)):
        phase = 2 * pi * (second / shape.period_s - 0.03 * number)
        parts.append((1 + LEAST) / 2 - (1 - LEAST) / 2 * np.cos(phase))
    each = np.stack(parts, axis=1)
    if shape.burst:
        begin = int(0.6 * shape.seconds)
        each[begin : begin + 180] *= 1.5
    peak_qps = shape.peak * capacity_qps(ground, mix)
    each *= peak_qps / each.sum(axis=1).max()
    if mean_qps is not None:
        each *= mean_qps / each.sum(axis=1).mean()
    latency = np.array([ground.latency_ms[task] for task in tasks])
    return RateTrace(
        tasks=tasks,
        second=np.repeat(second, len(tasks)),
        task=np.tile(np.arange(len(tasks)), len(second)),
        requests=each.reshape(-1),
        latency_ms=np.tile(latency, len(second)),
        min_accuracy=np.full(len(second) * len(tasks), -inf),
    )


def exact(setting: Setting, rates: RateTrace) -> Report:
    whole = Slice(0, 0, rates.duration_s)
    sample = Sample(
        kinds=setting.kinds, scale=1.0, width_s=rates.duration_s, start_s=0, slices=(whole,)
    )
    trace = drawn(rates, sample, setting.seed)
    return simulate(setting, trace, "modelless", clock=time.perf_counter)


def line(name: str, report: Report, used_s: float, made: Approximation | None = None) -> str:
    chance = "" if made is None else f" ± {made.chance.violation_ratio:.3%}"
    unsure = "" if made is None else f" ± {made.chance.effective_accuracy:.4f}"
    played = report.requests if made is None else made.played
    columns = (
        name,
        f"{report.violation_ratio:.3%}{chance}",
        f"{report.effective_accuracy:.4f}{unsure}",
        f"{report.cost_usd:.3f}",
        f"{report.busy_ratio:.1%}",
        f"{report.loads:,}",
        f"{played:,}",
        f"{used_s:.0f}",
    )
    return f"| {' | '.join(columns)} |"


def compared(shape: Shape, objective: Objective, seeds: int, runs: bool) -> None:
    ground = ground_of(shape)
    rates = rates_of(shape, ground)
    setting = Setting(catalog=ground.catalog, kinds=ground.kinds, objective=objective)
    devices = sum(kind.count for kind in ground.kinds)
    print(f"\n{shape.name}, {objective.value}: {rates.total:,.0f} queries, {devices} devices\n")
    print("| run | violated | accuracy | USD | busy | loads | played | processor s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    if runs:
        began_s = time.process_time()
        report = exact(setting, rates)
        print(line("exact", report, time.process_time() - began_s), flush=True)
    for seed in range(seeds):
        began_s = time.process_time()
        made = approximate(replace(setting, seed=seed), rates, clock=time.perf_counter)
        used_s = time.process_time() - began_s
        print(line(f"approximate, seed {seed}", made.report, used_s, made), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.simulation.approximation")
    parser.add_argument("--week", action="store_true", help="a week at 20,000 queries per second")
    parser.add_argument("--objective", choices=[each.value for each in COUNTED])
    parser.add_argument("--shape", type=int, help="only this one, from 0")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--no-exact", action="store_true")
    parser.add_argument("--devices", type=int, help="play about so many, instead of the default")
    parser.add_argument("--seconds", type=int, help="of the week, only so many")
    parser.add_argument("--played", type=int, help="play about so many queries at most")
    asked = parser.parse_args(arguments)
    sampling.DEVICES = asked.devices or sampling.DEVICES
    sampling.MOST_PLAYED = asked.played or sampling.MOST_PLAYED
    print(describe())
    objectives = [Objective(asked.objective)] if asked.objective else list(COUNTED)
    for objective in objectives:
        if asked.week:
            _week(objective, asked.seconds)
            continue
        for number, shape in enumerate(SHAPES):
            if asked.shape in (None, number):
                compared(shape, objective, asked.seeds, not asked.no_exact)
    return 0


def _week(objective: Objective, seconds: int | None) -> None:
    """Latencies are such that a mean of 20,000 queries per second is half of the capacity."""
    shape = WEEK if seconds is None else WEEK._replace(seconds=seconds)
    plain = ground_of(shape)
    mix = {Class(task, ms): 1.0 for task, ms in plain.latency_ms.items()}
    ground = ground_of(shape._replace(faster=20_000 / 0.5 / capacity_qps(plain, mix)))
    rates = rates_of(shape, ground, 20_000.0)
    setting = Setting(catalog=ground.catalog, kinds=ground.kinds, objective=objective)
    began_s, used_s = time.perf_counter(), time.process_time()
    made = approximate(setting, rates, clock=time.perf_counter)
    used_s, took_s = time.process_time() - used_s, time.perf_counter() - began_s
    print(f"\n{shape.name}, {objective.value}: {rates.total:,.0f} queries, 1,000 devices")
    print(f"each played one stands for {made.scale:.1f}; {made.windows} windows; {took_s:.0f} s\n")
    print("| run | violated | accuracy | USD | busy | loads | played | processor s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    print(line("approximate", made.report, used_s, made), flush=True)


if __name__ == "__main__":
    sys.exit(main())
