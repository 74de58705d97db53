"""How fast and how well the planner solves: ``python -m tests.bench.planning.plan [SECTION ...]``.

Sections: fleets, crowded, timm, large, tick, brute; all without arguments (some seven minutes). The
timm catalogue is read from the directory that ``MODELLESS_BENCH_DATA`` names, and left out without
it. Building the problem is not measured. Times are of the processor, not of the wall, so that they
mean the same on a machine that others share.
"""

import os
import sys
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from statistics import mean
from time import process_time

from planner.solver.check import violations
from planner.solver.greedy import greedy
from planner.solver.problem import Problem, Solution
from planner.solver.solve import solve
from planner.types import Objective
from tests.bench.figures import Figure, middle
from tests.bench.planning.fleets import Fleet, fleet, timm
from tests.planner.solver.brute_force import brute_force
from tests.planner.solver.instances import small

REPEATS, REPEATS_CROWDED = 3, 6
LIMIT_S = 60.0
MEMORY = {
    "free": (inf, inf, inf),
    "some variants fit": (8_000.0, 12_000.0, 16_000.0),
    "one to three fit": (2_000.0, 2_500.0, 3_000.0),
}

SHAPES = {
    "memory free": Fleet(),
    "some variants fit": Fleet(memory_mib=MEMORY["some variants fit"]),
    "one to three fit": Fleet(memory_mib=MEMORY["one to three fit"]),
    "one to three fit, rates over 3 orders": Fleet(
        memory_mib=MEMORY["one to three fit"], slos="any", spread=3.0
    ),
    "one or two fit": Fleet(memory_mib=(1_500.0, 1_500.0, 1_500.0), spread=1.0),
    "one or two fit, any SLOs": Fleet(memory_mib=(1_500.0,) * 3, spread=1.0, slos="any"),
    "one or two fit, interference": Fleet(memory_mib=(1_500.0,) * 3, spread=1.0, interference=0.2),
    "memory free, interference": Fleet(interference=0.2),
    "tight SLOs": Fleet(slos="tight"),
    "any SLOs, memory": Fleet(slos="any", memory_mib=MEMORY["some variants fit"]),
    "three classes per task": Fleet(classes=3, memory_mib=MEMORY["some variants fit"]),
    "five whales, many tiny": Fleet(whales=5, memory_mib=MEMORY["some variants fit"]),
    "equal rates": Fleet(spread=0.0),
    "nine tenths needed": Fleet(needed=0.9),
    "twice what there is": Fleet(needed=2.0, memory_mib=MEMORY["some variants fit"]),
}

CROWDED = {name for name in SHAPES if "one or two" in name or "interference" in name}
"""Where sharing a device is limited by more than time: 2 s and 2 % are asked for."""


def timed(problem: Problem, objective: Objective) -> tuple[float, Solution]:
    start = process_time()
    found = solve(problem, objective, clock=process_time, time_limit_s=LIMIT_S)
    taken = process_time() - start
    broken = violations(problem, found)
    if broken:
        raise AssertionError(broken)
    return taken, found


def figures(name: str, problems: Sequence[Problem], *, seconds: float, gap: float) -> list[Figure]:
    """Median time, and the worst gap, over problems alike."""
    made = []
    for objective in (Objective.COST, Objective.ACCURACY):
        runs = [timed(problem, objective) for problem in problems]
        last = runs[-1][1]
        asked = sum(demand.qps for demand in problems[-1].demand)
        note = (
            f"{len(last.devices)} devices, {last.usd_per_hour:,.1f} USD/h, accuracy "
            f"{last.accuracy:.3f}, served {last.served_qps / asked:.1%}"
        )
        title = f"{name}: {objective.value}"
        made += [
            middle(title, [s for s, _ in runs], "s", at_most=seconds, note=note),
            Figure(
                name=f"{title}, worst gap",
                value=max(found.gap for _, found in runs) * 100,
                unit="%",
                runs=tuple(found.gap * 100 for _, found in runs),
                at_most=gap,
            ),
        ]
    return made


def fleets() -> list[Figure]:
    """100 tasks, 1,000 variants, 1,000 devices of three kinds."""
    found = []
    for name, shape in SHAPES.items():
        if name not in CROWDED:
            problems = [fleet(seed, shape) for seed in range(REPEATS)]
            found += _shown(figures(name, problems, seconds=1.0, gap=1.0))
    return found


def crowded() -> list[Figure]:
    """The same, where sharing a device is limited by more than time."""
    found = []
    for name, shape in SHAPES.items():
        if name in CROWDED:
            problems = [fleet(seed, shape) for seed in range(REPEATS_CROWDED)]
            found += _shown(figures(name, problems, seconds=2.0, gap=2.0))
    return found


def catalogue() -> list[Figure]:
    """The timm catalogue over 100 tasks, 1,000 devices of six kinds."""
    folder = os.environ.get("MODELLESS_BENCH_DATA")
    if not folder:
        print("  left out: MODELLESS_BENCH_DATA names no directory")
        return []
    file = Path(folder) / "timm_imagenet.csv"
    problems = [timm(file, seed) for seed in range(REPEATS)]
    return _shown(figures("timm", problems, seconds=3.0, gap=1.0))


def large() -> list[Figure]:
    """500 tasks, 10,000 variants, 10,000 devices."""
    found = []
    for name, memory in MEMORY.items():
        shape = Fleet(tasks=500, variants=10_000, devices=10_000, memory_mib=memory)
        problems = [fleet(seed, shape) for seed in range(REPEATS)]
        found += _shown(figures(f"500 tasks, {name}", problems, seconds=10.0, gap=2.0))
    return found


def tick() -> list[Figure]:
    """Ten tasks, 40 devices: what the control loop asks for."""
    shape = Fleet(tasks=10, variants=60, devices=40, kinds=2, memory_mib=(8_000.0, 16_000.0, inf))
    problems = [fleet(seed, shape) for seed in range(7)]
    found = []
    for objective in (Objective.COST, Objective.ACCURACY):
        for name, exact in (("exact", True), ("best fit", False)):
            runs, gaps = [], []
            for problem in problems:
                start = process_time()
                plan = solve(
                    problem, objective, clock=process_time, time_limit_s=LIMIT_S, exact=exact
                )
                runs.append((process_time() - start) * 1_000)
                gaps.append(plan.gap)
            note = f"mean gap {mean(gaps):.2%}"
            found.append(middle(f"tick, {objective.value}, {name}", runs, "ms", note=note))
    return _shown(found)


def brute() -> list[Figure]:
    """200 small problems, each solved by trying everything."""
    found = []
    for objective in (Objective.COST, Objective.ACCURACY):
        equal, losses = 0, []
        for seed in range(200):
            problem = small(seed)
            best = brute_force(problem, objective)
            exact, fit = timed(problem, objective)[1], greedy(problem, objective)
            equal += (
                abs(exact.served_qps - best.served_qps) <= 1e-6 * max(1.0, best.served_qps)
                and abs(exact.objective - best.objective(objective)) <= 1e-6
                and exact.gap <= 1e-6
            )
            losses.append(loss(fit, exact, objective) * 100)
        found += [
            Figure(name=f"{objective.value}: equal", value=equal, unit="of 200", at_least=200),
            Figure(
                name=f"{objective.value}: best fit loses, mean",
                value=mean(losses),
                unit="%",
                at_most=3.0,
                note=f"worst {max(losses):.1f} %",
            ),
        ]
    return _shown(found)


def loss(found: Solution, best: Solution, objective: Objective) -> float:
    """Of what is served, or if that is the same, of the objective; relative."""
    if best.served_qps <= 0:
        return 0.0
    missed = 1 - found.served_qps / best.served_qps
    if missed > 1e-6:
        return missed
    ratio = found.objective / best.objective if best.objective else 1.0
    return ratio - 1 if objective is Objective.COST else 1 - ratio


def _shown(found: list[Figure]) -> list[Figure]:
    for figure in found:
        print(figure, flush=True)
    return found


SECTIONS: dict[str, Callable[[], list[Figure]]] = {
    "fleets": fleets,
    "crowded": crowded,
    "timm": catalogue,
    "large": large,
    "tick": tick,
    "brute": brute,
}


def main(names: Sequence[str]) -> int:
    missed = 0
    for name in names or SECTIONS:
        print(SECTIONS[name].__doc__)
        missed += sum(not figure.reached for figure in SECTIONS[name]())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
