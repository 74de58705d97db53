"""Every schedule of a few queries tried, to compare the bound with what is really possible.

Written from the definitions of the simulator, sharing no code with the bound: a device runs one
batch after the other, a batch has rows of one variant that have all arrived when it begins, nothing
runs before its variant is loaded, and a query counts when its batch ends by its deadline. To begin
a batch later than it could is never of use, nor is a row in it that is late.

Where devices are ordered and released, a life of a device is billed from its order to its last
batch, a minute at least, and usable ``provision_s`` after its order, which is not before 0.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import inf

from planner.simulate import offers_of
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind
from planner.types import Candidate
from variants.types import DeviceKindName

TOLERANCE_MS = 1e-6
LEAST_BILLED_MS = 60_000.0


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


def least_costs(setting: Setting, trace: Trace) -> list[float]:
    """Per number of queries in time, from none: the least cost in USD; infinite where so many
    cannot be in time. Of each kind there are as many devices as are of use."""
    offers = offers_of(setting.catalog)
    lives: dict[frozenset[int], float] = {}
    for kind in setting.kinds:
        for served, cost in _lives(setting, kind, list(offers[kind.name].values()), trace).items():
            lives[served] = min(lives.get(served, inf), cost)
    costs: dict[frozenset[int], float] = {frozenset(): 0.0}
    for _ in range(len(trace)):
        for served, cost in list(costs.items()):
            for more, added in lives.items():
                if not served & more:
                    together = served | more
                    costs[together] = min(costs.get(together, inf), cost + added)
    best = [inf] * (len(trace) + 1)
    for served, cost in costs.items():
        best[len(served)] = min(best[len(served)], cost)
    return best


Batches = tuple[tuple[Candidate, tuple[int, ...]], ...]


def _lives(
    setting: Setting, kind: AvailableKind, candidates: list[Candidate], trace: Trace
) -> dict[frozenset[int], float]:
    """The sets of queries that one life of a device can serve, with the least it costs."""
    found: dict[frozenset[int], float] = {}

    def go_on(served: frozenset[int], batches: Batches) -> None:
        for candidate in candidates:
            left = [i for i in _answerable(candidate, trace) if i not in served]
            for size in range(1, min(len(left), candidate.table.max_batch) + 1):
                for batch in combinations(left, size):
                    longer = (*batches, (candidate, batch))
                    billed_ms = _billed_ms(setting, trace, longer)
                    if billed_ms < inf:
                        more = served | set(batch)
                        usd = billed_ms / 3_600_000 * kind.usd_per_hour
                        found[more] = min(found.get(more, inf), usd)
                        go_on(more, longer)

    go_on(frozenset(), ())
    return found


def _billed_ms(setting: Setting, trace: Trace, batches: Batches) -> float:
    """The least a device is billed for these batches, one after the other; infinite if one is late.

    The later it becomes usable, the shorter it is needed, so it does at the last moment.
    """
    provision_ms = setting.provision_s * 1_000
    runs_ms = [candidate.table.ms[len(batch)] for candidate, batch in batches]
    due_ms = [
        min(trace.arrival_s[i] * 1_000 + trace.latency_ms[i] for i in batch) for _, batch in batches
    ]
    usable_ms = min(
        due_ms[last] - sum(runs_ms[first : last + 1]) - batches[first][0].load_ms
        for first in range(len(batches))
        for last in range(first, len(batches))
    )
    if usable_ms < provision_ms - TOLERANCE_MS:
        return inf
    now_ms = usable_ms
    for (candidate, batch), run_ms, due in zip(batches, runs_ms, due_ms, strict=True):
        arrived_ms = max(trace.arrival_s[i] * 1_000 for i in batch)
        now_ms = max(now_ms, arrived_ms, usable_ms + candidate.load_ms) + run_ms
        if now_ms > due + TOLERANCE_MS:
            return inf
    return max(LEAST_BILLED_MS, provision_ms + now_ms - usable_ms)


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
