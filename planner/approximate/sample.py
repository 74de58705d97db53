"""What is played of a rate trace: a slice of each window, on a part of the fleet."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

import numpy as np

from planner.approximate.rates import RateTrace
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind

DEVICES = 60
"""A larger fleet is made smaller, to about so many devices: with fewer, a plan in whole devices
wastes more of them. No sweep was made, and no smaller fleet was held against an exact run
(docs/decisions/0020-simulating-faster.md)."""
LEAST_OF_A_KIND = 4
"""But so many of each device kind stay."""
WINDOWS = 300
"""At most; each is a point of the timeline."""
MOST_PLAYED = 4_000_000
"""About so many queries are played at most: some two minutes of one core."""
LEAD_SLOS, PLAYED_SLOS = 2.0, 8.0
"""A slice is so many times as long as the longest latency SLO; its lead fills the queues and does
not count."""
LEAST_LEAD_S, LEAST_PLAYED_S = 1, 4
START_S = 120
"""The beginning, when everything is empty, is like no other time: all of it is played."""


class Slice(NamedTuple):
    """Seconds of a window that are played; those from ``counts_s`` on count."""

    begin_s: int
    counts_s: int
    end_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which part of a rate trace is played."""

    kinds: tuple[AvailableKind, ...]
    """The fleet that is played."""
    scale: float
    """Devices of the whole fleet that each of it stands for; queries as well."""
    width_s: int
    """Of a window."""
    start_s: int
    """So much of the first window is played, and stands for itself only."""
    slices: tuple[Slice, ...]
    """One of each window, in order."""


def sample_of(
    rates: RateTrace, kinds: Sequence[AvailableKind], seed: int, windows: int = WINDOWS
) -> Sample:
    """At most ``windows`` of equal length and a slice at a random place in each.

    The same seed gives the same sample.
    """
    smaller, scale = shrunk(kinds)
    longest_s = float(rates.latency_ms.max()) / 1_000
    lead_s = max(LEAST_LEAD_S, ceil(LEAD_SLOS * longest_s))
    played_s = max(LEAST_PLAYED_S, ceil(PLAYED_SLOS * longest_s))
    duration_s = rates.duration_s
    each = max(1.0, rates.total / duration_s / scale * (lead_s + played_s))
    windows = max(1, min(windows, int(MOST_PLAYED / each), duration_s // (lead_s + played_s)))
    width_s = ceil(duration_s / windows)
    draw = np.random.default_rng([seed, 1])
    start_s = START_S if width_s >= START_S + lead_s + played_s else 0
    slices = []
    for begin_s in range(0, duration_s, width_s):
        first_s = begin_s or start_s
        behind_s = min(begin_s + width_s, duration_s)
        free_s = behind_s - first_s - lead_s - played_s
        first_s += int(draw.integers(free_s + 1)) if free_s > 0 else 0
        end_s = min(first_s + lead_s + played_s, behind_s)
        # Where the first window is played from the beginning, all of it counts.
        counts_s = min(first_s + lead_s, end_s - 1) if first_s else 0
        slices.append(Slice(first_s, counts_s, end_s))
    return Sample(
        kinds=smaller, scale=scale, width_s=width_s, start_s=start_s, slices=tuple(slices)
    )


def shrunk(kinds: Sequence[AvailableKind]) -> tuple[tuple[AvailableKind, ...], float]:
    """A fleet of the same mixture with about ``DEVICES`` devices, and how many each stands for."""
    counts = [kind.count for kind in kinds if kind.count]
    if not counts:
        return tuple(kinds), 1.0
    factor = max(1.0, min(sum(counts) / DEVICES, min(counts) / LEAST_OF_A_KIND))
    smaller = tuple(
        replace(kind, count=round(kind.count / factor) if kind.count else 0) for kind in kinds
    )
    return smaller, sum(counts) / sum(kind.count for kind in smaller)


def drawn(rates: RateTrace, sample: Sample, seed: int) -> Trace:
    """The queries of all slices: a Poisson number in each second, uniform within it."""
    random = np.random.default_rng([seed, 2])
    parts = [rates.rows(0, sample.start_s)]
    parts += [rates.rows(each.begin_s, each.end_s) for each in sample.slices]
    chosen = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    counts = random.poisson(rates.requests[chosen] / sample.scale)
    rows = np.repeat(chosen, counts)
    arrival_s = rates.second[rows] + random.random(len(rows))
    order = np.argsort(arrival_s, kind="stable")
    rows = rows[order]
    return Trace(
        tasks=rates.tasks,
        arrival_s=array("d", arrival_s[order].tobytes()),
        task=array("q", rates.task[rows].tobytes()),
        latency_ms=array("d", rates.latency_ms[rows].tobytes()),
        min_accuracy=array("d", rates.min_accuracy[rows].tobytes()),
        max_cost=array("d", [np.inf]) * len(rows),
    )
