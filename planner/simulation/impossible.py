"""Queries of a trace that no policy could answer in time, whatever is loaded and however idle.

A reader of results wants to know of these first: an SLO in the wrong unit, or a floor above every
variant, looks like a policy that fails.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Candidate
from variants.types import DeviceKindName, TaskName, VariantKey


class Impossible(NamedTuple):
    """How many queries no variant meets, each counted by the first reason that holds."""

    nowhere: int = 0
    """No device there may be could hold a variant of their task."""
    accuracy: int = 0
    """No variant is that accurate."""
    cost: int = 0
    """None that is accurate enough is within the ceiling."""
    latency: int = 0
    """None that is accurate and cheap enough runs a row within the SLO."""

    @property
    def total(self) -> int:
        return sum(self)


def impossible(
    setting: Setting,
    offers: Mapping[DeviceKindName, Mapping[VariantKey, Candidate]],
    trace: Trace,
) -> Impossible:
    """Count the queries of a trace that no variant meets by its profile.

    Args:
        offers: what each device kind can hold.
    """
    import numpy as np

    holding = _holding(setting, offers)
    task = np.asarray(trace.task)
    floor, ceiling = np.asarray(trace.min_accuracy), np.asarray(trace.max_cost)
    latency = np.asarray(trace.latency_ms)
    nowhere, short = 0, [0, 0, 0]
    for index, name in enumerate(trace.tasks):
        [left] = np.nonzero(task == index)
        candidates = holding.get(name, ())
        if not candidates:
            nowhere += len(left)
            continue
        best = np.zeros(len(left), np.int64)
        for one in candidates:
            accurate = one.accuracy >= floor[left]
            cheap = accurate & (one.price_usd_per_1k <= ceiling[left])
            quick = cheap & (setting.instant | (one.table.ms[1] <= latency[left]))
            best = np.maximum(best, accurate.astype(np.int64) + cheap + quick)
            left, best = left[best < 3], best[best < 3]
            if not len(left):
                break
        for reason in range(3):
            short[reason] += int(np.count_nonzero(best == reason))
    return Impossible(nowhere, *short)


def _holding(
    setting: Setting, offers: Mapping[DeviceKindName, Mapping[VariantKey, Candidate]]
) -> dict[TaskName, Collection[Candidate]]:
    """The candidates of each task that some device could hold, the quickest first."""
    found: dict[TaskName, list[Candidate]] = {}
    for kind in setting.kinds:
        for one in offers.get(kind.name, {}).values() if kind.count else ():
            if one.memory_mib <= kind.memory_mib:
                found.setdefault(one.task, []).append(one)
    return {task: sorted(some, key=lambda one: one.table.ms[1]) for task, some in found.items()}
