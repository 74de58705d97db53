"""Whether the headroom is there, in virtual time: ``python -m tests.bench.headroom.simulated``.

Random fleets of slow and fast devices with ten tasks (``tests.bench.simulation.mixed_speed``) are
asked a steady fifth of what they could do at most, and ``planner.headroom`` says how many times
that they could serve. Then parts and multiples of what it said are simulated under our own policy.
Cells are the violations of the last 50 s, in per cent; it promises one at most in the column 1.0.
Profiles are exact, so what is shown is the rule's own error. Cells depend on nothing but the code.
Queries come as a Poisson process; with ``--drawn`` as they do in these workloads, of which a third
has bursts and a third gaps of another spread.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter

from planner.headroom.dispersion import Dispersion
from planner.headroom.growth import headroom
from planner.simulate import simulate
from planner.simulation.setting import Setting
from planner.solver.greedy import greedy
from planner.types import Demand, Objective, Observation
from tests.bench.planning.catalogs import Ground
from tests.bench.simulation.arrivals import Arrivals
from tests.bench.simulation.capacity import capacity_qps
from tests.bench.simulation.mixed_speed import drawn_workload
from tests.bench.simulation.workloads import Opening, Workload, draw
from variants.types import TaskName

LOAD = 0.2
PARTS = (0.8, 0.9, 1.0, 1.1, 1.25)
OPENING = Opening(calm_s=20, rise_s=30)
WATCHED_S = 240
FLAT_S = 60
LOOKED_S = 50


def factor_of(known: Ground, workload: Workload, objective: Objective) -> float:
    """What is said of the steady demand."""
    mix = workload.mix(0)
    rate = LOAD * capacity_qps(known, mix) / sum(mix.values())
    counts = {kind.name: kind.count for kind in known.kinds}
    seen = Observation(
        catalog=known.catalog,
        workers=(),
        demand=tuple(
            Demand(task=one.task, latency_ms=one.latency_ms, accuracy=one.floor, qps=rate * weight)
            for one, weight in mix.items()
        ),
        inventory=counts,
        running=counts,
        plan=None,
        now_s=0.0,
        objective=objective,
    )
    spread = dispersion_of(known, workload)
    found = headroom(seen, greedy, dispersion=spread, clock=perf_counter, limit_s=0.0)
    assert found is not None
    return found.factor


def dispersion_of(known: Ground, workload: Workload) -> dict[TaskName, float]:
    """How much the arrivals of tasks vary, as the control loop would see it in some minutes."""
    steady = replace(workload, load=[LOAD] * WATCHED_S, opening=Opening(calm_s=0, rise_s=1))
    trace = draw(steady, known, 1).trace
    counts = [Counter[TaskName]() for _ in range(WATCHED_S)]
    for at_s, task in zip(trace.arrival_s, trace.task, strict=True):
        counts[min(int(at_s), WATCHED_S - 1)][trace.tasks[task]] += 1
    watched = Dispersion()
    for count in counts:
        watched.count(count, 1.0)
    return watched.of_tasks()


def violated(known: Ground, workload: Workload, load: float, objective: Objective) -> float:
    """Of the end of a steady load, in per cent."""
    seconds = OPENING.calm_s + OPENING.rise_s + FLAT_S
    steady = replace(workload, load=[load] * seconds, opening=OPENING)
    setting = Setting(catalog=known.catalog, kinds=known.kinds, objective=objective, elastic=False)
    report = simulate(setting, draw(steady, known, 0).trace, "modelless", clock=perf_counter)
    last = [one for one in report.timeline if one.start_s >= seconds - LOOKED_S]
    asked, in_time = (sum(getattr(one, of) for one in last) for of in ("arrived", "in_time"))
    return float(100.0 * (1.0 - in_time / asked))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--objective", default="accuracy", choices=["accuracy", "cost"])
    parser.add_argument("--drawn", action="store_true")
    given = parser.parse_args(arguments)
    objective = Objective(given.objective)
    print("| devices | load that could be served, it says | " + " | ".join(map(str, PARTS)) + " |")
    print("|---|--:|" + "--:|" * len(PARTS), flush=True)
    columns: list[list[float]] = [[] for _ in PARTS]
    for number in range(given.draws):
        known, workload = drawn_workload(number, 0)
        if not given.drawn:
            workload = replace(workload, arrivals=Arrivals.POISSON)
        most = LOAD * factor_of(known, workload, objective)
        cells = [violated(known, workload, part * most, objective) for part in PARTS]
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
        kinds = ", ".join(f"{kind.count} {kind.name}" for kind in known.kinds)
        kinds += f"; {workload.arrivals.value}" if given.drawn else ""
        print(
            f"| {kinds} | {most:.2f} | " + " | ".join(f"{c:.2f}" for c in cells) + " |", flush=True
        )
    print("| median | | " + " | ".join(f"{median(c):.2f}" for c in columns) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
