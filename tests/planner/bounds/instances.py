"""Random settings and traces, small enough to try every schedule."""

from array import array
from math import inf

from hypothesis import strategies as st

from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind
from planner.types import Objective
from tests.planner.builders import catalog, kind, variant
from variants.types import (
    DeviceKindName,
    LatencyPoint,
    Profile,
    ProfileSource,
    TaskName,
    VariantName,
)

KINDS = (DeviceKindName("slow"), DeviceKindName("fast"))
TASKS = (TaskName("a"), TaskName("b"))
ACCURACIES = (0.6, 0.8, 0.9)


@st.composite
def profiles(draw: st.DrawFn, task: TaskName, name: str, on: DeviceKindName) -> Profile:
    """A batch of b rows takes a first row's time and a part of it for each further one. Times are
    round, so that what just fits is frequent."""
    row_ms = 10 * draw(st.integers(1, 5))
    further = draw(st.sampled_from((0.0, 0.5, 1.0)))
    largest = draw(st.integers(1, 4))
    points = []
    for size in sorted({1, largest}):
        ms = row_ms * (1 + further * (size - 1))
        points.append(LatencyPoint(batch_size=size, p50_ms=ms, p95_ms=ms, p99_ms=ms))
    return Profile(
        task=task,
        variant=VariantName(name),
        device_kind=on,
        points=tuple(points),
        memory_mib=0.0,
        load_s=draw(st.sampled_from((0.0, 0.0, 0.03))),
        source=ProfileSource.EXACT,
    )


@st.composite
def settings(
    draw: st.DrawFn, *, devices: int = 2, objective: Objective = Objective.ACCURACY
) -> Setting:
    """One or two tasks with one to three variants each, on one or two kinds of devices."""
    kinds = KINDS[: draw(st.integers(1, 2))]
    variants, made = [], []
    for task in TASKS[: draw(st.integers(1, 2))]:
        for number in range(draw(st.integers(1, 3))):
            name = f"v{number}"
            variants.append(variant(name, ACCURACIES[number], task))
            on = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
            made += [draw(profiles(task, name, each)) for each in on]
    return Setting(
        catalog=catalog(variants, made, kinds=[kind(name) for name in kinds]),
        kinds=tuple(
            AvailableKind(
                name=name,
                count=_count(draw, devices, len(kinds), objective),
                memory_mib=inf,
                usd_per_hour=draw(st.sampled_from((1.8, 3.6))),
            )
            for name in kinds
        ),
        objective=objective,
        provision_s=draw(st.sampled_from((5.0, 30.0))),
    )


def _count(draw: st.DrawFn, devices: int, kinds: int, objective: Objective) -> int:
    """Few, so that schedules can be counted; where they come and go, as many as can be of use."""
    if objective is Objective.COST:
        return devices
    return draw(st.integers(1, devices if kinds == 1 else 1))


@st.composite
def traces(draw: st.DrawFn, *, queries: int = 5, within_ms: int = 60, spells_s: int = 0) -> Trace:
    """A few queries that have to share devices, within one moment or, if ``spells_s`` is not 0,
    within several, ten seconds or more apart."""
    count = draw(st.integers(1, queries))
    arrivals = sorted(
        10 * draw(st.integers(0, within_ms // 10)) + 10_000 * draw(st.integers(0, spells_s // 10))
        for _ in range(count)
    )
    return Trace(
        tasks=TASKS,
        arrival_s=array("d", [ms / 1_000 for ms in arrivals]),
        task=array("q", [draw(st.sampled_from((0, 0, 0, 1))) for _ in range(count)]),
        latency_ms=array("d", [draw(st.sampled_from((30, 50, 50, 50, 100))) for _ in arrivals]),
        min_accuracy=array("d", [draw(st.sampled_from((-inf, -inf, 0.8))) for _ in arrivals]),
        max_cost=array("d", [draw(st.sampled_from((inf, inf, inf, 0.003))) for _ in arrivals]),
    )
