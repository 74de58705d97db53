"""Workloads for eviction rules: which variant each query needs, what loading takes, what it holds.

Most are Poisson processes whose rates are known for every moment, so that a rule can be compared
with one that knows the rates. All come from a seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rng = np.random.Generator

STEPS = 400
"""Rates are constant within a step; a workload has so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Queries ascending by time. Variants are numbers from 0."""

    arrival_s: list[float]
    variant: list[int]
    load_s: list[float]
    """Of each variant."""
    memory_mib: list[float]
    """Of each variant."""
    rates: Floats | None
    """True queries per second, (steps, variants); None where the next query depends on the last."""
    step_s: float


def zipf(variants: int, exponent: float) -> Floats:
    """Shares of popularity by rank."""
    shares: Floats = np.arange(1.0, variants + 1.0) ** -exponent
    shares /= shares.sum()
    return shares


# -- true rates: (steps, variants), to any scale ---------------------------------------------------


def steady(exponent: float) -> Callable[[Rng, int], Floats]:
    """The same popularity throughout: independent draws."""

    def rates(rng: Rng, variants: int) -> Floats:
        return np.tile(rng.permutation(zipf(variants, exponent)), (STEPS, 1))

    return rates


def shifting_head(rng: Rng, variants: int) -> Floats:
    """Who is popular is drawn anew eight times."""
    shares = zipf(variants, 0.9)
    return np.repeat([rng.permutation(shares) for _ in range(8)], STEPS // 8, axis=0)


def drifting(rng: Rng, variants: int) -> Floats:
    """A pair of variants trades places at every step."""
    shares = rng.permutation(zipf(variants, 0.9))
    rows = []
    for _ in range(STEPS):
        pair = rng.choice(variants, 2, replace=False)
        shares[pair] = shares[pair[::-1]]
        rows.append(shares.copy())
    return np.array(rows)


def hot_and_cold(rng: Rng, variants: int) -> Floats:
    """Each variant is wanted for a tenth to six tenths of the time, and hardly before or after."""
    at = (np.arange(STEPS)[:, None] + 0.5) / STEPS
    begin = rng.uniform(-0.3, 1.0, variants)
    end = begin + rng.uniform(0.1, 0.6, variants)
    wanted = ((at >= begin) & (at < end)) + 0.005
    rates: Floats = wanted * rng.permutation(zipf(variants, 0.9))
    return rates


def diurnal(rng: Rng, variants: int) -> Floats:
    """Four days; each variant has its own hour, when it is asked 400 times as often as at worst."""
    at = (np.arange(STEPS)[:, None] + 0.5) / STEPS * 4.0
    wave = np.exp(3.0 * np.sin(2.0 * np.pi * (at + rng.uniform(0.0, 1.0, variants))))
    rates: Floats = wave * rng.permutation(zipf(variants, 0.9))
    return rates


# -- arrivals: (seconds, variant) without known rates ----------------------------------------------


def bursts(rng: Rng, variants: int, queries: int, span_s: float) -> list[tuple[float, int]]:
    """Queries come in bursts of 5 to 20 within a four-hundredth of the time, then long silence."""
    found = []
    for variant, share in enumerate(rng.permutation(zipf(variants, 0.7))):
        size = rng.uniform(5.0, 20.0)
        for begin_s in rng.uniform(0.0, span_s, rng.poisson(share * queries / size)):
            after_s = rng.uniform(0.0, span_s / 400, rng.poisson(size))
            found += [(float(begin_s + each), variant) for each in after_s]
    return found


def cron(rng: Rng, variants: int, queries: int, span_s: float) -> list[tuple[float, int]]:
    """Every other variant is asked on schedule, give or take 5 %; the others at random."""
    found = []
    for variant, share in enumerate(rng.permutation(zipf(variants, 0.7))):
        if variant % 2:
            period_s = span_s / max(share * queries, 2.0)
            due_s = np.arange(rng.uniform(0.0, period_s), span_s, period_s)
            at_s = due_s + rng.normal(0.0, 0.05 * period_s, len(due_s))
        else:
            at_s = rng.uniform(0.0, span_s, rng.poisson(share * queries))
        found += [(float(each), variant) for each in at_s]
    return found


RATES: Mapping[str, Callable[[Rng, int], Floats]] = {
    "Zipf 0.7": steady(0.7),
    "Zipf 0.9": steady(0.9),
    "Zipf 1.2": steady(1.2),
    "shifting head": shifting_head,
    "drift": drifting,
    "hot and cold": hot_and_cold,
    "diurnal": diurnal,
}
ARRIVALS: Mapping[str, Callable[[Rng, int, int, float], list[tuple[float, int]]]] = {
    "bursts": bursts,
    "cron": cron,
}
KINDS = (*RATES, *ARRIVALS)
COSTS = ("independent", "alike", "opposite")
"""How load times go with sizes."""


def costs(rng: Rng, variants: int, how: str) -> tuple[Floats, Floats]:
    """Load times from 0.1 to 10 s and sizes from 10 to 1,000 MiB, both log-uniform."""
    size = rng.uniform(0.0, 1.0, variants)
    load = rng.uniform(0.0, 1.0, variants)
    if how != "independent":
        like = size if how == "alike" else 1.0 - size
        load = np.clip(like + rng.normal(0.0, 0.1, variants), 0.0, 1.0)
    return 10.0 ** (2.0 * load - 1.0), 10.0 ** (2.0 * size + 1.0)


def workload(
    kind: str, how: str, seed: int, *, variants: int, queries: int, per_s: float
) -> Workload:
    """One workload of about so many queries, ``per_s`` of them a second on average."""
    rng = np.random.default_rng((seed, KINDS.index(kind), COSTS.index(how)))
    load_s, memory_mib = costs(rng, variants, how)
    span_s = queries / per_s
    rates = None
    if kind in RATES:
        shape = RATES[kind](rng, variants)
        rates = shape / shape.mean(axis=0).sum() * per_s
        counts = rng.poisson(rates * span_s / STEPS)
        step, variant = (np.repeat(each, counts[counts > 0]) for each in np.nonzero(counts))
        at_s = (step + rng.uniform(0.0, 1.0, len(step))) * span_s / STEPS
        found = list(zip(at_s.tolist(), variant.tolist(), strict=True))
    else:
        found = ARRIVALS[kind](rng, variants, queries, span_s)
    found.sort()
    return Workload(
        arrival_s=[at_s for at_s, _ in found],
        variant=[variant for _, variant in found],
        load_s=load_s.tolist(),
        memory_mib=memory_mib.tolist(),
        rates=rates,
        step_s=span_s / STEPS,
    )
