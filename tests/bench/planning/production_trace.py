"""A production-like trace for eviction: measured models, and two days of a measured rate.

Models are those of ``timm_imagenet.csv`` in the directory that MODELLESS_BENCH_DATA names, at
equal steps from the smallest to the largest: four bytes for each parameter, loaded at 1 GiB/s. How
popular each is follows Zipf's law with exponent 0.9, and has nothing to do with its size. A third
of them is asked for as ``twitter_rate.csv`` rises and falls, each shifted by some hours; a third on
schedule; a third in bursts of an hour. No trace of a real installation is public with sizes and
load times.
"""

import csv
from pathlib import Path

import numpy as np

from tests.bench.planning.cache_workloads import Floats, Rng, Workload, zipf

MIB_PER_S = 1_024.0
BYTES = 4
BURST_S = 3_600.0
IN_A_BURST = 30.0


def production(data: Path, seed: int, *, variants: int, queries: int) -> Workload:
    """About so many queries over the two days of the rate series."""
    rng = np.random.default_rng(seed)
    memory_mib = rng.permutation(_sizes_mib(data / "timm_imagenet.csv", variants))
    rate = _rate(data / "twitter_rate.csv")
    span_s = float(len(rate))
    found: list[tuple[float, int]] = []
    for variant, share in enumerate(rng.permutation(zipf(variants, 0.9))):
        kind = (_follows, _on_schedule, _in_bursts)[variant % 3]
        at_s = kind(rng, share * queries, rate)
        found += [(at, variant) for at in at_s.tolist() if 0.0 <= at < span_s]
    found.sort()
    return Workload(
        arrival_s=[at_s for at_s, _ in found],
        variant=[variant for _, variant in found],
        load_s=(memory_mib / MIB_PER_S).tolist(),
        memory_mib=memory_mib.tolist(),
        rates=None,
        step_s=1.0,
    )


def _follows(rng: Rng, queries: float, rate: Floats) -> Floats:
    """Poisson, as the series rises and falls some hours earlier or later."""
    shifted = np.roll(rate, int(rng.integers(len(rate))))
    counts = rng.poisson(queries * shifted / shifted.sum())
    second = np.repeat(np.arange(len(rate)), counts)
    found: Floats = second + rng.uniform(0.0, 1.0, len(second))
    return found


def _on_schedule(rng: Rng, queries: float, rate: Floats) -> Floats:
    """Regularly, give or take 5 %."""
    period_s = len(rate) / max(queries, 2.0)
    due_s = np.arange(rng.uniform(0.0, period_s), len(rate), period_s)
    found: Floats = due_s + rng.normal(0.0, 0.05 * period_s, len(due_s))
    return found


def _in_bursts(rng: Rng, queries: float, rate: Floats) -> Floats:
    """About thirty queries within an hour, then a long silence."""
    begins_s = rng.uniform(0.0, len(rate), rng.poisson(queries / IN_A_BURST))
    counts = rng.poisson(IN_A_BURST, len(begins_s))
    found: Floats = np.repeat(begins_s, counts) + rng.uniform(0.0, BURST_S, int(counts.sum()))
    return found


def _sizes_mib(path: Path, count: int) -> Floats:
    with path.open(newline="") as file:
        sizes = {row["model"]: float(row["params_million"]) for row in csv.DictReader(file)}
    ordered = np.sort(np.array(list(sizes.values()))) * 1e6 * BYTES / 2**20
    found: Floats = ordered[np.linspace(0, len(ordered) - 1, count).round().astype(int)]
    return found


def _rate(path: Path) -> Floats:
    with path.open(newline="") as file:
        return np.array([float(row["requests"]) for row in csv.DictReader(file)])
