"""What a fleet could serve at most: the yardstick that workloads are scaled by.

Every class of queries (task, latency SLO, floor) is served by its cheapest variant, the one that
takes least device time per query at its best batch. The best batch is the cheapest per row of those
that take at most half of the latency SLO, less the overhead: who just missed a batch waits for it
and takes the next. Devices may be shared between classes in any proportion and are busy all the
time; neither memory nor loads count. So no system can serve more than this of a mix, but for the
odd batch above half of an SLO. A class for which every batch takes more than half is counted in
batches of one row that alone are in time.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from ortools.linear_solver.python import model_builder

from planner.latency_curve import Curve
from planner.selection.snapshot import latency_points
from planner.solver.problem import OVERHEAD_MS
from tests.bench.planning.catalogs import Ground
from variants.types import DeviceKindName, TaskName


class Class(NamedTuple):
    """Queries that ask for the same."""

    task: TaskName
    latency_ms: float
    floor: float | None = None


def row_ms(ground: Ground, asked: Class, most: int | None = None) -> dict[DeviceKindName, float]:
    """Least device time of one query on each device kind that can serve the class, in batches of
    at most so many."""
    accurate = {
        v.name
        for v in ground.catalog.variants
        if v.task == asked.task and (asked.floor is None or v.accuracy >= asked.floor)
    }
    curves = [
        (profile.device_kind, Curve(latency_points(profile)))
        for profile in ground.catalog.profiles
        if profile.task == asked.task and profile.variant in accurate
    ]
    left_ms = asked.latency_ms - OVERHEAD_MS
    found: dict[DeviceKindName, float] = {}
    for longest_ms, largest in ((left_ms / 2, most), (left_ms, 1)):
        for kind, curve in curves:
            best = curve.cheapest(longest_ms, largest)
            if best is not None:
                found[kind] = min(best.unit_ms, found.get(kind, best.unit_ms))
        if found:
            break
    return found


def capacity_qps(ground: Ground, mix: Mapping[Class, float]) -> float:
    """The largest rate at which the fleet serves a mix; ``mix`` has the weight of each class.

    A linear program: devices of each kind given to each class.

    Raises:
        ValueError: no device can serve a class.
    """
    model = model_builder.Model()
    total = sum(mix.values())
    rate = model.new_num_var(0.0, inf, "qps")
    given: dict[DeviceKindName, list[model_builder.Variable]] = {k.name: [] for k in ground.kinds}
    for asked, weight in mix.items():
        costs_ms = row_ms(ground, asked)
        if not costs_ms:
            raise ValueError(f"no device can serve {asked}")
        served = []
        for kind, ms in costs_ms.items():
            devices = model.new_num_var(0.0, inf, f"{kind} for {asked}")
            given[kind].append(devices)
            served.append(devices * (1_000.0 / ms))
        model.add(sum(served) >= rate * (weight / total))
    for each in ground.kinds:
        model.add(sum(given[each.name]) <= each.count)
    model.maximize(rate)
    solver = model_builder.Solver("glop")
    if solver.solve(model) != model_builder.SolveStatus.OPTIMAL:
        raise ValueError("the linear program has no optimum")
    return float(solver.objective_value)
