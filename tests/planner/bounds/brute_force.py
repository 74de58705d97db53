"""Every schedule of a few queries tried, to compare the bound with what is really possible.

Written from the definitions of the simulator, sharing no code with the bound: a device runs one
batch after the other, a batch has rows of one variant that have all arrived when it begins, nothing
runs before its variant is loaded, and a query counts when its batch ends by its deadline. To begin
a batch later than it could is never of use, nor is a row in it that is late.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import inf

from planner.simulate import offers_of
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Candidate
from variants.types import DeviceKindName

TOLERANCE_MS = 1e-6


def best_accuracies(setting: Setting, trace: Trace) -> list[float]:
    """Per number of queries in time, from none: the largest sum of their accuracies; minus infinity
    where so many cannot be in time. Devices are all there, and hold all variants."""
    sums: dict[frozenset[int], float] = {frozenset(): 0.0}
    for schedules in _devices(setting, trace):
        together: dict[frozenset[int], float] = {}
        for one, first in sums.items():
            for other, second in schedules.items():
                if not one & other:
                    served = one | other
                    together[served] = max(together.get(served, -inf), first + second)
        sums = together
    best = [-inf] * (len(trace) + 1)
    for served, accuracy in sums.items():
        best[len(served)] = max(best[len(served)], accuracy)
    return best


def _devices(setting: Setting, trace: Trace) -> Iterator[Mapping[frozenset[int], float]]:
    """For each device: the sets of queries that it can serve alone, with the best accuracy sum."""
    offers = offers_of(setting.catalog)
    for kind in setting.kinds:
        schedules = _schedules(list(offers[DeviceKindName(kind.name)].values()), trace)
        for _ in range(kind.count):
            yield schedules


def _schedules(candidates: list[Candidate], trace: Trace) -> dict[frozenset[int], float]:
    found: dict[frozenset[int], float] = {}

    def go_on(served: frozenset[int], accuracy: float, free_ms: float) -> None:
        found[served] = max(found.get(served, -inf), accuracy)
        for candidate in candidates:
            left = [i for i in _answerable(candidate, trace) if i not in served]
            for size in range(1, min(len(left), candidate.table.max_batch) + 1):
                for batch in combinations(left, size):
                    end_ms = _end_ms(candidate, trace, batch, free_ms)
                    if end_ms < inf:
                        go_on(served | set(batch), accuracy + size * candidate.accuracy, end_ms)

    go_on(frozenset(), 0.0, 0.0)
    return found


def _answerable(candidate: Candidate, trace: Trace) -> list[int]:
    return [
        i
        for i in range(len(trace))
        if trace.tasks[trace.task[i]] == candidate.task
        and trace.min_accuracy[i] <= candidate.accuracy
        and trace.max_cost[i] >= candidate.price_usd_per_1k
    ]


def _end_ms(candidate: Candidate, trace: Trace, batch: tuple[int, ...], free_ms: float) -> float:
    """When a batch is done; infinite when that is too late for one of its queries."""
    arrived_ms = max(trace.arrival_s[i] * 1_000 for i in batch)
    end_ms = max(free_ms, arrived_ms, candidate.load_ms) + candidate.table.ms[len(batch)]
    due_ms = min(trace.arrival_s[i] * 1_000 + trace.latency_ms[i] for i in batch)
    return end_ms if end_ms <= due_ms + TOLERANCE_MS else inf
